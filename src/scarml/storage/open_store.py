"""From what a user writes (``--run URL``) to a store: the one way."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from scarml.storage.fsspec_store import FsspecStore
from scarml.storage.local import LocalStore
from scarml.storage.object_port import Limits
from scarml.storage.store import Store
from scarml.storage.store_url import parse_url

__all__ = ["open_store"]


def open_store(
    url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None, limits: Limits | None = None
) -> Store:
    """The store that a URL names. Nothing is read or written yet.

    Args:
        url: a path or ``file:///path``; ``memory://name``, which lives as long as the process; ``s3://bucket/prefix``,
            with endpoint and credentials from the usual AWS environment variables and configuration.
        storage_options: for ``s3://``: options of ``s3fs.S3FileSystem``, before those of the environment.
        limits: for ``s3://``: of time and attempts.

    Raises:
        UsageError: there is no such kind of store, the URL has credentials in it, or a package is missing.

    Example:
        >>> open_store("runs/mf")
        LocalStore('runs/mf')
        >>> open_store("memory://mf")
        FsspecStore('memory://mf')
    """
    text = os.fspath(url)
    where = parse_url(text)
    if where.scheme == "file":
        return LocalStore(os.path.expanduser(where.path))
    return FsspecStore(text, storage_options, limits)

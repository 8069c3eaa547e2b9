"""Opening the run that a command is about."""

from __future__ import annotations

from pathlib import Path

from scarml.errors import UsageError
from scarml.storage.open_store import open_store
from scarml.storage.run_folder import RunFolder
from scarml.storage.store import Store

__all__ = ["open_run", "store_of_run"]


def open_run(url: str) -> RunFolder:
    """The run at a path or URL.

    Raises:
        UsageError: there is none.
        StoreError: the store cannot be read, or what is there is damaged or of a newer format.
    """
    return RunFolder.open(store_of_run(url))


def store_of_run(url: str) -> Store:
    """The store at a path or URL, which has a run in it. Raises as `open_run`, but for damage."""
    store = open_store(url)
    if Path(url).is_file():
        raise UsageError(f"{url} is a file; expected the folder of a run")
    if not RunFolder.is_run(store):
        raise UsageError(f"there is no run in {url}; expected a folder that scarml train --run has made")
    return store

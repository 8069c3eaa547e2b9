"""Opening the run that a command is about."""

from __future__ import annotations

from pathlib import Path

from scarml.errors import UsageError
from scarml.storage.open_store import open_store
from scarml.storage.run_folder import RunFolder

__all__ = ["open_run"]


def open_run(url: str) -> RunFolder:
    """The run at a path or URL.

    Raises:
        UsageError: there is none.
        StoreError: the store cannot be read, or what is there is damaged or of a newer format.
    """
    store = open_store(url)
    if Path(url).is_file():
        raise UsageError(f"{url} is a file; expected the folder of a run")
    if not RunFolder.is_run(store):
        raise UsageError(f"there is no run in {url}; expected a folder that scarml train --run has made")
    return RunFolder.open(store)

"""Where a run is kept if the user does not say: a new folder for each start."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scarml.errors import UsageError
from scarml.storage.store_url import parse_url

__all__ = ["RUNS", "new_folder", "run_folder"]

RUNS = Path("scar-runs")


@contextmanager
def run_folder(named: str | None, model: str, data: str | None) -> Iterator[Path | str]:
    """The folder of a run, made if need be. If the block fails before anything is in it, it is removed again.

    A URL of another store (``s3://…``) is given back as it is: nothing has to be made there.

    Raises:
        UsageError: it is a file, or cannot be made, read or written; or it is no URL of a store.
    """
    if named is not None and "://" in named:
        parse_url(named)
        yield named
        return
    if named is None:
        words = [model.rpartition(":")[2].lower(), *([data.rpartition("/")[2]] if data else [])]
        path, is_new = new_folder(RUNS, "-".join(re.sub(r"[^\w.-]", "-", w) for w in words)), True
    else:
        path, is_new = _named_folder(Path(os.path.expanduser(named)))  # Path.expanduser raises where ~x is nobody
    try:
        yield path
    except BaseException:
        if is_new:
            with suppress(OSError):  # there is something in it
                path.rmdir()
        raise


def new_folder(parent: Path, stem: str) -> Path:
    """Make the folder ``<parent>/<stem>-<n>`` with the next free number."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        taken = [int(p.name[len(stem) + 1 :]) for p in parent.glob(f"{stem}-*") if p.name[len(stem) + 1 :].isdecimal()]
        n = max(taken, default=0)
        while True:
            n += 1
            with suppress(FileExistsError):  # another start was faster
                (parent / f"{stem}-{n}").mkdir()
                return parent / f"{stem}-{n}"
    except OSError as e:
        raise UsageError(f"no folder can be made in {parent}: {e.strerror or e}; name one with --run") from None


def _named_folder(path: Path) -> tuple[Path, bool]:
    try:
        is_new = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"--run {path} is a file; expected a folder, or a path where one can be made") from None
    except (OSError, ValueError) as e:
        raise UsageError(f"--run {path} cannot be made: {getattr(e, 'strerror', None) or e}") from None
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise UsageError(f"--run {path} cannot be read and written by this user; check its permissions")
    return path, is_new

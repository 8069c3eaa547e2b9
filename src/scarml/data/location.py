"""Where data sets lie: the folder that ``SCAR_DATA_DIR`` names, with one folder a data set in it."""

from __future__ import annotations

import os
from pathlib import Path

from scarml.errors import DataError

__all__ = ["DATA_DIR_VARIABLE", "find", "find_one", "is_file", "is_present"]

DATA_DIR_VARIABLE = "SCAR_DATA_DIR"


def find(name: str, folder: str, files: tuple[str, ...], source: str) -> list[Path]:
    """The paths of a data set's files.

    Args:
        name: of the data set, for the message.
        folder: its folder inside ``SCAR_DATA_DIR``.
        files: what must be in that folder.
        source: where to get them.

    Raises:
        DataError: if ``SCAR_DATA_DIR`` is not set or a file is missing; says where to get it and where to put it.
    """
    root = os.environ.get(DATA_DIR_VARIABLE, "")
    wanted = f"get {', '.join(files)} from {source} and put them into"
    if not root:
        raise DataError(
            f"data set {name!r} needs files that do not come with SCAR: {wanted} $SCAR_DATA_DIR/{folder}/, "
            "with SCAR_DATA_DIR set to a folder of your choice"
        )
    paths = [Path(root, folder, file) for file in files]
    missing = [str(path) for path in paths if not is_file(path)]
    if missing:
        raise DataError(
            f"data set {name!r} is not complete, missing {', '.join(missing)}: {wanted} {Path(root, folder)}/"
        )
    return paths


def find_one(name: str, folder: str, files: tuple[str, ...], source: str) -> Path:
    """The path of the first of the files that is there, where any of them will do; all else is as in `find`."""
    for file in files[1:]:
        if is_present(folder, (file,)) and not is_present(folder, files[:1]):
            return find(name, folder, (file,), source)[0]
    return find(name, folder, files[:1], source)[0]


def is_present(folder: str, files: tuple[str, ...], any_of: bool = False) -> bool:
    """Whether all the files, or any of them, are where `find` looks for them."""
    root = os.environ.get(DATA_DIR_VARIABLE, "")
    there = (is_file(Path(root, folder, file)) for file in files)
    return bool(root) and (any(there) if any_of else all(there))


def is_file(path: Path) -> bool:
    """Whether there is such a file.

    Raises:
        DataError: if that cannot be said: a folder on the way must not be entered, or the name is too long.
    """
    try:
        return path.is_file()
    except OSError as error:
        raise DataError(f"the data file {path} cannot be reached: {error.strerror}") from error

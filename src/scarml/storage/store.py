"""The `Store` protocol: named, immutable-by-habit objects, each there whole or not at all.

A store knows nothing of segments, terms or blocks. One file a kind of store: `local`, `memory`; `faulty` wraps another.
`scarml.testing.store_contract.StoreContract` is the suite of tests that each of them passes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, Protocol

from scarml.errors import UsageError
from scarml.storage.file_port import FileLock

__all__ = ["Chunk", "LockReach", "Store", "check_name", "folder_of_prefix", "settle"]

LockReach = Literal["machine", "process"]

Chunk = bytes | memoryview
"""A piece of an object's contents. A memoryview must be contiguous."""

_MAX_NAME_CHARS = 512


class Store(Protocol):
    """A flat space of named objects. Names are slash-separated, see `check_name`.

    Every method raises `StoreError` (or the subclass that is said) if it cannot be done, and `UsageError` for a bad
    name. After an error the object is what it was before, or what it was to become; never anything between.
    """

    gap_bytes: int
    """When reading pieces of an object: gaps up to this long are cheaper to read through than to leave out."""

    lock_reach: LockReach
    """Who is kept out by `lock`: all processes of the machine (at least), or only others in the same process."""

    def put(self, name: str, chunks: Iterable[Chunk]) -> None:
        """Store an object, in place of any object of that name. Durable when this returns."""
        ...

    def create(self, name: str, chunks: Iterable[Chunk]) -> None:
        """Store an object unless there is one of that name. Durable when this returns.

        Of any number of concurrent creates of a name exactly one succeeds.

        Raises:
            AlreadyExistsError: there is one.
        """
        ...

    def get(self, name: str) -> bytes:
        """The whole object. NotFoundError if there is none."""
        ...

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """``length`` bytes from ``start`` on.

        Raises:
            NotFoundError: there is no such object.
            DamagedError: the object ends before ``start + length``.
        """
        ...

    def read_into(self, name: str, start: int, out: memoryview) -> None:
        """Fill ``out`` with the bytes from ``start`` on; otherwise as `get_range`."""
        ...

    def size(self, name: str) -> int:
        """Bytes in the object. NotFoundError if there is none."""
        ...

    def list(self, prefix: str = "") -> list[str]:
        """The names that start with ``prefix``, sorted."""
        ...

    def delete(self, name: str) -> None:
        """Remove an object, durably. One that is not there is no error."""
        ...

    def lock(self, name: str, note: str = "") -> FileLock | None:
        """An advisory lock that vanishes with its process, or None if another holds it. For its reach see `lock_reach`.

        ``note`` tells others who holds it: it becomes the contents of the object ``name``, which the lock makes.
        """
        ...

    def sweep(self) -> int:
        """Remove what writers that died have left behind; return how many leftovers. Living writers are not harmed."""
        ...


def check_name(name: str) -> str:
    r"""The name, if it is one.

    A name is parts joined by ``/``; a part is not empty, does not start with ``.`` and has only printable ASCII
    characters other than ``\``.

    Raises:
        UsageError: it is not.
    """
    if not _is_name(name):
        raise UsageError(
            f"{name[:80]!r} is not an object name; expected parts joined by '/', none empty or starting with '.', "
            f"of printable ASCII without backslashes, {_MAX_NAME_CHARS} characters at most"
        )
    return name


def folder_of_prefix(prefix: str) -> str:
    """The folder that all names with this prefix lie in, ``""`` for the topmost. UsageError if it is no name."""
    folder = prefix.rpartition("/")[0]
    return check_name(folder) if folder else ""


@lru_cache(maxsize=4096)  # a segment is read in many pieces
def _is_name(name: str) -> bool:
    return len(name) <= _MAX_NAME_CHARS and all(map(_is_part, name.split("/")))


def _is_part(part: str) -> bool:
    return part.isascii() and part.isprintable() and not part.startswith(".") and "\\" not in part and bool(part)


def settle(store: Store, folder: str) -> None:
    """Make durable the names that are listed below a folder, for example ``segments``.

    A writer that died between making a name and syncing the folder leaves a name that a power loss may still take away.
    Whoever builds on what others left must settle it first.
    """
    store.delete(f"{folder}/nothing")  # a delete syncs the folder, also one that finds nothing

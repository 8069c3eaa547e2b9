"""The object port: the few operations on objects that `FsspecStore` is built from, and fsspec's memory behind it.

Keys are full names, with the store's own beginning. Errors are those of the package behind it; `FsspecStore` maps them.
`s3_objects` is the other port.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Protocol

from scarml.errors import UsageError

__all__ = ["Limits", "MemoryObjects", "ObjectPort", "missing_package"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How long an operation on a distant store may take, and how often it is tried.

    Args:
        connect_timeout_s: for a connection to be made.
        read_timeout_s: for the next bytes of an answer.
        attempts: requests that may be made for one, the first included; between them a second or so is waited.
        deadline_s: after this the operation is given up, whatever it is doing.
        min_bytes_per_s: large objects get more time: a second for each so many bytes.
        settle_s: how long `create` waits where the server ignores conditions; see `scarml.storage.s3_objects`. Less
            than ``deadline_s``.
    """

    connect_timeout_s: float = 5.0
    read_timeout_s: float = 20.0
    attempts: int = 3
    deadline_s: float = 60.0
    min_bytes_per_s: int = 1 << 20
    settle_s: float = 5.0

    def deadline_for(self, size_bytes: int) -> float:
        """Seconds that an operation on so many bytes may take."""
        return self.deadline_s + size_bytes / self.min_bytes_per_s


class ObjectPort(Protocol):
    """Operations on objects."""

    def put(self, key: str, data: bytes) -> None:
        """Store an object, in place of any that has the key."""
        ...

    def create(self, key: str, data: bytes) -> None:
        """Store an object unless there is one with the key; then FileExistsError."""
        ...

    def read(self, key: str) -> bytes:
        """A whole object. FileNotFoundError if there is none."""
        ...

    def read_into(self, key: str, start: int, out: memoryview) -> int:
        """Read from byte ``start`` on until ``out`` is full or the object ends; return how many bytes were read."""
        ...

    def size(self, key: str) -> int:
        """Bytes in an object. FileNotFoundError if there is none."""
        ...

    def find(self, prefix: str) -> list[str]:
        """All keys that start so, as they are now."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object. FileNotFoundError, or nothing, if there is none."""
        ...

    def sweep(self, prefix: str) -> int:
        """Remove what dead writers have left under a prefix; return how many leftovers."""
        ...


_mutex = threading.Lock()  # fsspec's memory looks for a name and takes it in two steps


class MemoryObjects:
    """fsspec's memory: one for the whole process."""

    def __init__(self) -> None:
        try:
            import fsspec
        except ModuleNotFoundError as e:
            raise missing_package("memory://", e) from None
        self._fs: Any = fsspec.filesystem("memory")

    def put(self, key: str, data: bytes) -> None:
        with _mutex:
            try:
                self._fs.pipe_file(f"/{key}", data)
            except FileExistsError:
                raise NotADirectoryError from None

    def create(self, key: str, data: bytes) -> None:
        with _mutex:
            self._fs.pipe_file(f"/{key}", data, mode="create")

    def read(self, key: str) -> bytes:
        return bytes(self._fs.cat_file(f"/{key}"))

    def read_into(self, key: str, start: int, out: memoryview) -> int:
        data = self._fs.cat_file(f"/{key}", start, start + len(out))
        out[: len(data)] = data
        return len(data)

    def size(self, key: str) -> int:
        info = self._fs.info(f"/{key}")
        if info["type"] != "file":
            raise FileNotFoundError
        return int(info["size"])

    def find(self, prefix: str) -> list[str]:
        folder = prefix.rpartition("/")[0]
        with _mutex:
            found = [str(name).removeprefix("/") for name in self._fs.find(f"/{folder}")]
        return [key for key in found if key.startswith(prefix)]

    def delete(self, key: str) -> None:
        with _mutex:
            self._fs.rm_file(f"/{key}")

    def sweep(self, prefix: str) -> int:
        return 0


def missing_package(what: str, e: ModuleNotFoundError) -> UsageError:
    """What to raise when an optional package is not installed."""
    return UsageError(f"{what} needs the package {e.name}, which is not installed: pip install 'scarml[s3]'")

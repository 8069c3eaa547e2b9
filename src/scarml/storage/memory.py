"""A store in memory: for tests, and for a laboratory that keeps nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from scarml.errors import AlreadyExistsError, DamagedError, NotFoundError
from scarml.storage.file_port import FileLock
from scarml.storage.store import Chunk, LockReach, check_name, folder_of_prefix

__all__ = ["MemoryStore"]


class MemoryStore:
    """Objects in a dict. Several threads may share one.

    Example:
        >>> store = MemoryStore()
        >>> store.put("a/b", [b"hel", b"lo"])
        >>> store.get("a/b")
        b'hello'
    """

    gap_bytes = 0
    lock_reach: LockReach = "process"

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._held: set[str] = set()
        self._mutex = threading.Lock()

    def put(self, name: str, chunks: Iterable[Chunk]) -> None:
        data = b"".join(chunks)
        with self._mutex:
            self._objects[check_name(name)] = data

    def create(self, name: str, chunks: Iterable[Chunk]) -> None:
        data = b"".join(chunks)
        with self._mutex:
            if check_name(name) in self._objects:
                raise AlreadyExistsError(f"cannot create {name}: the name is taken")
            self._objects[name] = data

    def get(self, name: str) -> bytes:
        try:
            return self._objects[check_name(name)]
        except KeyError:
            raise NotFoundError(f"cannot read {name}: there is no such object") from None

    def get_range(self, name: str, start: int, length: int) -> bytes:
        out = bytearray(length)
        self.read_into(name, start, memoryview(out))
        return bytes(out)

    def read_into(self, name: str, start: int, out: memoryview) -> None:
        data = memoryview(self.get(name))[start : start + len(out)]
        if len(data) != len(out):
            raise DamagedError(
                f"{name} ends after byte {start + len(data)}; expected at least {start + len(out)} bytes. "
                "It is torn or altered; an older copy must be used"
            )
        out[:] = data

    def size(self, name: str) -> int:
        return len(self.get(name))

    def list(self, prefix: str = "") -> list[str]:
        folder_of_prefix(prefix)
        with self._mutex:
            return sorted(n for n in self._objects if n.startswith(prefix))

    def delete(self, name: str) -> None:
        with self._mutex:
            self._objects.pop(check_name(name), None)

    def lock(self, name: str, note: str = "") -> FileLock | None:
        with self._mutex:
            if check_name(name) in self._held:
                return None
            self._held.add(name)
            self._objects[name] = note.encode()
        return _MemoryLock(self._held, name)

    def sweep(self) -> int:
        return 0


class _MemoryLock:
    def __init__(self, held: set[str], name: str) -> None:
        self._held = held
        self._name: str | None = name

    def release(self) -> None:
        name, self._name = self._name, None
        if name is not None:
            self._held.discard(name)

"""Stores behind fsspec: ``memory://`` and ``s3://``. One put an object, which they do whole or not at all.

Credentials and endpoint come from the usual AWS environment variables and configuration, or from ``storage_options``.
No message, log line or ``repr`` holds any of them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from scarml.errors import DamagedError, NotFoundError, UsageError
from scarml.storage.file_port import FileLock
from scarml.storage.object_errors import mapped
from scarml.storage.object_port import Limits, MemoryObjects, ObjectPort
from scarml.storage.s3_objects import S3Objects
from scarml.storage.store import Chunk, LockReach, check_name, folder_of_prefix
from scarml.storage.store_url import parse_url

__all__ = ["FsspecStore", "Limits"]


class FsspecStore:
    """Objects of one bucket below one prefix, or of the process's memory.

    `create` is exclusive where the server honours ``If-None-Match: *``; see `scarml.storage.s3_objects` for others.
    `lock` excludes other users in this process only, since no object vanishes with its maker; processes are told apart
    by terms and leases. An object is held in memory once while it is put.

    Args:
        url: ``memory://name`` or ``s3://bucket/prefix``.
        storage_options: of ``s3fs.S3FileSystem``.
        limits: of time and attempts; see `Limits`.

    Raises:
        UsageError: the URL names no such store, has credentials in it, or a package is missing.

    Example:
        >>> store = FsspecStore("memory://example")
        >>> store.put("a/b", [b"hello"])
        >>> FsspecStore("memory://example").get("a/b")
        b'hello'
    """

    lock_reach: LockReach = "process"

    def __init__(
        self, url: str, storage_options: Mapping[str, Any] | None = None, limits: Limits | None = None
    ) -> None:
        where = parse_url(url)
        if where.scheme == "file":
            raise UsageError(f"{where} is a folder; expected memory:// or s3://")
        self.url = str(where)
        self._prefix = f"{where.path}/" if where.path else ""
        options = storage_options or {}
        self._objects: ObjectPort
        if where.scheme == "memory":
            self._objects = MemoryObjects()
        else:
            self._objects = S3Objects(where.bucket, self._prefix, options, limits or Limits())
        self.gap_bytes = 0 if where.scheme == "memory" else 1 << 20  # a request costs as much as a megabyte or more
        self._space = (self.url, str(options.get("endpoint_url", "")))

    def __repr__(self) -> str:
        return f"FsspecStore({self.url!r})"

    def __str__(self) -> str:
        return self.url

    def put(self, name: str, chunks: Iterable[Chunk]) -> None:
        key = self._key(name)
        data = b"".join(chunks)
        with mapped("write", name, self.url):
            self._objects.put(key, data)

    def create(self, name: str, chunks: Iterable[Chunk]) -> None:
        key = self._key(name)
        data = b"".join(chunks)
        with mapped("create", name, self.url):
            self._objects.create(key, data)

    def get(self, name: str) -> bytes:
        key = self._key(name)
        with mapped("read", name, self.url):
            return self._objects.read(key)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        out = bytearray(length)
        self.read_into(name, start, memoryview(out))
        return bytes(out)

    def read_into(self, name: str, start: int, out: memoryview) -> None:
        key = self._key(name)
        out = out.cast("B")
        with mapped("read", name, self.url):
            n = self._objects.read_into(key, start, out)
        if n != len(out):
            raise DamagedError(
                f"{name} in {self.url} ends before byte {start + len(out)}. "
                "It is torn or altered; an older copy must be used"
            )

    def size(self, name: str) -> int:
        key = self._key(name)
        with mapped("read", name, self.url):
            return self._objects.size(key)

    def list(self, prefix: str = "") -> list[str]:
        folder_of_prefix(prefix)
        with mapped("list", f"{prefix}*", self.url):
            keys = self._objects.find(self._prefix + prefix)
        return sorted(name for name in (key[len(self._prefix) :] for key in keys) if _is_name(name))

    def delete(self, name: str) -> None:
        key = self._key(name)
        with suppress(NotFoundError), mapped("delete", name, self.url):
            self._objects.delete(key)

    def lock(self, name: str, note: str = "") -> FileLock | None:
        lock = _ProcessLock.take((*self._space, check_name(name)))
        if lock is None:
            return None
        try:
            self.put(name, [note.encode()])
        except BaseException:
            lock.release()
            raise
        return lock

    def sweep(self) -> int:
        with mapped("sweep", "", self.url):
            return self._objects.sweep(self._prefix)

    def _key(self, name: str) -> str:
        return self._prefix + check_name(name)


_held: set[tuple[str, ...]] = set()
_mutex = threading.Lock()


class _ProcessLock:
    """A lock among the threads and stores of this process."""

    def __init__(self, key: tuple[str, ...]) -> None:
        self._key: tuple[str, ...] | None = key

    @classmethod
    def take(cls, key: tuple[str, ...]) -> _ProcessLock | None:
        with _mutex:
            if key in _held:
                return None
            _held.add(key)
        return cls(key)

    def release(self) -> None:
        with _mutex:
            key, self._key = self._key, None
            if key is not None:
                _held.discard(key)


def _is_name(name: str) -> bool:
    try:
        check_name(name)
    except UsageError:
        return False  # the probe of `s3_objects`, and what other programs leave
    return True

"""A store in a folder: a local disk, or a mounted NFS or CephFS.

An object is first written whole to a file in ``.tmp`` and synced; then it gets its name in one atomic step, and the
folder is synced. So a name never stands for less than the whole object, whatever dies when.
"""

from __future__ import annotations

import itertools
import logging
import posixpath
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from scarml.errors import AlreadyExistsError, DamagedError, NotFoundError, StoreError, UsageError
from scarml.storage.file_port import Entry, FileLock, FilePort, OpenFile, OsFiles
from scarml.storage.store import Chunk, LockReach, check_name, folder_of_prefix

__all__ = ["LocalStore"]

_log = logging.getLogger(__name__)

_TEMP = ".tmp"
_MAX_DEPTH = 32
_START_SYNC_BYTES = 1 << 20


class LocalStore:
    """Objects as files below a folder, which is made when the first object is stored.

    Args:
        root: the folder.
        files: the file port; the operating system's by default.
        token: makes the names of temporary files unique among all writers; random by default.

    Example:
        >>> store = LocalStore("run")              # doctest: +SKIP
        >>> store.put("a/b", [b"hello"])           # doctest: +SKIP
        >>> store.get("a/b")                       # doctest: +SKIP
        b'hello'
    """

    gap_bytes = 128 << 10
    lock_reach: LockReach = "machine"

    def __init__(self, root: str, files: FilePort | None = None, token: str | None = None) -> None:
        self.root = root.rstrip("/") or "/."
        self._files: FilePort = files if files is not None else OsFiles()
        self._token = token or secrets.token_hex(6)
        self._counter = itertools.count()
        self._durable_folders: set[str] = set()

    def __repr__(self) -> str:
        return f"LocalStore({self.root!r})"

    def __str__(self) -> str:
        return self.root

    def put(self, name: str, chunks: Iterable[Chunk]) -> None:
        path = self._path(name)
        with self._synced_temporary(path, chunks) as temporary:
            self._files.rename(temporary, path)
            self._files.sync_folder(posixpath.dirname(path))

    def create(self, name: str, chunks: Iterable[Chunk]) -> None:
        path = self._path(name)
        with self._synced_temporary(path, chunks) as temporary:
            folder = posixpath.dirname(path)
            try:
                self._files.link(temporary, path)  # not rename, which would replace; and atomic on NFS too
            except AlreadyExistsError:
                self._files.sync_folder(folder)  # who made it may have been killed before this, and it counts as there
                raise
            self._files.sync_folder(folder)
            self._unlink_quietly(temporary)

    def get(self, name: str) -> bytes:
        return self.get_range(name, 0, self.size(name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        out = bytearray(length)
        self.read_into(name, start, memoryview(out))
        return bytes(out)

    def read_into(self, name: str, start: int, out: memoryview) -> None:
        n = self._files.read_into(self._path(name), start, out)
        if n != len(out):
            raise DamagedError(
                f"{name} in {self.root} ends after byte {start + n}; expected at least {start + len(out)} bytes. "
                "It is torn or altered; an older copy must be used"
            )

    def size(self, name: str) -> int:
        return self._files.size(self._path(name))

    def list(self, prefix: str = "") -> list[str]:
        return sorted(n for n in self._walk(folder_of_prefix(prefix), depth=0) if n.startswith(prefix))

    def delete(self, name: str) -> None:
        path = self._path(name)
        with suppress(NotFoundError):
            self._files.unlink(path)
        with suppress(NotFoundError):  # also after one that found nothing: a killed process may not have come to it
            self._files.sync_folder(posixpath.dirname(path))

    def lock(self, name: str, note: str = "") -> FileLock | None:
        path = self._path(name)
        self._make_durable_folder(posixpath.dirname(path))
        return self._files.lock(path, note)

    def sweep(self) -> int:
        swept = 0
        for entry in self._entries(f"{self.root}/{_TEMP}"):
            path = f"{self.root}/{_TEMP}/{entry.name}"
            lock = self._files.lock(path, "")
            if lock is None:
                continue  # its writer lives
            try:
                self._files.unlink(path)
                swept += 1
            except NotFoundError:
                continue
            finally:
                lock.release()
        return swept

    def _path(self, name: str) -> str:
        return f"{self.root}/{check_name(name)}"

    @contextmanager
    def _synced_temporary(self, path: str, chunks: Iterable[Chunk]) -> Iterator[str]:
        """A synced file with ``chunks`` in it. If the body fails, nothing of it stays.

        The file stays open, and so locked against `sweep`, until the body is done.
        """
        self._make_durable_folder(posixpath.dirname(path))
        self._make_folder(f"{self.root}/{_TEMP}")
        temporary = f"{self.root}/{_TEMP}/{self._token}-{next(self._counter):08d}"
        file = self._files.create(temporary)
        try:
            for chunk in chunks:
                file.write(chunk)
                if len(chunk) >= _START_SYNC_BYTES:
                    file.start_sync()  # the disk works while the next chunk is being made
            file.sync()
            yield temporary
        except BaseException:
            self._close_quietly(file)
            self._unlink_quietly(temporary)
            raise
        self._close_quietly(file)  # everything is synced: what a close can still report no longer matters

    def _close_quietly(self, file: OpenFile) -> None:
        try:
            file.close()
        except StoreError as e:
            _log.debug("closing a temporary file failed: %s", e)

    def _unlink_quietly(self, path: str) -> None:
        try:
            self._files.unlink(path)
        except NotFoundError:
            return
        except StoreError as e:
            _log.debug("a temporary file stays until the next sweep: %s", e)

    def _make_durable_folder(self, path: str) -> None:
        """Make a folder and those above it, and sync their names into their parents.

        A folder that is there already may be the unsynced one of a process that died, so each store syncs it once.
        """
        if path in self._durable_folders:
            return
        parent = posixpath.dirname(path) or "."
        is_below_root = path.startswith(self.root + "/")
        if is_below_root:
            self._make_durable_folder(parent)
        try:
            is_new = self._make_folder(path)
        except NotFoundError:
            self._make_durable_folder(parent)
            is_new = self._make_folder(path)
        try:
            self._files.sync_folder(parent)
        except StoreError:
            if is_new or is_below_root:
                raise  # only of a folder that was there before us may the parent be closed to us
        self._durable_folders.add(path)

    def _make_folder(self, path: str) -> bool:
        """Make a folder unless it is there; whether it was made."""
        try:
            self._files.make_folder(path)
        except AlreadyExistsError:
            return False
        return True

    def _entries(self, folder: str) -> Iterable[Entry]:
        try:
            return self._files.list_folder(folder)
        except NotFoundError:
            return []

    def _walk(self, folder: str, depth: int) -> Iterator[str]:
        """Names of all objects below a folder, given relative to the root; ``""`` is the root."""
        if depth > _MAX_DEPTH:
            raise StoreError(
                f"folders below {self.root} are nested more than {_MAX_DEPTH} deep; is there a link in a loop?"
            )
        for entry in self._entries(f"{self.root}/{folder}" if folder else self.root):
            name = f"{folder}/{entry.name}" if folder else entry.name
            try:
                check_name(name)
            except UsageError:
                continue  # .tmp, and what other programs leave: .nfs…, .DS_Store
            if entry.is_folder:
                yield from self._walk(name, depth + 1)
            else:
                yield name

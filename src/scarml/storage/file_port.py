"""The file port: the few operations on files that a local store is built from, and the real one, `OsFiles`.

Everything that a store needs of a file system passes through here, so that `SimulatedDisk` can stand in for it and lose
whatever a real disk may lose. Paths are strings with ``/`` between folders. Errors of the operating system become
`StoreError`s here and nowhere else.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from scarml.errors import AlreadyExistsError, NotFoundError, StoreError

__all__ = ["Entry", "FileLock", "FilePort", "OpenFile", "OsFiles", "store_error"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder."""

    name: str
    is_folder: bool


class OpenFile(Protocol):
    """A new file, open for writing. While it is open, `FilePort.lock` on its path answers None."""

    def write(self, data: bytes | memoryview) -> None:
        """Append all of ``data``."""
        ...

    def start_sync(self) -> None:
        """Let the disk begin with what was written so far. A hint, no promise."""
        ...

    def sync(self) -> None:
        """Return when everything written so far would outlive a power loss (the file's name need not)."""
        ...

    def close(self) -> None:
        """Let go of the file. Closing twice does nothing."""
        ...


class FileLock(Protocol):
    """An exclusive lock; it vanishes by itself when its process ends."""

    def release(self) -> None:
        """Let go. Releasing twice does nothing."""
        ...


class FilePort(Protocol):
    """Operations on files. Every method raises `StoreError`, with the cause in words, if it cannot be done."""

    def create(self, path: str) -> OpenFile:
        """Make a new file and open it for writing. AlreadyExistsError if the name is taken."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, atomically, in place of any file that has it."""
        ...

    def link(self, old: str, new: str) -> None:
        """Give a file a second name, atomically. AlreadyExistsError if the name is taken."""
        ...

    def unlink(self, path: str) -> None:
        """Take a name away. NotFoundError if there is none."""
        ...

    def make_folder(self, path: str) -> None:
        """Make one folder; its parent must be there. AlreadyExistsError if the name is taken."""
        ...

    def sync_folder(self, path: str) -> None:
        """Return when the names in this folder, as they are now, would outlive a power loss."""
        ...

    def list_folder(self, path: str) -> list[Entry]:
        """The names in a folder, in no special order. NotFoundError if there is no such folder."""
        ...

    def size(self, path: str) -> int:
        """Bytes in a file. NotFoundError if there is none."""
        ...

    def read_into(self, path: str, start: int, out: memoryview) -> int:
        """Read from byte ``start`` on until ``out`` is full or the file ends; return how many bytes were read."""
        ...

    def lock(self, path: str, note: str) -> FileLock | None:
        """Lock a file, which is made if it is missing, and write ``note`` into it; None if another holds the lock."""
        ...


_CAUSES = {
    errno.ENOSPC: "the disk is full; make room, nothing that was stored before is lost",
    errno.EDQUOT: "the disk quota is used up; make room, nothing that was stored before is lost",
    errno.EACCES: "permission denied; check the owner and the mode of the folder",
    errno.EPERM: "not permitted; check the owner and the mode of the folder, and that the file system allows this",
    errno.EROFS: "the file system is mounted read-only; mount it read-write or choose another folder",
    errno.EIO: "the disk reported an input/output error; check the disk",
    errno.ENOTDIR: "a part of the path is a file, expected a folder; choose another name",
    errno.EISDIR: "it is a folder, expected a file; choose another name",
    errno.ENAMETOOLONG: "the name is too long for this file system; choose a shorter folder",
    errno.EMFILE: "this process has too many open files; raise the limit (ulimit -n)",
    errno.ENFILE: "the system has too many open files",
    errno.ESTALE: "the file server no longer knows the file; check the mount",
    errno.ETIMEDOUT: "the file server did not answer in time; check the mount and try again",
    errno.EHOSTDOWN: "the file server is down; check the mount and try again",
    errno.ENOTCONN: "the file system is not connected; check the mount",
    errno.EOPNOTSUPP: "the file system cannot do this; choose a folder on another one",
    errno.ENOSYS: "the file system cannot do this; choose a folder on another one",
}


_MOST_SWEPT = 10


def store_error(action: str, path: str, number: int | None) -> StoreError:
    """The error for an errno: what was tried, where, why it failed, what to do."""
    if number == errno.ENOENT:
        return NotFoundError(f"cannot {action} {path}: there is no such file or folder")
    if number == errno.EEXIST:
        return AlreadyExistsError(f"cannot {action} {path}: the name is taken")
    cause = _CAUSES.get(number or 0) or (os.strerror(number) if number else "unknown cause")
    return StoreError(f"cannot {action} {path}: {cause}")


@contextmanager
def _mapped(action: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise store_error(action, path, e.errno) from e


class OsFiles:
    """The operating system's files. New files and folders get the usual permissions (umask)."""

    def create(self, path: str) -> OpenFile:
        for _ in range(_MOST_SWEPT):
            with _mapped("create", path):
                descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError:  # on a file system without locks nobody can take the file for a dead writer's either
                return _OsOpenFile(path, descriptor)
            if os.fstat(descriptor).st_nlink:
                return _OsOpenFile(path, descriptor)
            os.close(descriptor)  # somebody took it for a dead writer's before it was locked, and has removed it
        raise StoreError(f"cannot create {path}: another process removed it {_MOST_SWEPT} times; try again")

    def rename(self, old: str, new: str) -> None:
        with _mapped("write", new):
            os.replace(old, new)

    def link(self, old: str, new: str) -> None:
        try:
            os.link(old, new)
        except FileExistsError as e:
            # NFS: the answer to our own, successful, first try may have been lost, and the repeat finds the name taken.
            with _mapped("create", new):
                if os.path.samefile(old, new):
                    return
            raise store_error("create", new, e.errno) from e
        except OSError as e:
            raise store_error("create", new, e.errno) from e

    def unlink(self, path: str) -> None:
        with _mapped("delete", path):
            os.unlink(path)

    def make_folder(self, path: str) -> None:
        with _mapped("make the folder", path):
            os.mkdir(path)

    def sync_folder(self, path: str) -> None:
        with _mapped("sync the folder", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _sync(descriptor)
            finally:
                os.close(descriptor)

    def list_folder(self, path: str) -> list[Entry]:
        with _mapped("list", path), os.scandir(path) as entries:
            return [Entry(e.name, e.is_dir()) for e in entries]

    def size(self, path: str) -> int:
        with _mapped("read", path):
            return os.stat(path).st_size

    def read_into(self, path: str, start: int, out: memoryview) -> int:
        done = 0
        with _mapped("read", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                while done < len(out):
                    n = os.preadv(descriptor, [out[done:]], start + done)
                    if n == 0:
                        break
                    done += n
            finally:
                os.close(descriptor)
        return done

    def lock(self, path: str, note: str) -> FileLock | None:
        with _mapped("lock", path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if note:
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, note.encode(), 0)
            except BlockingIOError:
                os.close(descriptor)
                return None
            except OSError:
                os.close(descriptor)
                raise
        return _OsLock(descriptor)


class _OsOpenFile:
    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def write(self, data: bytes | memoryview) -> None:
        rest = memoryview(data).cast("B")
        with _mapped("write", self._path):
            while len(rest):
                rest = rest[os.write(self._descriptor, rest) :]

    def start_sync(self) -> None:
        # On Linux this begins to write dirty pages out, does not wait for them, and keeps them in memory.
        if sys.platform == "linux":
            with suppress(OSError):
                os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        with _mapped("sync", self._path):
            _sync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with _mapped("close", self._path):
                os.close(descriptor)


class _OsLock:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _sync(descriptor: int) -> None:
    if sys.platform == "darwin":  # there fsync leaves the data in the drive's own cache
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)

"""A file port in memory that loses, at a power loss, whatever a real disk may lose; every choice comes from one seed.

What POSIX promises, and no more. Contents of a file outlive a power loss once the file is synced; a name does (made,
changed or taken away) once its folder is synced, a rename between folders once the new one is. Everything else may be
lost, kept, or, with contents, kept in part; each write and each name by itself. Real file systems keep more. What is
correct here is correct there.

A `SimulatedDisk` is what one process sees. `process()` gives another process's view of the same disk; `kill()` ends a
process, which loses nothing that was written; `lose_power()` (or `crash()`) ends them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from scarml.errors import NotFoundError, StoreError
from scarml.storage.file_port import Entry, FileLock, OpenFile
from scarml.storage.simulated_volume import Folder, Inode, SimulatedVolume

__all__ = ["Operation", "SimulatedCrash", "SimulatedDisk"]


class SimulatedCrash(BaseException):
    """The process died here. No `Exception`: nothing that handles errors may handle this."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One entry of the log: what was done to which path."""

    name: str
    path: str


class SimulatedDisk:
    """A file port, see the module.

    Args:
        rng: decides what a power loss keeps, and how far an operation gets in which a process dies.
        volume: the disk, if it is shared with another process; use `process`.
        capacity_bytes: a full disk refuses writes beyond it; None: there is always room.

    Example:
        >>> disk = SimulatedDisk(np.random.default_rng(0))
        >>> disk.create("a").write(b"never synced")
        >>> disk.crash()
        >>> disk.list_folder(".") in ([], [Entry("a", False)])
        True
    """

    def __init__(
        self,
        rng: np.random.Generator,
        volume: SimulatedVolume | None = None,
        capacity_bytes: int | None = None,
    ) -> None:
        self._rng = rng
        self.volume = volume if volume is not None else SimulatedVolume()
        if capacity_bytes is not None:
            self.volume.capacity_bytes = capacity_bytes
        self.log: list[Operation] = []
        """Every operation of this process so far, failed ones too."""
        self.fired: Counter[str] = Counter()
        """How often each kind of fault struck: ``crash``, ``failure``, ``delay``, ``full``."""
        self._life = 0
        self._power = self.volume.power_losses
        self._is_dead = False
        self._crash_in: int | None = None
        self._failures_left = 0
        self._failure_cause = ""
        self._fails_always = False
        self._delay_s = 0.0
        self._on_delay: Callable[[float], None] | None = None

    def process(self) -> SimulatedDisk:
        """Another process's view of this disk, with faults of its own."""
        return SimulatedDisk(self._rng, self.volume)

    # ----------------------------------------------------------------------------------------------------------- faults
    def crash(self) -> None:
        """Power loss: all processes die, and what was not synced is lost, kept or torn, as the seed has it."""
        self.volume.lose_power(self._rng)
        self.kill()

    def kill(self) -> None:
        """This process dies, and may be started again: open files and locks are gone, what it wrote stays."""
        self._life += 1
        self._power = self.volume.power_losses
        self._is_dead = False
        self._crash_in = None
        self.volume.release_locks(self)

    def crash_at_op(self, n: int) -> None:
        """Die in the n-th operation from now (1: the next), partway; every further one dies too, until `kill`."""
        self._crash_in = n

    def fail_next(self, n: int, cause: str) -> None:
        """The next n operations fail with a StoreError."""
        self._failures_left, self._failure_cause = n, cause

    def fail_always(self, cause: str) -> None:
        """All operations fail with a StoreError, until `heal`."""
        self._fails_always, self._failure_cause = True, cause

    def heal(self) -> None:
        """No more failures and delays; the disk has room again."""
        self._failures_left, self._fails_always, self._on_delay = 0, False, None
        self.volume.capacity_bytes = None

    def slow_down(self, delay_s: float, on_delay: Callable[[float], None]) -> None:
        """Every operation takes ``delay_s`` of virtual time: it is told to ``on_delay``; nothing sleeps."""
        self._delay_s, self._on_delay = delay_s, on_delay

    # -------------------------------------------------------------------------------------------------------- file port
    def create(self, path: str) -> OpenFile:
        self._begin("create", path, lambda: self._create(path))
        return _SimulatedFile(self, path, self._create(path))

    def rename(self, old: str, new: str) -> None:
        self._do("rename", new, lambda: self.volume.rename(old, new))

    def link(self, old: str, new: str) -> None:
        self._do("link", new, lambda: self.volume.link(self.volume.file(old), new))

    def unlink(self, path: str) -> None:
        self._do("unlink", path, lambda: self.volume.unlink(path))

    def make_folder(self, path: str) -> None:
        self._do("make_folder", path, lambda: self.volume.link(Folder(), path))

    def sync_folder(self, path: str) -> None:
        self._do("sync_folder", path, lambda: self.volume.folder(path).sync())

    def list_folder(self, path: str) -> list[Entry]:
        self._begin("list_folder", path)
        entries = self.volume.folder(path).entries
        return [Entry(name, isinstance(node, Folder)) for name, node in entries.items()]

    def size(self, path: str) -> int:
        self._begin("size", path)
        return len(self.volume.file(path).data)

    def read_into(self, path: str, start: int, out: memoryview) -> int:
        self._begin("read_into", path)
        data = memoryview(self.volume.file(path).data)[start : start + len(out)]
        out[: len(data)] = data
        return len(data)

    def lock(self, path: str, note: str) -> FileLock | None:
        self._begin("lock", path)
        try:
            inode = self.volume.file(path)
        except NotFoundError:
            inode = Inode()
            self.volume.link(inode, path)
        if not self.volume.take_lock(inode, self):
            return None
        if note:
            inode.replace(note.encode())
        return _SimulatedLock(self, inode)

    # --------------------------------------------------------------------------------------------------------- the rest
    def _create(self, path: str) -> Inode:
        inode = Inode()
        self.volume.link(inode, path)
        self.volume.take_lock(inode, self)
        return inode

    def _do(self, name: str, path: str, action: Callable[[], None]) -> None:
        self._begin(name, path, action)
        action()

    def _begin(self, name: str, path: str, partial: Callable[[], object] = lambda: None) -> None:
        """Count an operation, and let it meet its fault. A process that dies in it may have done ``partial`` of it."""
        self.check_alive()
        self.log.append(Operation(name, path))
        if self._on_delay is not None:
            self.fired["delay"] += 1
            self._on_delay(self._delay_s)
        if self._crash_in is not None:
            self._crash_in -= 1
            if self._crash_in == 0:
                self._die(partial)
        if self._fails_always or self._failures_left:
            self._failures_left = max(self._failures_left - 1, 0)
            self.fired["failure"] += 1
            raise StoreError(f"cannot {name} {path}: {self._failure_cause}")

    def _die(self, partial: Callable[[], object]) -> None:
        self.fired["crash"] += 1
        self._is_dead = True
        if self._rng.random() < 0.5:
            with suppress(StoreError):
                partial()
        raise SimulatedCrash(f"process died in operation {len(self.log)}, {self.log[-1]}")

    def check_alive(self) -> None:
        """Raise SimulatedCrash in a process that is dead."""
        if self._is_dead or self._power != self.volume.power_losses:
            raise SimulatedCrash("this process is dead")

    @property
    def life(self) -> tuple[int, int]:
        """Files opened in another life are closed."""
        return self._life, self._power

    def write(self, path: str, inode: Inode, data: bytes) -> None:
        """Append to a file; used by open files."""

        def a_prefix() -> None:
            inode.append(data[: int(self._rng.integers(0, len(data) + 1))])

        self._begin("write", path, a_prefix)
        if not self.volume.has_room(len(data)):
            self.fired["full"] += 1
            a_prefix()
            raise StoreError(
                f"cannot write {path}: the disk is full; make room, nothing that was stored before is lost"
            )
        inode.append(data)

    def sync(self, path: str, inode: Inode) -> None:
        """Sync a file; used by open files."""
        self._do("sync", path, inode.sync)

    def unlock(self, inode: Inode) -> None:
        """Let a lock go, if this process has it; used by open files and locks."""
        self.volume.release_lock(inode, self)


class _SimulatedFile:
    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode) -> None:
        self._disk, self._path, self._inode = disk, path, inode
        self._life = disk.life
        self._is_open = True

    def write(self, data: bytes | memoryview) -> None:
        self._check()
        self._disk.write(self._path, self._inode, bytes(data))

    def start_sync(self) -> None:
        self._check()

    def sync(self) -> None:
        self._check()
        self._disk.sync(self._path, self._inode)

    def close(self) -> None:
        if self._is_open and self._life == self._disk.life:
            self._disk.unlock(self._inode)
        self._is_open = False

    def _check(self) -> None:
        if self._life != self._disk.life:
            raise SimulatedCrash("this file belongs to a process that is dead")
        if not self._is_open:
            raise StoreError(f"cannot write {self._path}: the file is closed")


class _SimulatedLock:
    def __init__(self, disk: SimulatedDisk, inode: Inode) -> None:
        self._disk, self._inode, self._life = disk, inode, disk.life

    def release(self) -> None:
        if self._life == self._disk.life:
            self._disk.unlock(self._inode)

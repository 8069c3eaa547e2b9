"""What is on a simulated disk: inodes and folders, each with what is synced and what is not yet."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from scarml.errors import AlreadyExistsError, NotFoundError, StoreError

__all__ = ["Folder", "Inode", "SimulatedVolume"]


class Inode:
    """A file's contents: as written, as synced, and the writes between them."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._synced = b""
        self._pending: list[tuple[int, bytes]] = []

    def append(self, data: bytes) -> None:
        """Write at the end."""
        self._pending.append((len(self.data), data))
        self.data += data

    def replace(self, data: bytes) -> None:
        """Write from the start, in place of all there is."""
        self.data[:] = b""
        self.append(data)

    def sync(self) -> None:
        """What is written would now outlive a power loss."""
        self._synced, self._pending = bytes(self.data), []

    def lose_power(self, rng: np.random.Generator) -> None:
        """Unsynced writes are lost, kept, kept up to a point, or each by itself; a lost one may leave zeros."""
        fate = rng.choice(["none", "all", "prefix", "each"]) if self._pending else "none"
        if fate == "all":
            kept = self._pending
        elif fate == "prefix":
            n = int(rng.integers(0, len(self._pending)))
            kept = [*self._pending[:n], _piece(self._pending[n], rng)]
        elif fate == "each":
            kept = [_piece(w, rng) if rng.random() < 0.5 else w for w in self._pending if rng.random() < 0.7]
            kept += [(len(self.data), b"")] if rng.random() < 0.5 else []  # its length was stored, its bytes were not
        else:
            kept = []
        data = bytearray(self._synced)
        for start, piece in kept:
            data.extend(bytes(max(start + len(piece) - len(data), 0)))
            data[start : start + len(piece)] = piece
        self.data = data
        self.sync()


def _piece(write: tuple[int, bytes], rng: np.random.Generator) -> tuple[int, bytes]:
    start, data = write
    return start, data[: int(rng.integers(0, len(data) + 1))]


@dataclass(frozen=True, slots=True, eq=False)
class _NameChange:
    """An unsynced change of names, kept or lost as a whole: what ``node`` is called, and what makes it so."""

    name: str
    node: Inode | Folder
    apply: Callable[[], None]


class Folder:
    """A folder's names: as they are, as synced, and the changes between them."""

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Folder] = {}
        self.synced: dict[str, Inode | Folder] = {}
        self._pending: list[_NameChange] = []

    def change(self, name: str, node: Inode | Folder, apply: Callable[[], None]) -> None:
        """Note an unsynced change, which ``apply`` makes to the synced names if it is kept."""
        self._pending.append(_NameChange(name, node, apply))

    def forget(self, name: str, node: Inode | Folder) -> None:
        """The name was moved away, durably."""
        self._pending = [c for c in self._pending if (c.name, c.node) != (name, node)]
        if self.synced.get(name) is node:
            del self.synced[name]

    def sync(self) -> None:
        """The names would now outlive a power loss."""
        while self._pending:
            self._pending.pop(0).apply()

    def lose_power(self, rng: np.random.Generator) -> None:
        """Each unsynced change is lost or kept, by itself. Afterwards `entries` still has to be set."""
        fate = rng.choice(["none", "all", "each"])
        pending, self._pending = self._pending, []
        for change in pending:
            if fate == "all" or (fate == "each" and rng.random() < 0.5):
                change.apply()


@dataclass(slots=True, eq=False)
class SimulatedVolume:
    """A disk that several processes may share. `SimulatedDisk` is what a process sees of it."""

    capacity_bytes: int | None = None
    power_losses: int = 0
    _root: Folder = field(default_factory=Folder)
    _locks: dict[int, tuple[Inode, object]] = field(default_factory=dict)

    def node(self, path: str) -> Inode | Folder:
        """What is at a path. NotFoundError if nothing is."""
        node: Inode | Folder = self._root
        for part in _parts(path):
            if not isinstance(node, Folder):
                raise StoreError(f"cannot find {path}: a part of the path is a file, expected a folder")
            if part not in node.entries:
                raise NotFoundError(f"cannot find {path}: there is no such file or folder")
            node = node.entries[part]
        return node

    def file(self, path: str) -> Inode:
        """The file at a path."""
        node = self.node(path)
        if isinstance(node, Folder):
            raise StoreError(f"cannot read {path}: it is a folder, expected a file")
        return node

    def folder(self, path: str) -> Folder:
        """The folder at a path."""
        node = self.node(path)
        if isinstance(node, Inode):
            raise StoreError(f"cannot list {path}: it is a file, expected a folder")
        return node

    def link(self, node: Inode | Folder, path: str) -> None:
        """Give a name to a file or a new folder. AlreadyExistsError if it is taken."""
        folder, name = self._place(path)
        if not name or name in folder.entries:
            raise AlreadyExistsError(f"cannot create {path}: the name is taken")
        folder.entries[name] = node
        folder.change(name, node, lambda: folder.synced.__setitem__(name, node))

    def unlink(self, path: str) -> None:
        """Take a file's name away."""
        inode = self.file(path)
        folder, name = self._place(path)
        del folder.entries[name]
        folder.change(name, inode, lambda: _drop(folder, name))

    def rename(self, old: str, new: str) -> None:
        """Move a file's name; the change belongs to the new folder, and is one."""
        inode = self.file(old)
        source, source_name = self._place(old)
        target, target_name = self._place(new)
        if isinstance(target.entries.get(target_name), Folder):
            raise StoreError(f"cannot write {new}: it is a folder, expected a file")
        del source.entries[source_name]
        target.entries[target_name] = inode

        def apply() -> None:
            source.forget(source_name, inode)
            target.synced[target_name] = inode

        target.change(target_name, inode, apply)

    def take_lock(self, inode: Inode, owner: object) -> bool:
        """Take the file's lock; False if anybody has it, ``owner`` too."""
        if id(inode) in self._locks:
            return False
        self._locks[id(inode)] = (inode, owner)
        return True

    def release_lock(self, inode: Inode, owner: object) -> None:
        """Let a lock go, if ``owner`` has it."""
        if self._locks.get(id(inode), (None, None))[1] is owner:
            del self._locks[id(inode)]

    def release_locks(self, owner: object) -> None:
        """Let all locks of a process go."""
        self._locks = {key: held for key, held in self._locks.items() if held[1] is not owner}

    def has_room(self, n_bytes: int) -> bool:
        """Whether so many bytes more fit on the disk."""
        return self.capacity_bytes is None or self.used_bytes() + n_bytes <= self.capacity_bytes

    def used_bytes(self) -> int:
        """Bytes of all files that have a name."""
        return sum(len(node.data) for node in self._nodes() if isinstance(node, Inode))

    def lose_power(self, rng: np.random.Generator) -> None:
        """All processes die; what is not synced is lost, kept, or kept in part."""
        self.power_losses += 1
        self._locks.clear()
        nodes = self._nodes()
        for node in nodes:
            node.lose_power(rng)
        for node in nodes:
            if isinstance(node, Folder):
                node.entries = dict(node.synced)

    def _nodes(self) -> list[Inode | Folder]:
        """Every file and folder that has a name, or had one that a power loss may bring back."""
        found: dict[int, Inode | Folder] = {id(self._root): self._root}
        todo: list[Inode | Folder] = [self._root]
        while todo:
            node = todo.pop()
            if isinstance(node, Folder):
                new = {id(n): n for n in (*node.entries.values(), *node.synced.values()) if id(n) not in found}
                found |= new
                todo += new.values()
        return list(found.values())

    def _place(self, path: str) -> tuple[Folder, str]:
        parts = _parts(path)
        return self.folder("/".join(parts[:-1])), parts[-1] if parts else ""


def _parts(path: str) -> list[str]:
    return [p for p in posixpath.normpath("/" + path).split("/") if p]


def _drop(folder: Folder, name: str) -> None:
    folder.synced.pop(name, None)

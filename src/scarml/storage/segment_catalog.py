"""What is in which segment: headers and indexes, kept since segments never change; and which copies are the newest.

A plain segment has one version for all its blocks; in a compacted one each block has the version it was saved under.
The newest copy of a block has the highest (term, commit, save); of equal ones, the compacted one is it, so that what
was copied out of a segment is dead in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.version_index import Version, Versions
from scarml.core.block import Ids
from scarml.errors import DamagedError, NotFoundError, StoreError
from scarml.storage.segment import SegmentId
from scarml.storage.segment_header import SaveKey, SegmentHeader, StoredTable, read_header
from scarml.storage.segment_rows import RowIndex, read_stored_index
from scarml.storage.store import Store

__all__ = ["Newest", "SegmentCatalog", "UnreadableError", "groups", "guarding"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_MAX_RETRIES = 1000  # each retry leaves out a segment, or follows a change of the listing

ReadIndex = Callable[[SegmentHeader], RowIndex]


@dataclass(frozen=True, slots=True, eq=False)
class Newest:
    """Per block: which of the ``segments`` has its newest copy (−1: none), and at which row. Both of shape (n,)."""

    segments: tuple[SegmentId, ...]
    segment: NDArray[np.int32]
    row: Ids


class UnreadableError(Exception):
    """A segment turned out to be gone or damaged while it was being read."""

    def __init__(self, segment: SegmentId, cause: NotFoundError | DamagedError) -> None:
        super().__init__(str(cause))
        self.segment = segment
        self.cause = cause


class SegmentCatalog:
    """The segments that count, and what is in them.

    Args:
        store: where they are.
        list_visible: names the segments that count, from the oldest to the newest. Called at the first look, at
            `refresh`, and when a segment is found to be gone.
    """

    def __init__(self, store: Store, list_visible: Callable[[], Sequence[SegmentId]]) -> None:
        self.store = store
        self._list_visible = list_visible
        self._visible: tuple[SegmentId, ...] | None = None
        self._headers: dict[SegmentId, SegmentHeader] = {}
        self._indexes: dict[tuple[SegmentId, str], RowIndex] = {}
        self.unreadable: dict[SegmentId, str] = {}
        """What could not be read, and why."""

    def refresh(self) -> None:
        """Look at the store again: for new segments, and for ones that could not be read before."""
        self.unreadable.clear()
        self.relist()

    def relist(self) -> None:
        """Look at the store again for new segments."""
        self._visible = tuple(self._list_visible())
        kept = set(self._visible)
        self._headers = {s: h for s, h in self._headers.items() if s in kept}
        self._indexes = {key: index for key, index in self._indexes.items() if key[0] in kept}

    def retrying(self, attempt: Callable[[], _T]) -> _T:
        """Try until no segment turns out to be unreadable meanwhile."""
        for _ in range(_MAX_RETRIES):
            try:
                return attempt()
            except UnreadableError as e:
                if isinstance(e.cause, NotFoundError):
                    self.relist()
                    if e.segment not in (self._visible or ()):
                        continue  # merged into another, which is now listed
                _log.warning("segment left out: %s", e.cause)
                self.unreadable[e.segment] = str(e.cause)
        raise StoreError(f"segments kept vanishing while they were read, {_MAX_RETRIES} times; try again")

    # What follows raises UnreadableError for a segment that is gone or damaged: it is for `retrying`.
    def readable(self) -> tuple[SegmentId, ...]:
        """The segments that count and were not found unreadable."""
        if self._visible is None:
            self.relist()
        assert self._visible is not None
        return tuple(s for s in self._visible if s not in self.unreadable)

    def header(self, segment: SegmentId) -> SegmentHeader:
        """A segment's header."""
        if segment not in self._headers:
            with guarding(segment):
                self._headers[segment] = read_header(self.store, segment.name)
        return self._headers[segment]

    def index(self, segment: SegmentId, table: str, read: ReadIndex | None = None) -> RowIndex:
        """Which blocks of a table a segment has. ``read`` may check more than `read_stored_index` does."""
        key = (segment, table)
        if key not in self._indexes:
            header = self.header(segment)
            with guarding(segment):
                self._indexes[key] = read(header) if read is not None else self._read_index(header, table)
        return self._indexes[key]

    def _read_index(self, header: SegmentHeader, table: str) -> RowIndex:
        stored: StoredTable | None = header.tables.get(table)
        if stored is None:
            return RowIndex(np.zeros(0, np.int64), np.zeros(0, np.uint32))
        return read_stored_index(self.store, header, stored)

    def find_newest(
        self,
        n: int,
        index_of: Callable[[SegmentId], RowIndex],
        without: Mapping[SegmentId, Ids],
        position: Callable[[Ids], Ids] = lambda ids: ids,
    ) -> Newest:
        """The newest copies of the blocks of one table.

        Args:
            n: positions there are.
            index_of: reads which of its blocks a segment has.
            without: rows that are not to be taken: they are damaged.
            position: of blocks in the result; by default their ids.
        """
        segments = self.readable()
        newest = Newest(segments, np.full(n, -1, np.int32), np.zeros(n, np.int64))
        numbered = sorted(enumerate(segments), key=lambda s: not s[1].is_compacted)
        merged: _Merged | None = None
        for s, segment in numbered:  # the compacted ones, then the others from the oldest on: what is newer overwrites
            index = index_of(segment)
            rows = np.arange(len(index.ids))
            if segment in without:
                rows = np.delete(rows, without[segment])
            at = position(index.ids)[rows]
            if segment.is_compacted:
                merged = merged if merged is not None else _Merged(n)
                is_newer = merged.take_in(at, index, rows)
                at, rows = at[is_newer], rows[is_newer]
            elif merged is not None and not merged.is_older_than(self.header(segment).newest):
                is_newer = merged.rows_older_than(at, self.header(segment).newest)
                at, rows = at[is_newer], rows[is_newer]
            newest.segment[at] = s
            newest.row[at] = rows
        return newest

    def versions_of(self, segment: SegmentId, index: RowIndex, rows: Ids) -> Versions:
        """The versions of some rows of a segment."""
        if index.versions is not None:
            return index.versions.take(rows)
        versions = Versions.initial(len(rows))
        versions.set(np.arange(len(rows)), self.header(segment).version)
        return versions

    def saves_of(self, segment: SegmentId, index: RowIndex, rows: Ids) -> Ids:
        """The saves that some rows of a segment come from."""
        return index.saves[rows] if index.saves is not None else np.full(len(rows), segment.save_id, np.int64)

    def newest_version(self) -> Version | None:
        """The newest version that any segment has, or None if there is no segment."""
        readable = self.readable()
        plain = [s for s in readable if not s.is_compacted]
        keys = [self.header(s).newest for s in (*plain[-1:], *(s for s in readable if s.is_compacted))]
        return max(keys).version if keys else None


class _Merged:
    """The newest copies so far of the blocks in compacted segments: their versions, shape (n,) each."""

    def __init__(self, n: int) -> None:
        self._versions = Versions.initial(n)
        self._save = np.zeros(n, np.int64)
        self._newest = (0, 0, 0)

    def take_in(self, at: Ids, index: RowIndex, rows: Ids) -> NDArray[np.bool_]:
        """Take in the rows at positions ``at`` that are at least as new; which these are."""
        if not len(rows):
            return np.zeros(0, bool)
        assert index.versions is not None
        assert index.saves is not None
        theirs, save, mine = index.versions.take(rows), index.saves[rows], self._versions.take(at)
        is_newer = ~_is_older(theirs, save, mine, self._save[at])
        self._versions.put(at[is_newer], theirs.take(np.flatnonzero(is_newer)))
        self._save[at[is_newer]] = save[is_newer]
        last = np.lexsort((save, theirs.commit, theirs.term))[-1]
        self._newest = max(self._newest, (int(theirs.term[last]), int(theirs.commit[last]), int(save[last])))
        return is_newer

    def is_older_than(self, key: SaveKey) -> bool:
        """Whether all of it is older than a version."""
        return self._newest < _order(key)

    def rows_older_than(self, at: Ids, key: SaveKey) -> NDArray[np.bool_]:
        """Which of the positions ``at`` are older than a version."""
        theirs = Versions.initial(len(at))
        theirs.set(np.arange(len(at)), key.version)
        return _is_older(self._versions.take(at), self._save[at], theirs, np.full(len(at), key.save))


def _is_older(a: Versions, save_a: Ids, b: Versions, save_b: Ids) -> NDArray[np.bool_]:
    older: NDArray[np.bool_] = a.is_older_than(b) | ((a.term == b.term) & (a.commit == b.commit) & (save_a < save_b))
    return older


def _order(key: SaveKey) -> tuple[int, int, int]:
    return key.term, key.commit, key.save


@contextmanager
def guarding(segment: SegmentId) -> Iterator[None]:
    """Turns errors about one segment into `UnreadableError`s. An unreachable store stays a StoreError."""
    try:
        yield
    except (NotFoundError, DamagedError) as e:
        raise UnreadableError(segment, e) from e


def groups(segment: NDArray[np.int32]) -> Iterator[tuple[int, Ids]]:
    """Each number that occurs, with the positions where it does, ascending."""
    order = np.argsort(segment.astype(np.int16) if len(segment) and segment.max() < 1 << 15 else segment, kind="stable")
    ranked = segment[order]
    cuts = np.flatnonzero(ranked[1:] != ranked[:-1]) + 1
    for group in np.split(order, cuts):
        if len(group):
            yield int(segment[group[0]]), group

"""Reading the running checkpoint: for every block its newest value among many segments.

A block whose checksum fails falls back to the next older copy. A segment that cannot be read as a whole is left out and
reported; it never keeps good ones from being used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.version_index import Version, Versions
from scarml.core.block import Blocks, Ids, Table
from scarml.errors import DamagedError, NotFoundError, StoreError
from scarml.storage.segment import SegmentId
from scarml.storage.segment_header import SegmentHeader, read_header
from scarml.storage.segment_rows import RowIndex, Rows, read_index, read_rows
from scarml.storage.store import Store

__all__ = ["Damage", "Restored", "SegmentReader"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_MAX_RETRIES = 1000  # each retry leaves out a segment, or follows a change of the listing


@dataclass(frozen=True, slots=True)
class Damage:
    """Something stored that was not used.

    Args:
        segment: name of the segment.
        problem: what is wrong, in words.
        table, block: which block; None if it is the segment as a whole.
        expected, found: the block's checksum as stored, and of the bytes that were read.
    """

    segment: str
    problem: str
    table: str | None = None
    block: int | None = None
    expected: int | None = None
    found: int | None = None

    def __str__(self) -> str:
        return f"{self.segment}: {self.problem}"


@dataclass(frozen=True, slots=True, eq=False)
class Restored:
    """Blocks that were read.

    Args:
        blocks: all that were asked for; zeros where nothing was found.
        versions: of each; term 0 where nothing was found.
        found: which were found, shape (n,). The others' x(0) is for the caller to make.
        damaged: what was met on the way and not used.
    """

    blocks: Blocks
    versions: Versions
    found: NDArray[np.bool_]
    damaged: tuple[Damage, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Newest:
    """Per block of a table: which of the ``segments`` has its newest copy (−1: none), and at which row."""

    segments: tuple[SegmentId, ...]
    segment: NDArray[np.int32]
    row: Ids


class _UnreadableError(Exception):
    """A segment turned out to be gone or damaged while it was being read."""

    def __init__(self, segment: SegmentId, cause: NotFoundError | DamagedError) -> None:
        super().__init__(str(cause))
        self.segment = segment
        self.cause = cause


class SegmentReader:
    """Reads the newest blocks out of some segments; remembers what is in them, since segments never change.

    Args:
        store: where the segments are.
        list_visible: names the segments that count, from the oldest to the newest. Called at the first read, at
            `refresh`, and when a segment is found to be gone.
    """

    def __init__(self, store: Store, list_visible: Callable[[], Sequence[SegmentId]]) -> None:
        self._store = store
        self._list_visible = list_visible
        self._visible: tuple[SegmentId, ...] | None = None
        self._headers: dict[SegmentId, SegmentHeader] = {}
        self._indexes: dict[tuple[SegmentId, str], RowIndex] = {}
        self._newest: dict[str, _Newest] = {}
        self._unreadable: dict[SegmentId, str] = {}

    def refresh(self) -> None:
        """Look at the store again: for new segments, and for ones that could not be read before."""
        self._unreadable.clear()
        self._relist()

    def read_newest(self, table: Table, ids: Ids) -> Restored:
        """The newest value of each of the blocks ``ids`` (strictly increasing).

        Raises:
            StoreError: the store cannot be read now; nothing is wrong with the blocks.
            ModelError: the segments were written for another form of this table.
        """
        return self._retrying(lambda: self._read(table, ids))

    def newest_versions(self, table: Table) -> Versions:
        """The version of every block's newest copy; term 0 where there is none."""
        newest = self._retrying(lambda: self._find_newest(table))
        versions = Versions.initial(table.n_blocks)
        for s, at in _groups(newest.segment):
            if s >= 0:
                versions.set(at, self._headers[newest.segments[s]].version)
        return versions

    def newest_version(self) -> Version | None:
        """The newest version that any segment has, or None if there is no segment."""

        def find() -> Version | None:
            readable = self._readable_segments()
            return self._header(readable[-1]).version if readable else None

        return self._retrying(find)

    def damaged_segments(self) -> tuple[Damage, ...]:
        """The segments that were found unreadable so far."""
        return tuple(Damage(s.name, problem) for s, problem in sorted(self._unreadable.items()))

    def _retrying(self, attempt: Callable[[], _T]) -> _T:
        """Try until no segment turns out to be unreadable meanwhile."""
        for _ in range(_MAX_RETRIES):
            try:
                return attempt()
            except _UnreadableError as e:
                if isinstance(e.cause, NotFoundError):
                    self._relist()
                    if e.segment not in (self._visible or ()):
                        continue  # merged into another, which is now listed
                _log.warning("segment left out: %s", e.cause)
                self._unreadable[e.segment] = str(e.cause)
        raise StoreError(f"segments kept vanishing while they were read, {_MAX_RETRIES} times; try again")

    def _relist(self) -> None:
        self._visible = tuple(self._list_visible())
        kept = set(self._visible)
        self._headers = {s: h for s, h in self._headers.items() if s in kept}
        self._indexes = {key: index for key, index in self._indexes.items() if key[0] in kept}

    def _readable_segments(self) -> tuple[SegmentId, ...]:
        if self._visible is None:
            self._relist()
        assert self._visible is not None
        return tuple(s for s in self._visible if s not in self._unreadable)

    def _header(self, segment: SegmentId) -> SegmentHeader:
        if segment not in self._headers:
            with _Guard(segment):
                self._headers[segment] = read_header(self._store, segment.name)
        return self._headers[segment]

    def _index(self, segment: SegmentId, table: Table) -> RowIndex:
        key = (segment, table.name)
        if key not in self._indexes:
            header = self._header(segment)
            with _Guard(segment):
                self._indexes[key] = read_index(self._store, header, table)
        return self._indexes[key]

    def _find_newest(self, table: Table) -> _Newest:
        segments = self._readable_segments()
        known = self._newest.get(table.name)
        if known is not None and known.segments == segments and len(known.segment) == table.n_blocks:
            return known
        newest = _Newest(segments, np.full(table.n_blocks, -1, np.int32), np.zeros(table.n_blocks, np.int64))
        for s, segment in enumerate(segments):  # from the oldest on: what is newer overwrites
            ids = self._index(segment, table).ids
            newest.segment[ids] = s
            newest.row[ids] = np.arange(len(ids))
        self._newest[table.name] = newest
        return newest

    def _read(self, table: Table, ids: Ids) -> Restored:
        newest = self._find_newest(table)
        segment, row = newest.segment[ids], newest.row[ids]
        out, versions = table.empty(ids), Versions.initial(len(ids))
        damaged: list[Damage] = []
        at = np.flatnonzero(segment >= 0)
        while len(at):
            failed = [np.zeros(0, np.int64)]
            for s, group in _groups(segment[at]):
                here = at[group]
                rows = self._read_from(newest.segments[s], table, out, row[here], here)
                versions.set(here, self._headers[newest.segments[s]].version)
                failed.append(here[rows.is_bad])
                damaged += _damages(newest.segments[s], table, ids[here], rows)
            at = np.sort(np.concatenate(failed))
            segment[at], row[at] = self._find_older(newest, table, ids[at], segment[at])
            versions.put(at, Versions.initial(len(at)))
            at = at[segment[at] >= 0]
        return Restored(out, versions, segment >= 0, (*self.damaged_segments(), *damaged))

    def _read_from(self, segment: SegmentId, table: Table, out: Blocks, rows: Ids, at: Ids) -> Rows:
        header, index = self._header(segment), self._index(segment, table)
        with _Guard(segment):
            return read_rows(self._store, header, index, out, rows, at)

    def _find_older(
        self, newest: _Newest, table: Table, ids: Ids, than: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], Ids]:
        """Per block the newest segment before ``than`` that has it (−1: none), and the row."""
        segment, row = np.full(len(ids), -1, np.int32), np.zeros(len(ids), np.int64)
        if not len(ids):
            return segment, row
        for s in range(int(than.max()) - 1, -1, -1):
            there = self._index(newest.segments[s], table).ids
            if not len(there):
                continue
            at = np.minimum(np.searchsorted(there, ids), len(there) - 1)
            is_it = (there[at] == ids) & (than > s) & (segment < 0)
            segment[is_it], row[is_it] = s, at[is_it]
        return segment, row


class _Guard:
    """Turns errors about one segment into `_UnreadableError`s. An unreachable store stays a StoreError."""

    def __init__(self, segment: SegmentId) -> None:
        self._segment = segment

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, NotFoundError | DamagedError):
            raise _UnreadableError(self._segment, error) from error


def _groups(segment: NDArray[np.int32]) -> Iterator[tuple[int, Ids]]:
    """Each number that occurs, with the positions where it does, ascending."""
    order = np.argsort(segment.astype(np.int16) if len(segment) and segment.max() < 1 << 15 else segment, kind="stable")
    ranked = segment[order]
    cuts = np.flatnonzero(ranked[1:] != ranked[:-1]) + 1
    for group in np.split(order, cuts):
        if len(group):
            yield int(segment[group[0]]), group


def _damages(segment: SegmentId, table: Table, ids: Ids, rows: Rows) -> list[Damage]:
    bad = np.flatnonzero(rows.is_bad)
    problem = f"the checksum of block {{}} of table {table.name!r} is {{:08x}}; expected {{:08x}}"
    return [
        Damage(
            segment.name,
            problem.format(ids[i], rows.found[i], rows.expected[i]),
            table.name,
            int(ids[i]),
            int(rows.expected[i]),
            int(rows.found[i]),
        )
        for i in bad.tolist()
    ]

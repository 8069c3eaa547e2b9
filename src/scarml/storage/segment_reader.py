"""Reading the running checkpoint: for every block its newest value among many segments.

A block whose checksum fails falls back to the next older copy. A segment that cannot be read as a whole is left out and
reported; it never keeps good ones from being used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.version_index import Version, Versions
from scarml.core.block import Blocks, Ids, Table
from scarml.errors import DamagedError, NotFoundError
from scarml.storage.segment import SegmentId
from scarml.storage.segment_catalog import Newest, SegmentCatalog, UnreadableError, groups, guarding
from scarml.storage.segment_rows import RowIndex, Rows, read_extra, read_index, read_rows
from scarml.storage.store import Store, settle

__all__ = ["Damage", "Restored", "SegmentReader"]

_log = logging.getLogger(__name__)


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


class SegmentReader:
    """Reads the newest blocks out of some segments; remembers what is in them, since segments never change.

    Args:
        store: where the segments are.
        list_visible: names the segments that count, from the oldest to the newest. Called at the first read, at
            `refresh`, and when a segment is found to be gone.
    """

    def __init__(self, store: Store, list_visible: Callable[[], Sequence[SegmentId]]) -> None:
        self._store = store
        self._catalog = SegmentCatalog(store, list_visible)
        self._newest: dict[str, Newest] = {}

    def settle(self) -> None:
        """Make durable what was read: its writer may have died just before it did so itself. Raises StoreError.

        Whoever takes what it has read for saved must do this first.
        """
        settle(self._store, "segments")

    def refresh(self) -> None:
        """Look at the store again: for new segments, and for ones that could not be read before."""
        self._catalog.refresh()

    def read_newest(self, table: Table, ids: Ids) -> Restored:
        """The newest value of each of the blocks ``ids`` (strictly increasing).

        Raises:
            StoreError: the store cannot be read now; nothing is wrong with the blocks.
            ModelError: the segments were written for another form of this table.
        """
        return self._catalog.retrying(lambda: self._read(table, ids))

    def newest_versions(self, table: Table) -> Versions:
        """The version of every block's newest copy; term 0 where there is none."""

        def find() -> Versions:
            newest = self._find_newest(table)
            versions = Versions.initial(table.n_blocks)
            for s, at in groups(newest.segment):
                if s >= 0:
                    versions.put(at, self._versions(newest.segments[s], table, newest.row[at]))
            return versions

        return self._catalog.retrying(find)

    def newest_version(self) -> Version | None:
        """The newest version that any segment has, or None if there is no segment."""
        return self._catalog.retrying(self._catalog.newest_version)

    def newest_extra(self) -> tuple[Version, dict[str, Any]] | None:
        """The newest state that was saved beside the blocks, and its version; None if there is none.

        Damaged state gives way to older state, with a warning.
        """
        return self._catalog.retrying(self._read_extra)

    def damaged_segments(self) -> tuple[Damage, ...]:
        """The segments that were found unreadable so far."""
        return tuple(Damage(s.name, problem) for s, problem in sorted(self._catalog.unreadable.items()))

    def _index(self, segment: SegmentId, table: Table) -> RowIndex:
        return self._catalog.index(segment, table.name, lambda header: read_index(self._store, header, table))

    def _versions(self, segment: SegmentId, table: Table, rows: Ids) -> Versions:
        return self._catalog.versions_of(segment, self._index(segment, table), rows)

    def _find_newest(self, table: Table, without: Mapping[SegmentId, Ids] | None = None) -> Newest:
        known = self._newest.get(table.name)
        is_known = known is not None and known.segments == self._catalog.readable()
        if known is not None and is_known and not without and len(known.segment) == table.n_blocks:
            return known
        found = self._catalog.find_newest(table.n_blocks, lambda s: self._index(s, table), without or {})
        if not without:
            self._newest[table.name] = found
        return found

    def _read(self, table: Table, ids: Ids) -> Restored:
        out, versions, found = table.empty(ids), Versions.initial(len(ids)), np.zeros(len(ids), bool)
        damaged: list[Damage] = []
        bad_rows: dict[SegmentId, Ids] = {}
        at = np.arange(len(ids))
        while len(at):
            newest = self._find_newest(table, bad_rows)
            segment, row = newest.segment[ids[at]], newest.row[ids[at]]
            failed = [np.zeros(0, np.int64)]
            for s, group in groups(segment):
                if s < 0:
                    continue
                here, name = at[group], newest.segments[s]
                rows = self._read_from(name, table, out, row[group], here)
                is_good = ~rows.is_bad
                found[here] = is_good
                versions.put(here[is_good], self._versions(name, table, row[group][is_good]))
                if not is_good.all():
                    failed.append(here[~is_good])
                    bad_rows[name] = np.union1d(bad_rows.get(name, failed[0]), row[group][~is_good])
                    damaged += _damages(name, table, ids[here], rows)
            at = np.sort(np.concatenate(failed))
        return Restored(out, versions, found, (*self.damaged_segments(), *damaged))

    def _read_from(self, segment: SegmentId, table: Table, out: Blocks, rows: Ids, at: Ids) -> Rows:
        header, index = self._catalog.header(segment), self._index(segment, table)
        with guarding(segment):
            return read_rows(self._store, header, index, out, rows, at)

    def _read_extra(self) -> tuple[Version, dict[str, Any]] | None:
        headers = [(s, self._catalog.header(s)) for s in self._catalog.readable()]
        found = [(h.extra.key, s, h) for s, h in headers if h.extra is not None]
        for key, segment, header in sorted(found, key=lambda f: f[:2], reverse=True):
            try:
                extra = read_extra(self._store, header)
            except NotFoundError as e:
                raise UnreadableError(segment, e) from e
            except DamagedError as e:
                _log.warning("extra state left out: %s", e)
                continue
            if extra is not None:
                return key.version, {**extra.values, **extra.arrays}
        return None


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

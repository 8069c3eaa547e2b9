"""What the segments of a run hold: which blocks are live, and how many bytes are dead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scarml.core.block import Ids
from scarml.storage.segment import SegmentId
from scarml.storage.segment_catalog import Newest, SegmentCatalog
from scarml.storage.segment_header import SegmentHeader
from scarml.storage.segment_layout import TableForm

__all__ = ["INDEX_BYTES", "BadRowsOf", "SegmentUse", "measure"]

INDEX_BYTES = 24
"""A block beside its values in a compacted segment: id 4, checksum 4, version 16 at most (rarely more)."""

BadRowsOf = Mapping[str, Mapping[SegmentId, Ids]]
"""Per table and segment, rows that are known to fail their checksums, strictly increasing."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentUse:
    """What is live in one segment.

    Args:
        id, header: of it.
        live: per table the rows that are the newest copies of their blocks.
        live_bytes: of these rows, and of the extra state if that is the newest.
        has_newest_extra: whether it is.
        has_only_copy: it has a bad row of a block of which there is no good copy as new: kept, for people to see, until
            the block is saved again.
    """

    id: SegmentId
    header: SegmentHeader
    live: Mapping[str, Ids]
    live_bytes: int
    has_newest_extra: bool
    has_only_copy: bool

    @property
    def size_bytes(self) -> int:
        """Of the whole file."""
        return self.header.size_bytes

    @property
    def dead_bytes(self) -> int:
        """What would be freed if the live blocks were elsewhere."""
        return max(self.size_bytes - self.live_bytes, 0)

    @property
    def is_live(self) -> bool:
        """Whether anything in it is live."""
        return self.has_newest_extra or any(len(rows) for rows in self.live.values())

    @property
    def has_dead(self) -> bool:
        """Whether anything in it is dead, its header not counted."""
        n_live = sum(len(rows) for rows in self.live.values())
        has_old_extra = self.header.extra is not None and not self.has_newest_extra
        return has_old_extra or n_live < sum(t.n for t in self.header.tables.values())

    @property
    def forms(self) -> dict[str, TableForm]:
        """The forms of the tables that have live rows."""
        return {name: self.header.tables[name].form for name, rows in self.live.items() if len(rows)}


def row_bytes(catalog: SegmentCatalog, segment: SegmentId, table: str, rows: Ids) -> Ids:
    """What these rows of a segment take, in it or in another, shape (n,)."""
    stored = catalog.header(segment).tables[table]
    return stored.form.row_bytes(stored.n, catalog.index(segment, table).lengths)[rows] + INDEX_BYTES


def measure(catalog: SegmentCatalog, bad: BadRowsOf, bad_extra: set[SegmentId]) -> list[SegmentUse]:
    """What is live in each readable segment. Raises UnreadableError: for `SegmentCatalog.retrying`."""
    segments = catalog.readable()
    headers = {s: catalog.header(s) for s in segments}
    tables = sorted({t for h in headers.values() for t in h.tables})
    live: dict[SegmentId, dict[str, Ids]] = {s: {} for s in segments}
    only_copies: set[SegmentId] = set()
    for table in tables:
        holders, newest, ids = _newest_of(catalog, table, bad.get(table, {}))
        order = np.argsort(newest.segment, kind="stable")
        cuts = np.searchsorted(newest.segment[order], np.arange(len(segments) + 1))
        for n, s in enumerate(segments):
            if s in holders:
                live[s][table] = np.sort(newest.row[order[cuts[n] : cuts[n + 1]]])
        only_copies |= _holders_of_only_copies(catalog, table, bad.get(table, {}), newest, ids)
    extras = [(h.extra.key, s) for s, h in headers.items() if h.extra is not None and s not in bad_extra]
    newest_extra = max(extras)[1] if extras else None
    only_copies |= {s for s in bad_extra if s in headers and _is_newer_extra(headers[s], headers, newest_extra)}
    return [
        SegmentUse(
            s,
            h,
            live[s],
            sum(int(row_bytes(catalog, s, t, rows).sum()) for t, rows in live[s].items() if len(rows))
            + (_extra_bytes(h) if s == newest_extra else 0),
            s == newest_extra,
            s in only_copies,
        )
        for s, h in headers.items()
    ]


def _newest_of(catalog: SegmentCatalog, table: str, bad: Mapping[SegmentId, Ids]) -> tuple[set[SegmentId], Newest, Ids]:
    """Which segments have a table; the newest copies of its blocks that are stored; and the ids of those blocks.

    Positions are among the blocks that are stored: the number of blocks that a header claims is not to be trusted.
    """
    holders = {s for s in catalog.readable() if table in catalog.header(s).tables}
    parts = [catalog.index(s, table).ids for s in holders]
    last = max((int(p[-1]) for p in parts if len(p)), default=-1)
    if last < 4 * sum(len(p) for p in parts):
        newest = catalog.find_newest(last + 1, lambda s: catalog.index(s, table), bad)
        return holders, newest, np.arange(last + 1, dtype=np.int64)
    ids = np.unique(np.concatenate(parts))
    newest = catalog.find_newest(len(ids), lambda s: catalog.index(s, table), bad, lambda x: np.searchsorted(ids, x))
    return holders, newest, ids


def _holders_of_only_copies(
    catalog: SegmentCatalog, table: str, bad: Mapping[SegmentId, Ids], newest: Newest, ids: Ids
) -> set[SegmentId]:
    """The segments in which a bad row is newer than every good copy of its block."""
    found = set()
    for s, rows in bad.items():
        if s not in newest.segments:
            continue
        index = catalog.index(s, table)
        mine, my_saves = catalog.versions_of(s, index, rows), catalog.saves_of(s, index, rows)
        for i, at in enumerate(np.searchsorted(ids, index.ids[rows]).tolist()):
            holder = newest.segment[at]
            if holder < 0:
                found.add(s)
                break
            other, row = newest.segments[holder], newest.row[at : at + 1]
            index_there = catalog.index(other, table)
            theirs = catalog.versions_of(other, index_there, row)
            save = catalog.saves_of(other, index_there, row)
            if (theirs.term[0], theirs.commit[0], save[0]) < (mine.term[i], mine.commit[i], my_saves[i]):
                found.add(s)
                break
    return found


def _is_newer_extra(
    header: SegmentHeader, headers: Mapping[SegmentId, SegmentHeader], newest: SegmentId | None
) -> bool:
    """Whether this bad extra state is newer than all that is good."""
    good = headers[newest].extra if newest is not None else None
    return header.extra is not None and (good is None or good.key < header.extra.key)


def _extra_bytes(header: SegmentHeader) -> int:
    return sum(t.size_bytes for t in header.extra.arrays.values()) if header.extra is not None else 0

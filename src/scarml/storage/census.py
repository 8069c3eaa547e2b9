"""Counting the blocks of a run: which copies are the newest, how old they are, what they take on the store."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from scarml.checkpoint.version_index import Versions
from scarml.core.block import Ids
from scarml.storage.segment_catalog import Newest, SegmentCatalog

__all__ = ["SegmentCount", "TableCensus", "take_census"]

_DENSE = 4
"""Blocks are counted by id if ids go up to so many times their number; else by rank. A file may claim any id."""


@dataclass(slots=True, eq=False)
class TableCensus:
    """The newest copies of the blocks of one table.

    Args:
        ids: of all blocks that were ever saved, ascending.
        versions: of their newest copies.
        live_bytes: what these take, without ids and checksums.
        encodings: by field, how many of these copies are in which encoding.
    """

    ids: Ids
    versions: Versions
    live_bytes: int = 0
    encodings: dict[str, Counter[str]] = field(default_factory=dict)


@dataclass(slots=True)
class SegmentCount:
    """The segments that count: their number, their bytes, those of the newest values; and which are unreadable."""

    n: int = 0
    n_compacted: int = 0
    size_bytes: int = 0
    live_bytes: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)

    @property
    def dead_bytes(self) -> int:
        """All that is not a newest value: older values, and all ids, checksums and headers."""
        return self.size_bytes - self.live_bytes


def take_census(catalog: SegmentCatalog) -> tuple[dict[str, TableCensus], SegmentCount]:
    """Count everything that counts. A segment that cannot be read is left out and named.

    Raises:
        StoreError: the store cannot be read now.
    """
    tables, count = catalog.retrying(lambda: _count(catalog))
    count.unreadable = {s.name: problem for s, problem in sorted(catalog.unreadable.items())}
    return tables, count


def _count(catalog: SegmentCatalog) -> tuple[dict[str, TableCensus], SegmentCount]:
    """Raises UnreadableError: for `SegmentCatalog.retrying`."""
    segments = catalog.readable()
    headers = {s: catalog.header(s) for s in segments}
    count = SegmentCount(
        len(segments), sum(s.is_compacted for s in segments), sum(h.size_bytes for h in headers.values())
    )
    tables = {}
    for name in sorted({t for h in headers.values() for t in h.tables}):
        tables[name] = _count_table(catalog, name)
        count.live_bytes += tables[name].live_bytes
    return tables, count


def _count_table(catalog: SegmentCatalog, table: str) -> TableCensus:
    ids, newest = _find_newest(catalog, table)
    found = np.flatnonzero(newest.segment >= 0)
    census = TableCensus(ids[found], Versions.initial(len(found)))
    order = np.argsort(newest.segment[found], kind="stable")
    cuts = np.searchsorted(newest.segment[found][order], np.arange(len(newest.segments) + 1))
    for n, s in enumerate(newest.segments):
        at = order[cuts[n] : cuts[n + 1]]
        if not len(at):
            continue
        rows, index, stored = newest.row[found[at]], catalog.index(s, table), catalog.header(s).tables[table]
        census.versions.put(at, catalog.versions_of(s, index, rows))
        census.live_bytes += int(stored.form.row_bytes(stored.n, index.lengths)[rows].sum())
        for f in stored.form.fields:
            census.encodings.setdefault(f.field.name, Counter())[f.encoding] += len(at)
    return census


def _find_newest(catalog: SegmentCatalog, table: str) -> tuple[Ids, Newest]:
    """The ids of all blocks that are stored (and perhaps some more), and where their newest copies are."""
    parts = [catalog.index(s, table).ids for s in catalog.readable()]
    n_ids = sum(len(p) for p in parts)
    last = max((int(p[-1]) for p in parts if len(p)), default=-1)
    if last < _DENSE * n_ids:
        newest = catalog.find_newest(last + 1, lambda s: catalog.index(s, table), {})
        return np.arange(last + 1, dtype=np.int64), newest
    ids = np.unique(np.concatenate(parts))
    newest = catalog.find_newest(len(ids), lambda s: catalog.index(s, table), {}, lambda x: np.searchsorted(ids, x))
    return ids, newest

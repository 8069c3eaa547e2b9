"""Counting the blocks of a run: which copies are the newest, how old they are, what they take on the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from scarml.checkpoint.version_index import Versions
from scarml.core.block import Ids
from scarml.storage.occupancy import SegmentUse, measure
from scarml.storage.segment_catalog import SegmentCatalog
from scarml.storage.store import Store
from scarml.storage.terms import Terms

__all__ = ["SegmentCount", "TableCensus", "census_of_run", "take_census"]


@dataclass(slots=True, eq=False)
class TableCensus:
    """The newest copies of the blocks of one table.

    Args:
        ids: of all blocks that were ever saved, in no order.
        versions: of their newest copies.
        live_bytes: what these take, without ids and checksums.
        encodings: by field, how many of these copies are in which encoding.
        ragged: the fields of which blocks have different lengths.
    """

    ids: Ids
    versions: Versions
    live_bytes: int = 0
    encodings: dict[str, Counter[str]] = field(default_factory=dict)
    ragged: set[str] = field(default_factory=set)


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


def census_of_run(store: Store, terms: Terms) -> tuple[dict[str, TableCensus], SegmentCatalog, SegmentCount]:
    """Count what counts in a run's last term, if it has one.

    Raises:
        DamagedError: what the last term started from cannot be read.
        StoreError: the store cannot be read now.
    """
    last = terms.last()
    catalog = SegmentCatalog(store, lambda: terms.visible_segments(last) if last is not None else [])
    census, count = take_census(catalog)
    return census, catalog, count


def _count(catalog: SegmentCatalog) -> tuple[dict[str, TableCensus], SegmentCount]:
    """Raises UnreadableError: for `SegmentCatalog.retrying`."""
    uses = measure(catalog, {}, set())
    n_compacted = sum(u.id.is_compacted for u in uses)
    count = SegmentCount(len(uses), n_compacted, sum(u.size_bytes for u in uses))
    names = sorted({t for u in uses for t in u.header.tables})
    tables = {name: _count_table(catalog, uses, name) for name in names}
    count.live_bytes = sum(t.live_bytes for t in tables.values())
    return tables, count


def _count_table(catalog: SegmentCatalog, uses: Sequence[SegmentUse], table: str) -> TableCensus:
    parts = [(u, u.live[table]) for u in uses if len(u.live.get(table, ()))]
    ids = np.concatenate([catalog.index(u.id, table).ids[rows] for u, rows in parts] or [np.zeros(0, np.int64)])
    census = TableCensus(ids, Versions.initial(len(ids)))
    first = 0
    for use, rows in parts:
        index, stored = catalog.index(use.id, table), use.header.tables[table]
        at = np.arange(first, first + len(rows))
        first += len(rows)
        census.versions.put(at, catalog.versions_of(use.id, index, rows))
        census.live_bytes += int(stored.form.row_bytes(stored.n, index.lengths)[rows].sum())
        for f in stored.form.fields:
            census.encodings.setdefault(f.field.name, Counter())[f.encoding] += len(rows)
            census.ragged.update({f.field.name} if f.field.ragged else ())
    return census

"""Tables, blocks and segments for tests of the storage."""

from __future__ import annotations

import numpy as np

from scarml.core.block import Blocks, Field, Table
from scarml.storage.segment import Segment

WIDE = Table("W", 40, (Field("value", "float32", (3, 2)), Field("step", "int64"), Field("mask", "bool", (5,))))
RAGGED = Table(
    "docs",
    12,
    (Field("value", "uint16", ragged=True), Field("weight", "float64")),
    lengths=np.array([3, 0, 1, 7, 2, 0, 0, 5, 1, 4, 9, 2]),
)


def filled(table: Table, ids: object, seed: int = 0) -> Blocks:
    """Random blocks."""
    rng = np.random.default_rng(seed)
    blocks = table.empty(np.asarray(ids, np.int64))
    for a in blocks.fields.values():
        a[...] = rng.integers(0, 2 if a.dtype == bool else 200, a.shape).astype(a.dtype)
    return blocks


def segment(
    *blocks: Blocks,
    term: int = 1,
    commit: int = 1,
    node: str = "server-0",
    save_id: int | None = None,
    unit: bool = False,
) -> Segment:
    """A segment of these blocks; its iteration is ten times its commit."""
    tables = {b.table.name: b for b in blocks}
    return Segment(term, commit, 10 * commit, node, commit if save_id is None else save_id, unit, tables)


def same(a: Blocks, b: Blocks) -> bool:
    """Whether two containers hold the same blocks, to the bit."""
    return bool(np.array_equal(a.ids, b.ids)) and not a.differs_from(b).any()

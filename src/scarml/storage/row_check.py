"""Reading a segment through, block by block, only to see whether each is what was written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scarml.core.block import Ids
from scarml.storage.segment_header import SegmentHeader, StoredTable
from scarml.storage.segment_rows import Piece, RowIndex, Rows, read_pieces
from scarml.storage.store import Store

__all__ = ["CheckedRows", "check_rows"]

_BYTES_AT_ONCE = 16 << 20


@dataclass(frozen=True, slots=True, eq=False)
class CheckedRows:
    """Some rows of one table of a segment.

    Args:
        positions: in the segment, ascending.
        rows: their checksums.
        size_bytes: that they take.
    """

    positions: Ids
    rows: Rows
    size_bytes: int


def check_rows(store: Store, header: SegmentHeader, stored: StoredTable, index: RowIndex) -> Iterator[CheckedRows]:
    """All rows of a table, some megabytes at a time.

    Raises:
        NotFoundError, DamagedError: the segment is gone, or shorter than it was.
    """
    row_ends = np.cumsum(stored.form.row_bytes(stored.n, index.lengths))
    cuts = np.flatnonzero(np.diff(row_ends // _BYTES_AT_ONCE)) + 1
    scratch: dict[int, np.ndarray[tuple[int], np.dtype[np.uint8]]] = {}
    for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), stored.n], strict=True):
        if begin == end:
            continue
        positions = np.arange(begin, end, dtype=np.int64)
        pieces = []
        for n, c in enumerate(stored.columns):
            starts, sizes = c.column.extents(stored.n, index.lengths, positions)
            n_bytes = int(sizes.sum())
            if n not in scratch or len(scratch[n]) < n_bytes:
                scratch[n] = np.empty(n_bytes, np.uint8)
            pieces.append(Piece(c.tensor.start, starts, sizes, scratch[n], starts - starts[0]))
        rows = read_pieces(store, header, index, positions, pieces)
        size_bytes = int(row_ends[end - 1]) - (int(row_ends[begin - 1]) if begin else 0)
        yield CheckedRows(positions, rows, size_bytes)

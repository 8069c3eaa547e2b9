"""Reading blocks out of a segment: which are in it, and their values, each checked against its checksum."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Array, Blocks, Ids, Table
from scarml.errors import DamagedError, ModelError, NotFoundError
from scarml.storage.checksum import (
    begin_checksums,
    extend_checksums,
    extend_checksums_and_copy,
    finish_checksums,
)
from scarml.storage.segment import bytes_of, row_extents
from scarml.storage.segment_header import SegmentHeader, StoredTable, Tensor, read_header
from scarml.storage.store import Store

__all__ = ["RowIndex", "Rows", "read_blocks", "read_index", "read_rows"]

_PIECE_BYTES = 512 << 10
"""What is read at once: it stays in the processor's cache between reading, checking and copying."""


@dataclass(frozen=True, slots=True, eq=False)
class RowIndex:
    """Which blocks of one table a segment has.

    Args:
        ids: strictly increasing, shape (n,).
        checksums: expected, shape (n,).
        lengths: ragged elements of each block, shape (n,), if the table has ragged fields.
    """

    ids: Ids
    checksums: NDArray[np.uint32]
    lengths: Ids | None


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some rows that were read: their checksums as stored and as found, shape (n,)."""

    expected: NDArray[np.uint32]
    found: NDArray[np.uint32]

    @property
    def is_bad(self) -> NDArray[np.bool_]:
        """Which rows are not what was written."""
        bad: NDArray[np.bool_] = self.expected != self.found
        return bad


def read_blocks(store: Store, name: str, table: Table, ids: Ids) -> tuple[Blocks, NDArray[np.bool_]]:
    """The blocks ``ids`` from a segment, and which of them fail their checksum (those are zeros).

    Raises:
        NotFoundError: the segment is gone, or lacks one of these blocks.
        DamagedError: the segment as a whole cannot be read.
        ModelError: the segment's table has another form than ``table``.
    """
    header = read_header(store, name)
    index = read_index(store, header, table)
    at = np.searchsorted(index.ids, ids)
    if len(ids) and (len(index.ids) == 0 or at.max() >= len(index.ids) or (index.ids[at] != ids).any()):
        missing = np.setdiff1d(ids, index.ids)[:5].tolist()
        raise NotFoundError(f"blocks {missing} … of table {table.name!r} are not in {name}")
    out = table.empty(ids)
    rows = read_rows(store, header, index, out, at.astype(np.int64), np.arange(len(ids), dtype=np.int64))
    return out, rows.is_bad


def read_index(store: Store, header: SegmentHeader, table: Table) -> RowIndex:
    """Which blocks of ``table`` a segment has; none if it has not even the table. Raises as `read_blocks`."""
    stored = header.tables.get(table.name)
    if stored is None:
        return RowIndex(np.zeros(0, np.int64), np.zeros(0, np.uint32), np.zeros(0, np.int64))
    _check_same_form(header, stored, table)
    raw_ids = _read_tensor(store, header, stored.ids)
    raw_lengths = _read_tensor(store, header, stored.lengths) if stored.lengths is not None else None
    crc = zlib.crc32(bytes_of(raw_ids).data)
    if raw_lengths is not None:
        crc = zlib.crc32(bytes_of(raw_lengths).data, crc)
    ids = raw_ids.astype(np.int64)
    is_ordered = not len(ids) or (ids[0] >= 0 and ids[-1] < table.n_blocks and bool((ids[1:] > ids[:-1]).all()))
    if crc != stored.index_crc32 or not is_ordered:
        raise DamagedError(
            f"{header.name} is damaged: the block ids of table {table.name!r} have checksum {crc:08x}; expected "
            f"{stored.index_crc32:08x} and ids that grow. Older copies of its blocks are used where there are any"
        )
    lengths = None if raw_lengths is None else raw_lengths.astype(np.int64)
    if lengths is not None and (lengths != table.block_lengths[ids]).any():
        raise ModelError(
            f"blocks of table {table.name!r} have other lengths in {header.name} than the model gives them; "
            "the run was saved by another model or from other data"
        )
    return RowIndex(ids, _read_tensor(store, header, stored.checksums), lengths)


def read_rows(store: Store, header: SegmentHeader, index: RowIndex, out: Blocks, rows: Ids, at: Ids) -> Rows:
    """Read the blocks at positions ``rows`` of a segment into positions ``at`` of ``out``.

    Both are strictly increasing. Rows that fail their checksum are left as zeros. Raises as `read_blocks`.
    """
    stored = header.tables[out.table.name]
    crc = begin_checksums(index.ids[rows])
    columns = _columns(stored, index, out, rows, at)
    scratch = np.empty(_PIECE_BYTES, np.uint8)
    for begin, end in _pieces(columns, store.gap_bytes):
        is_run_here, is_run_there = (int(x[end - 1] - x[begin]) == end - begin - 1 for x in (rows, at))
        for c in columns:
            starts, sizes, out_starts = c.starts[begin:end], c.sizes[begin:end], c.out_starts[begin:end]
            first = int(starts[0])
            n_bytes = int(starts[-1] + sizes[-1]) - first
            if is_run_here and is_run_there:
                whole = c.out[out_starts[0] : out_starts[0] + n_bytes]
                store.read_into(header.name, c.file_start + first, whole.data)
                extend_checksums(crc[begin:end], c.out, out_starts, sizes)
                continue
            if n_bytes > len(scratch):
                scratch = np.empty(n_bytes, np.uint8)
            store.read_into(header.name, c.file_start + first, scratch[:n_bytes].data)
            extend_checksums_and_copy(crc[begin:end], scratch, starts - first, sizes, c.out, out_starts)
    result = Rows(index.checksums[rows], finish_checksums(crc))
    bad = out.ids[at[result.is_bad]]
    if len(bad):
        out.put(out.table.empty(bad))
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """Where the wanted rows of one field lie, in bytes, in its tensor in the file, and in memory."""

    file_start: int
    starts: Ids
    sizes: Ids
    out: NDArray[np.uint8]
    out_starts: Ids


def _columns(stored: StoredTable, index: RowIndex, out: Blocks, rows: Ids, at: Ids) -> list[_Column]:
    out_lengths = out.lengths if out.table.lengths is not None else None
    columns = []
    for f, stored_field in zip(out.table.fields, stored.fields, strict=True):
        starts, sizes = row_extents(f, stored.n, index.lengths, rows)
        out_starts, _ = row_extents(f, len(out), out_lengths, at)
        columns.append(_Column(stored_field.tensor.start, starts, sizes, bytes_of(out.fields[f.name]), out_starts))
    return columns


def _pieces(columns: list[_Column], gap_bytes: int) -> Iterator[tuple[int, int]]:
    """Cuts the wanted rows into runs to read at once: not too long, and without long gaps between them."""
    widest = max(columns, key=lambda c: int(c.sizes.sum()))
    if not len(widest.starts):
        return
    starts, ends = widest.starts, widest.starts + widest.sizes
    is_far = starts[1:] - ends[:-1] > gap_bytes
    is_next = starts[1:] // _PIECE_BYTES != starts[:-1] // _PIECE_BYTES
    cuts = (np.flatnonzero(is_far | is_next) + 1).tolist()
    yield from zip([0, *cuts], [*cuts, len(starts)], strict=True)


def _read_tensor(store: Store, header: SegmentHeader, tensor: Tensor) -> Array:
    """A whole tensor; its size was checked against the size of the file."""
    out = np.empty(tensor.shape, np.dtype(tensor.dtype).newbyteorder("<"))
    store.read_into(header.name, tensor.start, bytes_of(out).data)
    return out


def _check_same_form(header: SegmentHeader, stored: StoredTable, table: Table) -> None:
    there = [(f.field.name, f.field.dtype, f.field.shape, f.field.ragged) for f in stored.fields]
    here = [(f.name, np.dtype(f.dtype).name, f.shape, f.ragged) for f in table.fields]
    if there != here or stored.n_blocks != table.n_blocks:
        raise ModelError(
            f"table {table.name!r} has {stored.n_blocks} blocks of {there} in {header.name}; the model has "
            f"{table.n_blocks} of {here}. The run was saved by another model or with other settings"
        )
    n_ragged = {f.tensor.shape[0] for f in stored.fields if f.field.ragged}
    if len(n_ragged) > 1:
        raise DamagedError(f"{header.name} is damaged: the ragged fields of {table.name!r} have different lengths")

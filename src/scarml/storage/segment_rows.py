"""Reading blocks out of a segment: which are in it, and their values, each checked against its checksum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.encoding import Encoded, element_counts, encoding_named
from scarml.checkpoint.version_index import Versions
from scarml.core.block import Array, Blocks, Ids, Table
from scarml.core.runs import copy_runs
from scarml.errors import DamagedError, ModelError, NotFoundError
from scarml.storage.checksum import (
    begin_checksums,
    extend_checksums,
    extend_checksums_and_copy,
    finish_checksums,
)
from scarml.storage.segment_extra import StoredExtra
from scarml.storage.segment_header import SegmentHeader, StoredColumn, StoredTable, Tensor, read_header
from scarml.storage.segment_layout import FieldForm, bytes_of, checksum_of
from scarml.storage.store import Store

__all__ = [
    "Piece",
    "RowIndex",
    "Rows",
    "read_blocks",
    "read_extra",
    "read_index",
    "read_pieces",
    "read_rows",
    "read_stored_index",
]

_PIECE_BYTES = 512 << 10
"""What is read at once: it stays in the processor's cache between reading, checking and copying."""


@dataclass(frozen=True, slots=True, eq=False)
class RowIndex:
    """Which blocks of one table a segment has.

    Args:
        ids: strictly increasing, shape (n,).
        checksums: expected, shape (n,).
        lengths: ragged elements of each block, shape (n,), if the table has ragged fields.
        versions, saves: of each block, shape (n,), if the segment is compacted.
    """

    ids: Ids
    checksums: NDArray[np.uint32]
    lengths: Ids | None = None
    versions: Versions | None = None
    saves: Ids | None = None


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
        return RowIndex(np.zeros(0, np.int64), np.zeros(0, np.uint32))
    check_same_form(header, stored, table)
    index = read_stored_index(store, header, stored)
    if index.lengths is not None and (index.lengths != table.block_lengths[index.ids]).any():
        raise ModelError(
            f"blocks of table {table.name!r} have other lengths in {header.name} than the model gives them; "
            "the run was saved by another model or from other data"
        )
    return index


def read_stored_index(store: Store, header: SegmentHeader, stored: StoredTable) -> RowIndex:
    """Which blocks of a table a segment has, whatever the table.

    Raises:
        NotFoundError: the segment is gone.
        DamagedError: its index cannot be believed.
    """
    parts = [stored.ids, *([] if stored.lengths is None else [stored.lengths]), *stored.versions]
    raw = [_read_tensor(store, header, t) for t in parts]
    crc = checksum_of(raw)
    ids, *others = (a.astype(np.int64) for a in raw)
    lengths = None if stored.lengths is None else others.pop(0)
    is_ordered = not len(ids) or (ids[0] >= 0 and ids[-1] < stored.n_blocks and bool((ids[1:] > ids[:-1]).all()))
    if crc != stored.index_crc32 or not is_ordered or not _is_consistent(stored, lengths, others, header):
        raise DamagedError(
            f"{header.name} is damaged: the block ids of table {stored.name!r} have checksum {crc:08x}; expected "
            f"{stored.index_crc32:08x}, ids that grow, and lengths and versions that fit. "
            "Older copies of its blocks are used where there are any"
        )
    checksums = _read_tensor(store, header, stored.checksums)
    if not others:
        return RowIndex(ids, checksums, lengths)
    term, commit, iteration, saves = others
    return RowIndex(ids, checksums, lengths, Versions(term, commit, iteration), saves)


def _is_consistent(stored: StoredTable, lengths: Ids | None, versions: list[Ids], header: SegmentHeader) -> bool:
    n_most = 8.0 * header.size_bytes  # an element takes at least a bit
    if lengths is not None and not (lengths.min(initial=0) >= 0 and lengths.sum(dtype=np.float64) <= n_most):
        return False
    for c in stored.columns:
        if c.column.shape(stored.n) is None and int(c.column.sizes(stored.n, lengths).sum()) != c.tensor.size_bytes:
            return False
    if not versions or not stored.n:
        return True
    newest = header.newest
    keys = np.lexsort((versions[3], versions[1], versions[0]))  # by term, then commit, then save
    last = tuple(int(v[keys[-1]]) for v in versions)
    is_known = last[:2] + last[3:] <= (newest.term, newest.commit, newest.save)
    return is_known and all(int(v.min()) >= 0 for v in versions)


def read_rows(store: Store, header: SegmentHeader, index: RowIndex, out: Blocks, rows: Ids, at: Ids) -> Rows:
    """Read the blocks at positions ``rows`` of a segment into positions ``at`` of ``out``.

    Both are strictly increasing. Rows that fail their checksum are left as zeros. Raises as `read_blocks`.
    """
    stored = header.tables[out.table.name]
    pieces, decoders = [], []
    for f in stored.form.fields:
        columns = [c for c in stored.columns if c.column.field.name == f.field.name]
        if f.encoding == "plain":
            out_lengths = out.lengths if out.table.lengths is not None else None
            out_starts, _ = columns[0].column.extents(len(out), out_lengths, at)
            pieces.append(_piece(columns[0], stored, index, rows, bytes_of(out.fields[f.field.name]), out_starts))
        else:
            made = [_piece_by_itself(c, stored, index, rows) for c in columns]
            pieces += made
            decoders.append((f, [p.out.view(c.column.dtype) for p, c in zip(made, columns, strict=True)]))
    result = read_pieces(store, header, index, rows, pieces)
    if decoders:
        _decode(out, at, decoders)
    bad = out.ids[at[result.is_bad]]
    if len(bad):
        out.put(out.table.empty(bad))
    return result


def _decode(out: Blocks, at: Ids, decoders: list[tuple[FieldForm, list[Array]]]) -> None:
    """Put what was read of encoded fields into positions ``at``."""
    for form, parts in decoders:
        f = form.field
        counts = element_counts(out.table, f, out.ids[at])
        encoded = Encoded(parts[-1], parts[0] if len(parts) == 2 else None)
        values = encoding_named(form.encoding).decode(encoded, counts, f.dtype)
        target = out.fields[f.name]
        if f.ragged:
            starts = (np.cumsum(out.lengths) - out.lengths)[at]
            copy_runs(values, np.cumsum(counts) - counts, counts, target, starts)
        else:
            target[at] = values.reshape(len(at), *f.shape)


def read_pieces(store: Store, header: SegmentHeader, index: RowIndex, rows: Ids, pieces: list[Piece]) -> Rows:
    """Read the blocks at positions ``rows``, strictly increasing, as they are stored, and check them.

    ``pieces`` are all columns of the table, in the order of its form.
    """
    crc = begin_checksums(index.ids[rows])
    scratch = np.empty(_PIECE_BYTES, np.uint8)
    for begin, end in _cuts(pieces, store.gap_bytes):
        is_run = int(rows[end - 1] - rows[begin]) == end - begin - 1
        for p in pieces:
            starts, sizes, out_starts = p.starts[begin:end], p.sizes[begin:end], p.out_starts[begin:end]
            first = int(starts[0])
            n_bytes = int(starts[-1] + sizes[-1]) - first
            if is_run and int(out_starts[-1] - out_starts[0]) == int(starts[-1]) - first:  # one run there as well
                whole = p.out[out_starts[0] : out_starts[0] + n_bytes]
                store.read_into(header.name, p.file_start + first, whole.data)
                extend_checksums(crc[begin:end], p.out, out_starts, sizes)
                continue
            if n_bytes > len(scratch):
                scratch = np.empty(n_bytes, np.uint8)
            store.read_into(header.name, p.file_start + first, scratch[:n_bytes].data)
            extend_checksums_and_copy(crc[begin:end], scratch, starts - first, sizes, p.out, out_starts)
    return Rows(index.checksums[rows], finish_checksums(crc))


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Where the wanted rows of one column lie, in bytes, in its tensor in the file, and in memory."""

    file_start: int
    starts: Ids
    sizes: Ids
    out: NDArray[np.uint8]
    out_starts: Ids


def _piece(
    c: StoredColumn, stored: StoredTable, index: RowIndex, rows: Ids, out: NDArray[np.uint8], out_starts: Ids
) -> Piece:
    starts, sizes = c.column.extents(stored.n, index.lengths, rows)
    return Piece(c.tensor.start, starts, sizes, out, out_starts)


def _piece_by_itself(c: StoredColumn, stored: StoredTable, index: RowIndex, rows: Ids) -> Piece:
    """In memory of its own, one row after the other."""
    starts, sizes = c.column.extents(stored.n, index.lengths, rows)
    return Piece(c.tensor.start, starts, sizes, np.empty(int(sizes.sum()), np.uint8), np.cumsum(sizes) - sizes)


def _cuts(columns: list[Piece], gap_bytes: int) -> Iterator[tuple[int, int]]:
    """Cuts the wanted rows into runs to read at once: not too long, and without long gaps between them."""
    widest = max(columns, key=lambda c: int(c.sizes.sum()))
    if not len(widest.starts):
        return
    starts, ends = widest.starts, widest.starts + widest.sizes
    is_far = starts[1:] - ends[:-1] > gap_bytes
    is_next = starts[1:] // _PIECE_BYTES != starts[:-1] // _PIECE_BYTES
    cuts = (np.flatnonzero(is_far | is_next) + 1).tolist()
    yield from zip([0, *cuts], [*cuts, len(starts)], strict=True)


def read_extra(store: Store, header: SegmentHeader) -> StoredExtra | None:
    """The extra state in a segment, if there is any.

    Raises:
        NotFoundError: the segment is gone.
        DamagedError: an array of it is not what was written.
    """
    if header.extra is None:
        return None
    arrays = {name: _read_tensor(store, header, t) for name, t in header.extra.arrays.items()}
    crc = checksum_of(list(arrays.values()))
    if crc != header.extra.crc32:
        raise DamagedError(
            f"{header.name} is damaged: the extra state has checksum {crc:08x}; expected {header.extra.crc32:08x}. "
            "An older copy is used where there is one"
        )
    return StoredExtra(header.extra.values, arrays)


def _read_tensor(store: Store, header: SegmentHeader, tensor: Tensor) -> Array:
    """A whole tensor; its size was checked against the size of the file."""
    out = np.empty(tensor.shape, np.dtype(tensor.dtype).newbyteorder("<"))
    store.read_into(header.name, tensor.start, bytes_of(out).data)
    return out


def check_same_form(header: SegmentHeader, stored: StoredTable, table: Table) -> None:
    """Raise ModelError if a segment's table is not the model's."""
    there = [(f.field.name, f.field.dtype, f.field.shape, f.field.ragged) for f in stored.form.fields]
    here = [(f.name, np.dtype(f.dtype).name, f.shape, f.ragged) for f in table.fields]
    if there != here or stored.n_blocks != table.n_blocks:
        raise ModelError(
            f"table {table.name!r} has {stored.n_blocks} blocks of {there} in {header.name}; the model has "
            f"{table.n_blocks} of {here}. The run was saved by another model or with other settings"
        )

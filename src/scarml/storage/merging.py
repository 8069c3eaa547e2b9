"""Merging segments: some of their blocks, copied as they are stored into one new segment.

Blocks keep their bytes, their checksums and the versions they were saved under. What is copied is checked on the way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.version_index import Versions
from scarml.core.block import Array, Ids
from scarml.storage.segment import SegmentId
from scarml.storage.segment_catalog import SegmentCatalog, guarding
from scarml.storage.segment_extra import StoredExtra, pack_extra
from scarml.storage.segment_header import SaveKey
from scarml.storage.segment_layout import (
    VERSION_TENSORS,
    Column,
    TableForm,
    TensorToWrite,
    checksum_of,
    encode_file,
    narrowed,
)
from scarml.storage.segment_rows import Piece, RowIndex, read_pieces
from scarml.storage.store import Chunk

__all__ = ["BadRows", "MergedTable", "Taken", "encode_merged", "merge_table"]

Taken = Mapping[SegmentId, Ids]
"""Of one table, per segment the rows to copy, strictly increasing; no block twice."""

_VERSION_DTYPES = ("<u1", "<u2", "<u4", "<u8")


class BadRows(Exception):  # noqa: N818 - not an error: the caller chooses again without them
    """Rows of a table that failed their checksums, per segment."""

    def __init__(self, table: str, rows: dict[SegmentId, Ids]) -> None:
        super().__init__(f"bad rows of {table} in {', '.join(s.name for s in rows)}")
        self.table = table
        self.rows = rows


@dataclass(frozen=True, slots=True, eq=False)
class MergedTable:
    """Blocks of one table as they are stored: ids, checksums, versions, and the bytes of each column."""

    form: TableForm
    index: RowIndex
    columns: tuple[tuple[Column, NDArray[np.uint8]], ...]

    @property
    def newest(self) -> SaveKey:
        """The newest version in it."""
        v, saves = self.index.versions, self.index.saves
        assert v is not None
        assert saves is not None
        last = np.lexsort((saves, v.commit, v.term))[-1]
        return SaveKey(int(v.term[last]), int(v.commit[last]), int(saves[last]), int(v.iteration[last]))


def merge_table(catalog: SegmentCatalog, form: TableForm, taken: Taken) -> MergedTable:
    """Copy rows of segments that have a table in one form.

    Raises:
        BadRows: some failed their checksums.
        UnreadableError: a segment is gone or damaged.
    """
    indexes = {s: catalog.index(s, form.name) for s in taken}
    ids = np.concatenate([indexes[s].ids[rows] for s, rows in taken.items()])
    order = np.argsort(ids)
    merged = _merged_index(catalog, form, taken, indexes, order)
    n = len(ids)
    sizes = [c.sizes(n, merged.lengths) for c in form.columns]
    starts = [np.cumsum(s) - s for s in sizes]
    memory = [np.empty(int(s.sum()), np.uint8) for s in sizes]
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    bad: dict[SegmentId, Ids] = {}
    first = 0
    for segment, rows in taken.items():
        at = place[first : first + len(rows)]
        first += len(rows)
        header, index = catalog.header(segment), indexes[segment]
        stored = header.tables[form.name]
        pieces = []
        for i, c in enumerate(stored.columns):
            source_starts, source_sizes = c.column.extents(stored.n, index.lengths, rows)
            pieces.append(Piece(c.tensor.start, source_starts, source_sizes, memory[i], starts[i][at]))
        with guarding(segment):
            found = read_pieces(catalog.store, header, index, rows, pieces)
        if found.is_bad.any():
            bad[segment] = rows[found.is_bad]
    if bad:
        raise BadRows(form.name, bad)
    return MergedTable(form, merged, tuple(zip(form.columns, memory, strict=True)))


def _merged_index(
    catalog: SegmentCatalog, form: TableForm, taken: Taken, indexes: Mapping[SegmentId, RowIndex], order: Ids
) -> RowIndex:
    def joined(parts: list[Array]) -> Array:
        return np.concatenate(parts)[order]

    versions = [catalog.versions_of(s, indexes[s], rows) for s, rows in taken.items()]
    saves = [catalog.saves_of(s, indexes[s], rows) for s, rows in taken.items()]
    lengths = [x.lengths[rows] for x, rows in ((indexes[s], r) for s, r in taken.items()) if x.lengths is not None]
    return RowIndex(
        joined([indexes[s].ids[rows] for s, rows in taken.items()]),
        joined([indexes[s].checksums[rows] for s, rows in taken.items()]),
        joined(lengths) if form.is_ragged else None,
        Versions(*(joined([getattr(v, name) for v in versions]) for name in ("term", "commit", "iteration"))),
        joined(saves),
    )


def encode_merged(
    segment: SegmentId, tables: list[MergedTable], extra: tuple[SaveKey, StoredExtra] | None
) -> Iterator[Chunk]:
    """The contents of a compacted segment; there must be a table, or extra state."""
    newest = max([t.newest for t in tables] + ([extra[0]] if extra is not None else []))
    about = {
        "term": segment.term, "commit": segment.commit, "iteration": newest.iteration,
        "node": segment.node, "save_id": segment.save_id, "unit": False, "newest": _as_list(newest),
    }  # fmt: skip
    tensors: list[TensorToWrite] = []
    descriptions = []
    for t in tables:
        mine, description = _encode_table(t)
        tensors += mine
        descriptions.append(description)
    metadata = {"segment": json.dumps(about), "tables": json.dumps(descriptions)}
    if extra is not None:
        metadata["extra"], arrays = pack_extra(extra[1], _as_list(extra[0]))
        tensors += arrays
    return encode_file(segment.name, metadata, tensors)


def _encode_table(t: MergedTable) -> tuple[list[TensorToWrite], dict[str, Any]]:
    x = t.index
    assert x.versions is not None
    assert x.saves is not None
    index = {"ids": narrowed(x.ids)}
    if x.lengths is not None:
        index["lengths"] = narrowed(x.lengths)
    versions = (x.versions.term, x.versions.commit, x.versions.iteration, x.saves)
    index |= {key: narrowed(v, _VERSION_DTYPES) for key, v in zip(VERSION_TENSORS, versions, strict=True)}
    tensors = [TensorToWrite.of(f"{t.form.name}/{key}", a) for key, a in index.items()]
    tensors.append(TensorToWrite.of(f"{t.form.name}/crc32", x.checksums))
    for c, data in t.columns:
        n_elements = data.nbytes // np.dtype(c.dtype).itemsize
        tensors.append(
            TensorToWrite(t.form.name + c.suffix, c.dtype, c.shape(len(x.ids)) or (n_elements,), _always(data))
        )
    return tensors, t.form.describe(checksum_of(list(index.values())))


def _always(data: Array) -> Any:
    return lambda: data


def _as_list(key: SaveKey) -> list[int]:
    return [key.term, key.commit, key.iteration, key.save]

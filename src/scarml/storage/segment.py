"""A segment: what one node saved at one time, as one immutable safetensors file: what it is, and how it is written.

Per table ``W`` the file has these tensors:

=============  ======================  =================================================================
``W/ids``      uint32 or uint64, (n,)  block ids, strictly increasing
``W/lengths``  the same, (n,)          elements of each block; only of tables with ragged fields
``W.value`` …  (n, *shape) or flat     one a field, the blocks in the order of ``W/ids``; see `encoding`
``W/….scale``  float32 or uint8, (n,)  scales of a field whose `encoding` has them
``W/crc32``    uint32, (n,)            CRC-32 of each block: its id as little-endian uint64, then what is stored of it
``extra/…``    any                     arrays of the state that is saved beside the blocks
=============  ======================  =================================================================

`segment_header` reads and checks the header, `segment_rows` the blocks, `segment_extra` the extra state; `compaction`
merges segments. The format: ``docs/storage-format.md``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.encoding import Encoded, Encodings, element_counts, encodings_for
from scarml.checkpoint.version_index import Version
from scarml.core.block import Array, Blocks, Field, Ids
from scarml.errors import ModelError
from scarml.storage.checksum import begin_checksums, extend_checksums, finish_checksums
from scarml.storage.segment_extra import Extra, encode_extra
from scarml.storage.segment_layout import (
    DTYPE_NAMES,
    Column,
    FieldForm,
    TableForm,
    TensorToWrite,
    bytes_of,
    checksum_of,
    encode_file,
    narrowed,
)
from scarml.storage.store import Chunk

__all__ = ["COMPACTOR", "Segment", "SegmentId", "encode_segment"]

COMPACTOR = "compactor"
"""Segments whose node is called so hold blocks of many versions."""

_NAME = re.compile(
    r"segments/(?P<term>\d{8,12})-(?P<commit>\d{12,16})-(?P<node>[a-z]{1,32}-(?:0|[1-9]\d{0,11}))"
    r"-(?P<save_id>\d{8,12})\.safetensors"
)
_BLOCKS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True, order=True)
class SegmentId:
    """What a segment's name says. Sorts from the oldest to the newest.

    Args:
        term, commit: the version of everything in it; of a compacted one: the term that merged it, and the newest
            commit in it.
        save_id: of the save that it is a part of; of a compacted one: a number of its own.
        node: that wrote it, for example ``server-3``.
    """

    term: int
    commit: int
    save_id: int
    node: str

    @property
    def name(self) -> str:
        """The object's name on the store."""
        return f"segments/{self.term:08d}-{self.commit:012d}-{self.node}-{self.save_id:08d}.safetensors"

    @property
    def is_compacted(self) -> bool:
        """Whether it was merged from others, and each of its blocks has a version of its own."""
        return self.node.startswith(COMPACTOR + "-")

    @classmethod
    def parse(cls, name: str) -> SegmentId | None:
        """The id in an object's name, or None if it is no segment's name."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        parsed = cls(int(match["term"]), int(match["commit"]), int(match["save_id"]), match["node"])
        return parsed if parsed.name == name else None


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """What one node saved at one time.

    Args:
        term, commit, iteration: the version of all these blocks.
        node: that saves them.
        save_id: of the save that this is a part of.
        unit: whether the save is a full one, all of whose segments count together.
        tables: by table name, the blocks.
        encodings: how fields are stored, see `scarml.checkpoint.encoding`; what is not named is stored as it is.
        extra: state beside the blocks, saved whole: arrays, and what can be written as JSON.
    """

    term: int
    commit: int
    iteration: int
    node: str
    save_id: int
    unit: bool
    tables: Mapping[str, Blocks]
    encodings: Encodings = field(default_factory=dict)
    extra: Extra | None = None

    @property
    def id(self) -> SegmentId:
        """What its name says."""
        return SegmentId(self.term, self.commit, self.save_id, self.node)

    @property
    def name(self) -> str:
        """The object's name on the store."""
        return self.id.name

    @property
    def version(self) -> Version:
        """The version of all its blocks."""
        return Version(self.term, self.commit, self.iteration)


def encode_segment(segment: Segment) -> Iterator[Chunk]:
    """The file's contents, in pieces; values that are stored as they are are not copied.

    The checksums of a table are computed when their turn comes, so that a disk may store the values meanwhile.

    Raises:
        ModelError: a value cannot be stored, or there are too many tables or too much extra state.
        UsageError: an encoding is none for its field.
    """
    about = {
        "term": segment.term, "commit": segment.commit, "iteration": segment.iteration,
        "node": segment.node, "save_id": segment.save_id, "unit": segment.unit,
    }  # fmt: skip
    tensors: list[TensorToWrite] = []
    tables = []
    for name, blocks in segment.tables.items():
        mine, description = _encode_table(blocks, segment.encodings.get(name, {}))
        tensors += mine
        tables.append(description)
    metadata = {"segment": json.dumps(about), "tables": json.dumps(tables)}
    if segment.extra is not None:
        text, arrays = encode_extra(segment.extra)
        tensors += arrays
        metadata["extra"] = text
    return encode_file(segment.name, metadata, tensors)


def _encode_table(blocks: Blocks, names: Mapping[str, str]) -> tuple[list[TensorToWrite], dict[str, Any]]:
    table, n = blocks.table, len(blocks)
    encodings = encodings_for(table, names)
    form = TableForm(table.name, table.n_blocks, tuple(FieldForm(f, encodings[f.name].name) for f in table.fields))
    index = {"ids": narrowed(blocks.ids)}
    if form.is_ragged:
        index["lengths"] = narrowed(blocks.lengths)
    stored = [(c, a) for f in form.fields for c, a in zip(f.columns, _stored_parts(blocks, f), strict=True)]
    tensors = [TensorToWrite.of(f"{table.name}/{key}", a) for key, a in index.items()]
    for c, a in stored:
        shape = c.shape(n)
        tensors.append(TensorToWrite(table.name + c.suffix, c.dtype, a.shape if shape is None else shape, _always(a)))
    tensors.append(TensorToWrite(f"{table.name}/crc32", "uint32", (n,), partial(_checksums, blocks, stored)))
    return tensors, form.describe(checksum_of(list(index.values())))


def _stored_parts(blocks: Blocks, form: FieldForm) -> list[Array]:
    """A field's scales, if it has any, and values, as they are stored."""
    f, values = form.field, _storable(blocks, form.field)
    if form.encoding == "plain":
        return [values]
    encoding = form.columns[-1].encoding
    encoded: Encoded = encoding.encode(values.reshape(-1), element_counts(blocks.table, f, blocks.ids))
    return [encoded.values] if encoded.scales is None else [encoded.scales, encoded.values]


def _storable(blocks: Blocks, f: Field) -> Array:
    values = blocks.fields[f.name]
    if values.dtype.name not in DTYPE_NAMES or values.dtype != values.dtype.newbyteorder("<"):
        raise ModelError(
            f"field {f.name!r} of table {blocks.table.name!r} has dtype {values.dtype.str!r}, which cannot be stored; "
            f"expected one of {', '.join(DTYPE_NAMES)}, little-endian"
        )
    return np.ascontiguousarray(values)


def _always(array: Array) -> Callable[[], Array]:
    return lambda: array


def _checksums(blocks: Blocks, stored: list[tuple[Column, Array]]) -> NDArray[np.uint32]:
    crc = begin_checksums(blocks.ids)
    lengths: Ids | None = blocks.lengths if blocks.table.lengths is not None else None
    for column, array in stored:
        data = bytes_of(array)
        for first in range(0, len(blocks), _BLOCKS_AT_ONCE):
            part = slice(first, first + _BLOCKS_AT_ONCE)
            extend_checksums(crc[part], data, *column.extents(len(blocks), lengths, part))
    return finish_checksums(crc)

"""A segment: what one node saved at one time, as one immutable safetensors file: what it is, and how it is written.

Per table ``W`` the file has these tensors:

=============  ======================  =================================================================
``W/ids``      uint32 or uint64, (n,)  block ids, strictly increasing
``W/lengths``  the same, (n,)          elements of each block; only of tables with ragged fields
``W.value`` …  (n, *shape) or flat     one a field, the blocks in the order of ``W/ids``
``W/crc32``    uint32, (n,)            CRC-32 of each block: its id as little-endian uint64, then each field
=============  ======================  =================================================================

`segment_header` reads and checks the header, `segment_rows` the blocks. The format: ``docs/storage-format.md``.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.version_index import Version
from scarml.core.block import Array, Blocks, Field, Ids
from scarml.errors import ModelError
from scarml.storage.checksum import begin_checksums, extend_checksums, finish_checksums
from scarml.storage.store import Chunk

__all__ = [
    "DTYPE_NAMES",
    "FORMAT",
    "FORMAT_VERSION",
    "MAX_HEADER_BYTES",
    "Segment",
    "SegmentId",
    "bytes_of",
    "encode_segment",
    "header_checksum",
    "row_extents",
]

FORMAT = "scar-segment"
FORMAT_VERSION = 1
MAX_HEADER_BYTES = 4 << 20

DTYPE_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
"""NumPy's names of the dtypes that can be stored, and those of safetensors."""

_NAME = re.compile(
    r"segments/(?P<term>\d{8,12})-(?P<commit>\d{12,16})-(?P<node>[a-z]{1,32}-\d{1,12})-(?P<save_id>\d{8,12})\.safetensors"
)
_CHECKSUM_KEY = b'{"__metadata__":{"crc32":"'
_CHECKSUM_DIGITS = slice(len(_CHECKSUM_KEY), len(_CHECKSUM_KEY) + 8)
_BLOCKS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True, order=True)
class SegmentId:
    """What a segment's name says. Sorts from the oldest to the newest.

    Args:
        term, commit: the version of everything in it.
        save_id: of the save that it is a part of.
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
    """

    term: int
    commit: int
    iteration: int
    node: str
    save_id: int
    unit: bool
    tables: Mapping[str, Blocks]

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
    """The file's contents: the header, then the memory of the arrays themselves, not copies of it.

    The checksums of a table are computed when their turn comes, so that a disk may store the values meanwhile.

    Raises:
        ModelError: a field's dtype cannot be stored, or there are too many tables.
    """
    tensors: dict[str, Array] = {}
    tables = []
    late: dict[str, Callable[[], Array]] = {}
    for name, blocks in segment.tables.items():
        index, fields, description = _encode_table(name, blocks)
        checksums = f"{name}/crc32"
        tensors |= {**index, **{f"{name}.{f}": a for f, a in fields.items()}, checksums: _unmade(len(blocks))}
        late[checksums] = partial(_checksums, blocks, fields)
        tables.append(description)
    # Wider elements first: then every tensor starts at a multiple of its element's size.
    names = sorted(tensors, key=lambda n: -tensors[n].dtype.itemsize)
    header = _encode_header(segment, tables, {n: tensors[n] for n in names})

    def chunks() -> Iterator[Chunk]:
        yield header
        for n in names:
            yield bytes_of(late[n]() if n in late else tensors[n]).data

    return chunks()


def _unmade(n: int) -> Array:
    """The dtype and shape of checksums, without memory."""
    return np.broadcast_to(np.uint32(0), (n,))


def _encode_table(name: str, blocks: Blocks) -> tuple[dict[str, Array], dict[str, Array], dict[str, Any]]:
    fields = {f.name: _storable(name, f, blocks.fields[f.name]) for f in blocks.table.fields}
    is_ragged = any(f.ragged for f in blocks.table.fields)
    index = {f"{name}/ids": _narrowed(blocks.ids)}
    if is_ragged:
        index[f"{name}/lengths"] = _narrowed(blocks.lengths)
    index_crc = 0
    for part in index.values():
        index_crc = zlib.crc32(bytes_of(part).data, index_crc)
    return (
        index,
        fields,
        {
            "name": name,
            "n_blocks": blocks.table.n_blocks,
            "index_crc32": index_crc,
            "fields": [
                {
                    "name": f.name,
                    "dtype": np.dtype(f.dtype).name,
                    "shape": list(f.shape),
                    "ragged": f.ragged,
                    "encoding": "plain",
                    "scales": None,
                }
                for f in blocks.table.fields
            ],
        },
    )


def _storable(table: str, f: Field, values: Array) -> Array:
    if values.dtype.name not in DTYPE_NAMES or values.dtype != values.dtype.newbyteorder("<"):
        raise ModelError(
            f"field {f.name!r} of table {table!r} has dtype {values.dtype.str!r}, which cannot be stored; "
            f"expected one of {', '.join(DTYPE_NAMES)}, little-endian"
        )
    return np.ascontiguousarray(values)


def _narrowed(numbers: Ids) -> Array:
    """As uint32 where they fit, else as uint64."""
    fits = len(numbers) == 0 or int(numbers.max()) < 1 << 32
    return numbers.astype("<u4" if fits else "<u8")


def _checksums(blocks: Blocks, fields: Mapping[str, Array]) -> NDArray[np.uint32]:
    crc = begin_checksums(blocks.ids)
    lengths = blocks.lengths if blocks.table.lengths is not None else None
    for f in blocks.table.fields:
        data = bytes_of(fields[f.name])
        for first in range(0, len(blocks), _BLOCKS_AT_ONCE):
            part = slice(first, first + _BLOCKS_AT_ONCE)
            extend_checksums(crc[part], data, *row_extents(f, len(blocks), lengths, part))
    return finish_checksums(crc)


def row_extents(f: Field, n: int, lengths: Ids | None, rows: slice | Ids) -> tuple[Ids, Ids]:
    """Where the blocks at positions ``rows``, of ``n`` stored ones, lie in the bytes of a field: starts and sizes.

    ``lengths`` are the ragged elements of all ``n`` blocks.
    """
    itemsize = np.dtype(f.dtype).itemsize
    if f.ragged:
        assert lengths is not None
        sizes = lengths * itemsize
        return (np.cumsum(sizes) - sizes)[rows], sizes[rows]
    at = np.arange(n, dtype=np.int64)[rows] if isinstance(rows, slice) else rows
    size = itemsize * f.n_per_block
    return at * size, np.full(len(at), size, np.int64)


def bytes_of(array: Array) -> NDArray[np.uint8]:
    """The memory of a contiguous array, flat."""
    return array.reshape(-1).view(np.uint8)


def _encode_header(segment: Segment, tables: list[dict[str, Any]], tensors: Mapping[str, Array]) -> bytes:
    about = {
        "term": segment.term, "commit": segment.commit, "iteration": segment.iteration,
        "node": segment.node, "save_id": segment.save_id, "unit": segment.unit,
    }  # fmt: skip
    entries: dict[str, Any] = {
        "__metadata__": {
            "crc32": "0" * 8,
            "format": FORMAT,
            "format_version": str(FORMAT_VERSION),
            "segment": json.dumps(about),
            "tables": json.dumps(tables),
        }
    }
    at = 0
    for name, array in tensors.items():
        end = at + array.nbytes
        entries[name] = {
            "dtype": DTYPE_NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = bytearray(json.dumps(entries, separators=(",", ":")).encode())
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise ModelError(f"the header of {segment.name} has {len(text)} bytes; expected {MAX_HEADER_BYTES} at most: "
                         "save fewer tables")  # fmt: skip
    text[_CHECKSUM_DIGITS] = b"%08x" % zlib.crc32(text)
    return len(text).to_bytes(8, "little") + bytes(text)


def header_checksum(header: bytes) -> tuple[bytes, bytes]:
    """The checksum that a header (without its length) should have, and the one it has, as eight hexadecimal digits.

    It is taken over the header with eight zeros in its place.
    """
    found = header[_CHECKSUM_DIGITS] if header.startswith(_CHECKSUM_KEY) else b"(none)"
    blank = bytearray(header)
    blank[_CHECKSUM_DIGITS] = b"0" * 8
    return b"%08x" % zlib.crc32(blank), found

"""How a segment is laid out: names of tensors, their dtypes and shapes, and where each block lies in them.

Used alike by what writes segments, reads them, and merges them.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.encoding import Encoding, encoding_named
from scarml.core.block import Array, Field, Ids
from scarml.errors import ModelError
from scarml.storage.store import Chunk

__all__ = [
    "DTYPE_NAMES",
    "FORMAT",
    "FORMAT_VERSION",
    "MAX_HEADER_BYTES",
    "VERSION_TENSORS",
    "Column",
    "FieldForm",
    "TableForm",
    "TensorToWrite",
    "bytes_of",
    "checksum_of",
    "encode_file",
    "header_checksum",
    "narrowed",
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

VERSION_TENSORS = ("term", "commit", "iteration", "save")
"""In a compacted segment, per block: the version it was saved under."""

_CHECKSUM_KEY = b'{"__metadata__":{"crc32":"'
_CHECKSUM_DIGITS = slice(len(_CHECKSUM_KEY), len(_CHECKSUM_KEY) + 8)


@dataclass(frozen=True, slots=True)
class Column:
    """A tensor that has a piece of every block: the values of a field, or their scales."""

    field: Field
    encoding: Encoding
    is_scale: bool

    @property
    def suffix(self) -> str:
        """What follows the table in the tensor's name."""
        return f"/{self.field.name}.scale" if self.is_scale else f".{self.field.name}"

    @property
    def dtype(self) -> str:
        """NumPy's name of the stored dtype."""
        scale = self.encoding.scale_dtype if self.is_scale else None
        return scale or self.encoding.stored_dtype(self.field.dtype)

    def shape(self, n: int) -> tuple[int, ...] | None:
        """The tensor's shape for ``n`` blocks; None if it is flat, and as long as the blocks together."""
        if self.is_scale:
            return (n,)
        if self.field.ragged:
            return None
        return (n, *self.field.shape) if self.encoding.keeps_elements else (n, self._dense_bytes())

    def sizes(self, n: int, lengths: Ids | None) -> Ids:
        """Stored bytes of each of ``n`` blocks, shape (n,); ``lengths`` are their ragged elements."""
        if self.is_scale or not self.field.ragged:
            return np.full(n, self._dense_bytes(), np.int64)
        assert lengths is not None
        return self.encoding.value_bytes(lengths, self.field.dtype)

    def extents(self, n: int, lengths: Ids | None, rows: slice | Ids) -> tuple[Ids, Ids]:
        """Where the blocks at positions ``rows``, of ``n`` stored ones, lie in the tensor: starts and sizes in bytes.

        ``lengths`` are the ragged elements of all ``n``.
        """
        if self.field.ragged and not self.is_scale:
            sizes = self.sizes(n, lengths)
            return (np.cumsum(sizes) - sizes)[rows], sizes[rows]
        at = np.arange(n, dtype=np.int64)[rows] if isinstance(rows, slice) else rows
        return at * self._dense_bytes(), np.full(len(at), self._dense_bytes(), np.int64)

    def _dense_bytes(self) -> int:
        if self.is_scale:
            return self.encoding.scale_bytes
        return self.encoding.value_bytes(math.prod(self.field.shape), self.field.dtype)


@dataclass(frozen=True, slots=True)
class FieldForm:
    """A field, and how it is stored."""

    field: Field
    encoding: str

    @property
    def columns(self) -> tuple[Column, ...]:
        """Its tensors, in the order in which checksums take them."""
        encoding = encoding_named(self.encoding)
        value = Column(self.field, encoding, is_scale=False)
        return (Column(self.field, encoding, is_scale=True), value) if encoding.scale_dtype else (value,)


@dataclass(frozen=True, slots=True)
class TableForm:
    """A table as segments describe it; segments of one form can be merged as they are."""

    name: str
    n_blocks: int
    fields: tuple[FieldForm, ...]

    @property
    def is_ragged(self) -> bool:
        """Whether its blocks have lengths."""
        return any(f.field.ragged for f in self.fields)

    @property
    def columns(self) -> tuple[Column, ...]:
        """All tensors of values and scales, in the order in which checksums take them."""
        return tuple(c for f in self.fields for c in f.columns)

    def row_bytes(self, n: int, lengths: Ids | None) -> Ids:
        """Stored bytes of each of ``n`` blocks over all columns, shape (n,)."""
        total = np.zeros(n, np.int64)
        for c in self.columns:
            total += c.sizes(n, lengths)
        return total

    def describe(self, index_crc32: int) -> dict[str, Any]:
        """As the metadata of a segment have it."""
        return {
            "name": self.name,
            "n_blocks": self.n_blocks,
            "index_crc32": index_crc32,
            "fields": [
                {
                    "name": f.field.name,
                    "dtype": np.dtype(f.field.dtype).name,
                    "shape": list(f.field.shape),
                    "ragged": f.field.ragged,
                    "encoding": f.encoding,
                    "scales": next((self.name + c.suffix for c in f.columns if c.is_scale), None),
                }
                for f in self.fields
            ],
        }


@dataclass(frozen=True, slots=True, eq=False)
class TensorToWrite:
    """A tensor whose ``data`` are made, contiguous, when its turn comes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Callable[[], Array]

    @classmethod
    def of(cls, name: str, array: Array) -> TensorToWrite:
        """A tensor that is there already."""
        return cls(name, array.dtype.name, array.shape, lambda: array)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.dtype).itemsize


def encode_file(name: str, metadata: Mapping[str, str], tensors: Sequence[TensorToWrite]) -> Iterator[Chunk]:
    """The contents of a segment's file: the header, then the memory of the arrays themselves, not copies of it.

    Raises:
        ModelError: the header is too large.
    """
    # Wider elements first: then every tensor starts at a multiple of its element's size.
    ordered = sorted(tensors, key=lambda t: -t.itemsize)
    header = _encode_header(name, metadata, ordered)

    def chunks() -> Iterator[Chunk]:
        yield header
        for t in ordered:
            yield bytes_of(t.data()).data

    return chunks()


def _encode_header(name: str, metadata: Mapping[str, str], tensors: Sequence[TensorToWrite]) -> bytes:
    entries: dict[str, Any] = {
        "__metadata__": {"crc32": "0" * 8, "format": FORMAT, "format_version": str(FORMAT_VERSION), **metadata}
    }
    at = 0
    for t in tensors:
        if t.name in entries:
            raise ModelError(f"two tensors of {name} would be called {t.name!r}; give the extra state another name")
        end = at + t.itemsize * math.prod(t.shape)
        entries[t.name] = {"dtype": DTYPE_NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [at, end]}
        at = end
    text = bytearray(json.dumps(entries, separators=(",", ":")).encode())
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise ModelError(f"the header of {name} has {len(text)} bytes; expected {MAX_HEADER_BYTES} at most: "
                         "save fewer tables, or less extra state that is no array")  # fmt: skip
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


def checksum_of(parts: Sequence[Array]) -> int:
    """CRC-32 of the bytes of some arrays, one after the other."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(bytes_of(part).data, crc)
    return crc


def narrowed(numbers: Ids, dtypes: Sequence[str] = ("<u4", "<u8")) -> Array:
    """In the first of these dtypes that holds them all."""
    largest = int(numbers.max(initial=0))
    return numbers.astype(next(d for d in dtypes if largest <= np.iinfo(d).max))


def bytes_of(array: Array) -> NDArray[np.uint8]:
    """The memory of a contiguous array, flat."""
    return array.reshape(-1).view(np.uint8)

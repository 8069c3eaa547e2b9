"""Reading a segment's header. Nothing in a file is believed: sizes, dtypes, names, offsets are checked before use."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from scarml.checkpoint.version_index import Version
from scarml.core.block import Field
from scarml.errors import DamagedError
from scarml.storage.segment import (
    DTYPE_NAMES,
    FORMAT,
    FORMAT_VERSION,
    MAX_HEADER_BYTES,
    SegmentId,
    header_checksum,
)
from scarml.storage.store import Store

__all__ = ["SegmentHeader", "StoredField", "StoredTable", "Tensor", "parse_header", "read_header"]

_FIRST_READ_BYTES = 16 << 10
_DTYPES = {stored: name for name, stored in DTYPE_NAMES.items()}
_MAX_DIMENSIONS = 16
_MAX_NUMBER = 1 << 62


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor lies in the file: it is all inside, and its size fits its dtype and shape."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    size_bytes: int


_NO_TENSOR = Tensor("", (), 0, 0)


@dataclass(frozen=True, slots=True)
class StoredField:
    """A field as it is stored."""

    field: Field
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class StoredTable:
    """The blocks of one table in a segment: n of the table's ``n_blocks``."""

    name: str
    n: int
    n_blocks: int
    index_crc32: int
    ids: Tensor
    lengths: Tensor | None
    checksums: Tensor
    fields: tuple[StoredField, ...]


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """All that a segment says about itself."""

    name: str
    size_bytes: int
    term: int
    commit: int
    iteration: int
    node: str
    save_id: int
    unit: bool
    tables: Mapping[str, StoredTable]

    @property
    def id(self) -> SegmentId:
        """What its name says."""
        return SegmentId(self.term, self.commit, self.save_id, self.node)

    @property
    def version(self) -> Version:
        """The version of all its blocks."""
        return Version(self.term, self.commit, self.iteration)


def read_header(store: Store, name: str) -> SegmentHeader:
    """Read and check a segment's header.

    Raises:
        NotFoundError: there is no such segment.
        DamagedError: it is not a whole segment, or one of a newer format.
    """
    size = store.size(name)
    head = store.get_range(name, 0, min(size, _FIRST_READ_BYTES))
    n_header = int.from_bytes(head[:8], "little")
    if len(head) < 8 or n_header > MAX_HEADER_BYTES or 8 + n_header > size:
        raise DamagedError(
            f"{name} has {size} bytes and a header of {n_header}; expected the header to fit in the file "
            f"and in {MAX_HEADER_BYTES} bytes. It is torn, or no segment"
        )
    if 8 + n_header > len(head):
        head += store.get_range(name, len(head), 8 + n_header - len(head))
    return parse_header(name, head[8 : 8 + n_header], size)


def parse_header(name: str, header: bytes, size_bytes: int) -> SegmentHeader:
    """Check a segment's header (without the length before it), given the name and the size of the file."""
    expected, found = header_checksum(header)
    if expected != found:
        _fail(name, f"the header's checksum is {expected.decode()}; expected {found.decode(errors='replace')}")
    entries = _load_json(name, "the header", header)
    _expect(isinstance(entries, dict), name, "the header is not a JSON object")
    metadata = entries.pop("__metadata__", None)
    _expect(isinstance(metadata, dict) and metadata.get("format") == FORMAT, name, f"it is not marked as a {FORMAT}")
    version = metadata.get("format_version")
    if version != str(FORMAT_VERSION):
        _fail(name, f"it has format version {version!r}, this SCAR reads version {FORMAT_VERSION}: use a newer SCAR")
    tensors = _check_tensors(name, entries, first=8 + len(header), end=size_bytes)
    about = _load_json(name, "the description of the segment", metadata.get("segment"))
    tables = _load_json(name, "the description of the tables", metadata.get("tables"))
    _expect(isinstance(about, dict) and isinstance(tables, list), name, "its descriptions have the wrong form")
    stored = [_check_table(name, t, tensors) for t in tables]
    _expect(not tensors, name, f"tensors {sorted(tensors)[:3]} belong to no table")
    result = SegmentHeader(
        name=name,
        size_bytes=size_bytes,
        **{k: _number(name, about, k) for k in ("term", "commit", "iteration", "save_id")},
        node=str(about.get("node")),
        unit=about.get("unit") is True,
        tables={t.name: t for t in stored},
    )
    _expect(result.id.name == name, name, f"its header says that it is {result.id.name}")
    return result


def _check_tensors(name: str, entries: Mapping[str, Any], first: int, end: int) -> dict[str, Tensor]:
    """All tensors by name; together they fill the bytes from ``first`` to ``end`` without a gap."""
    tensors = {key: _check_tensor(name, key, entry, first) for key, entry in entries.items()}
    at = first
    for tensor in sorted(tensors.values(), key=lambda t: (t.start, t.size_bytes)):
        _expect(tensor.start == at, name, f"there is a gap or an overlap at byte {at}")
        at += tensor.size_bytes
    _expect(at == end, name, f"its tensors end at byte {at}; expected {end}, the size of the file")
    return tensors


def _check_tensor(name: str, key: str, entry: Any, first: int) -> Tensor:
    _expect(isinstance(entry, dict), name, f"the entry of tensor {key!r} is not an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    is_described = isinstance(dtype, str) and dtype in _DTYPES and _are_numbers(shape) and _are_numbers(offsets)
    _expect(is_described, name, f"tensor {key!r} has an unknown dtype or a shape or offsets that are no numbers")
    _expect(len(offsets) == 2 and len(shape) <= _MAX_DIMENSIONS, name, f"tensor {key!r} has a wrong number of offsets")
    size = np.dtype(_DTYPES[dtype]).itemsize
    for n in shape:
        size *= n
    begin, end = offsets
    _expect(end - begin == size, name, f"tensor {key!r} has {end - begin} bytes; expected {size} for its shape")
    return Tensor(_DTYPES[dtype], tuple(shape), first + begin, size)


def _check_table(name: str, entry: Any, tensors: dict[str, Tensor]) -> StoredTable:
    """One table's description against the tensors, which it takes out of ``tensors``."""
    _expect(isinstance(entry, dict), name, "the description of a table is not an object")
    table = entry.get("name")
    _expect(isinstance(table, str) and table.isidentifier(), name, "a table has no name")
    _expect(isinstance(entry.get("fields"), list), name, f"table {table!r} has no fields")
    fields = [_check_field(name, table, f) for f in entry["fields"]]
    names = [f.name for f in fields]
    _expect("value" in names and len(set(names)) == len(names), name, f"table {table!r} has fields {names}")
    ids = _take(name, tensors, f"{table}/ids", ("uint32", "uint64"))
    n = ids.shape[0]
    is_ragged = any(f.ragged for f in fields)
    lengths = _take(name, tensors, f"{table}/lengths", ("uint32", "uint64"), n) if is_ragged else None
    return StoredTable(
        name=table,
        n=n,
        n_blocks=_number(name, entry, "n_blocks"),
        index_crc32=_number(name, entry, "index_crc32"),
        ids=ids,
        lengths=lengths,
        checksums=_take(name, tensors, f"{table}/crc32", ("uint32",), n),
        fields=tuple(StoredField(f, _take_field(name, tensors, table, f, n)) for f in fields),
    )


def _check_field(name: str, table: str, entry: Any) -> Field:
    _expect(isinstance(entry, dict), name, f"the description of a field of table {table!r} is not an object")
    key, dtype, shape, ragged = (entry.get(k) for k in ("name", "dtype", "shape", "ragged"))
    is_described = isinstance(key, str) and key.isidentifier() and isinstance(dtype, str) and dtype in DTYPE_NAMES
    _expect(is_described and _are_numbers(shape), name, f"field {key!r} of table {table!r} is not described")
    _expect(isinstance(ragged, bool) and not (ragged and shape), name, f"field {key!r} is ragged and has a shape")
    if entry.get("encoding") != "plain" or entry.get("scales") is not None:
        _fail(name, f"field {key!r} has encoding {entry.get('encoding')!r}, which this SCAR cannot read")
    return Field(key, dtype, tuple(shape), ragged)


def _take(name: str, tensors: dict[str, Tensor], key: str, dtypes: Sequence[str], n: int | None = None) -> Tensor:
    tensor = tensors.pop(key, _NO_TENSOR)
    fits = tensor.dtype in dtypes and len(tensor.shape) == 1 and n in (None, tensor.shape[0])
    _expect(fits, name, f"tensor {key!r} is missing, or has not one {dtypes[0]} a block")
    return tensor


def _take_field(name: str, tensors: dict[str, Tensor], table: str, f: Field, n: int) -> Tensor:
    tensor = tensors.pop(f"{table}.{f.name}", _NO_TENSOR)
    _expect(tensor.dtype == f.dtype, name, f"field {f.name!r} of table {table!r} is missing, or is not {f.dtype}")
    fits = len(tensor.shape) == 1 if f.ragged else tensor.shape == (n, *f.shape)
    _expect(fits, name, f"field {f.name!r} of table {table!r} has shape {tensor.shape} for {n} blocks")
    return tensor


def _load_json(name: str, what: str, text: Any) -> Any:
    if not isinstance(text, str | bytes):
        _fail(name, f"{what} is missing")
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as e:  # among the ValueErrors: bad JSON, bad UTF-8, a number of too many digits
        raise DamagedError(f"{name} is damaged: {what} is no JSON that can be read ({str(e)[:80]})") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key is there twice")
    return result


def _number(name: str, entry: Mapping[str, Any], key: str) -> int:
    value = entry.get(key)
    if not _is_number(value):
        _fail(name, f"{key} is {str(value)[:40]!r}; expected a number that is not negative")
    return int(value or 0)


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX_NUMBER


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(_is_number(v) for v in values)


def _expect(condition: bool, name: str, problem: str) -> None:
    if not condition:
        _fail(name, problem)


def _fail(name: str, problem: str) -> NoReturn:
    raise DamagedError(f"{name} is damaged: {problem}. An older copy of its blocks is used where there is one")

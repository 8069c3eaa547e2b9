"""Checks of what a segment's header says: sizes, dtypes, names, offsets. Whatever fails is a `DamagedError`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from scarml.checkpoint.encoding import encoding_named
from scarml.core.block import Field
from scarml.errors import DamagedError, UsageError
from scarml.storage.segment_extra import is_extra_name
from scarml.storage.segment_layout import DTYPE_NAMES, Column, FieldForm, TableForm

__all__ = [
    "Tensor",
    "check_extra",
    "check_form",
    "check_tensors",
    "expect",
    "fail",
    "load_json",
    "number",
    "numbers",
    "take",
    "take_column",
]

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


def check_tensors(name: str, entries: Mapping[str, Any], first: int, end: int) -> dict[str, Tensor]:
    """All tensors by name; together they fill the bytes from ``first`` to ``end`` without a gap."""
    tensors = {key: _check_tensor(name, key, entry, first) for key, entry in entries.items()}
    at = first
    for tensor in sorted(tensors.values(), key=lambda t: (t.start, t.size_bytes)):
        expect(tensor.start == at, name, f"there is a gap or an overlap at byte {at}")
        at += tensor.size_bytes
    expect(at == end, name, f"its tensors end at byte {at}; expected {end}, the size of the file")
    return tensors


def _check_tensor(name: str, key: str, entry: Any, first: int) -> Tensor:
    expect(isinstance(entry, dict), name, f"the entry of tensor {key!r} is not an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    is_described = isinstance(dtype, str) and dtype in _DTYPES and _are_numbers(shape) and _are_numbers(offsets)
    expect(is_described, name, f"tensor {key!r} has an unknown dtype or a shape or offsets that are no numbers")
    expect(len(offsets) == 2 and len(shape) <= _MAX_DIMENSIONS, name, f"tensor {key!r} has a wrong number of offsets")
    size = np.dtype(_DTYPES[dtype]).itemsize
    span = math.prod(n for n in shape if n)  # NumPy refuses an array of none, if its other dimensions are too large
    expect(size * span < _MAX_NUMBER, name, f"tensor {key!r} has shape {shape}; expected one that an array can have")
    size *= math.prod(shape)
    begin, end = offsets
    expect(end - begin == size, name, f"tensor {key!r} has {end - begin} bytes; expected {size} for its shape")
    return Tensor(_DTYPES[dtype], tuple(shape), first + begin, size)


def check_form(name: str, entry: Any) -> TableForm:
    """A table's description, without regard to its tensors."""
    expect(isinstance(entry, dict), name, "the description of a table is not an object")
    table = entry.get("name")
    expect(isinstance(table, str) and table.isidentifier(), name, "a table has no name")
    expect(isinstance(entry.get("fields"), list), name, f"table {table!r} has no fields")
    fields = [_check_field(name, table, f) for f in entry["fields"]]
    names = [f.field.name for f in fields]
    expect("value" in names and len(set(names)) == len(names), name, f"table {table!r} has fields {names}")
    return TableForm(table, number(name, entry, "n_blocks"), tuple(fields))


def _check_field(name: str, table: str, entry: Any) -> FieldForm:
    expect(isinstance(entry, dict), name, f"the description of a field of table {table!r} is not an object")
    key, dtype, shape, ragged = (entry.get(k) for k in ("name", "dtype", "shape", "ragged"))
    is_described = isinstance(key, str) and key.isidentifier() and isinstance(dtype, str) and dtype in DTYPE_NAMES
    expect(is_described and _are_numbers(shape), name, f"field {key!r} of table {table!r} is not described")
    expect(len(shape) <= _MAX_DIMENSIONS, name, f"field {key!r} of table {table!r} has {len(shape)} dimensions")
    expect(isinstance(ragged, bool) and not (ragged and shape), name, f"field {key!r} is ragged and has a shape")
    field = Field(key, dtype, tuple(shape), ragged)
    form = FieldForm(field, _check_encoding(name, field, entry.get("encoding")))
    scales = next((table + c.suffix for c in form.columns if c.is_scale), None)
    expect(entry.get("scales") == scales, name, f"field {key!r} says that its scales are {entry.get('scales')!r}")
    return form


def _check_encoding(name: str, field: Field, encoding: Any) -> str:
    expect(isinstance(encoding, str), name, f"field {field.name!r} has no encoding")
    try:
        problem = encoding_named(encoding).problem_with(field)
    except UsageError:
        fail(name, f"field {field.name!r} has encoding {encoding[:40]!r}, which this SCAR cannot read")
    expect(problem is None, name, f"field {field.name!r} cannot be stored as {encoding}: {problem}")
    return str(encoding)


def check_extra(name: str, entry: Any, tensors: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Values and arrays of the extra state, whose tensors it takes out of ``tensors``."""
    expect(isinstance(entry, dict), name, "the extra state is not an object")
    values, arrays = entry.get("values"), entry.get("arrays")
    expect(isinstance(values, dict) and isinstance(arrays, list), name, "the extra state has the wrong form")
    names = [*values, *arrays]
    are_names = all(map(is_extra_name, names)) and len(set(names)) == len(names)
    expect(are_names, name, "the names of its extra state are none, or are there twice")
    expect(all(f"extra/{a}" in tensors for a in arrays), name, "an array of its extra state is missing")
    return values, {a: tensors.pop(f"extra/{a}") for a in arrays}


def take(name: str, tensors: dict[str, Tensor], key: str, dtypes: Sequence[str], n: int | None = None) -> Tensor:
    """Take a tensor of one number a block out of ``tensors``."""
    tensor = tensors.pop(key, _NO_TENSOR)
    fits = tensor.dtype in dtypes and len(tensor.shape) == 1 and n in (None, tensor.shape[0])
    expect(fits, name, f"tensor {key!r} is missing, or has not one {dtypes[0]} a block")
    return tensor


def take_column(name: str, tensors: dict[str, Tensor], form: TableForm, column: Column, n: int) -> Tensor:
    """Take the tensor of a column out of ``tensors``."""
    f = column.field
    tensor = tensors.pop(form.name + column.suffix, _NO_TENSOR)
    what = f"field {f.name!r} of table {form.name!r}"
    expect(tensor.dtype == column.dtype, name, f"{what} is missing, or is not {column.dtype}")
    shape = column.shape(n)
    fits = len(tensor.shape) == 1 if shape is None else tensor.shape == shape
    expect(fits, name, f"{what} has shape {tensor.shape} for {n} blocks")
    return tensor


def load_json(name: str, what: str, text: Any) -> Any:
    """JSON whose objects have no key twice."""
    if not isinstance(text, str | bytes):
        fail(name, f"{what} is missing")
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as e:  # among the ValueErrors: bad JSON, bad UTF-8, a number of too many digits
        raise DamagedError(f"{name} is damaged: {what} is no JSON that can be read ({str(e)[:80]})") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key is there twice")
    return result


def number(name: str, entry: Mapping[str, Any], key: str) -> int:
    """A number of an object, not negative."""
    value = entry.get(key)
    if not _is_number(value):
        fail(name, f"{key} is {str(value)[:40]!r}; expected a number that is not negative")
    return int(value or 0)


def numbers(name: str, values: Any, n: int) -> list[int]:
    """A list of n numbers, none negative."""
    if not _are_numbers(values) or len(values) != n:
        fail(name, f"{str(values)[:40]!r} is there where {n} numbers are expected")
    return list(values)


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX_NUMBER


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(_is_number(v) for v in values)


def expect(condition: bool, name: str, problem: str) -> None:
    """Raise unless the condition holds."""
    if not condition:
        fail(name, problem)


def fail(name: str, problem: str) -> NoReturn:
    """The segment ``name`` is damaged."""
    raise DamagedError(f"{name} is damaged: {problem}. An older copy of its blocks is used where there is one")

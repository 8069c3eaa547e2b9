"""How the values of a field are stored: as they are, or narrower, so that the same bytes buy more blocks.

===============  ===============================  ==================================================================
name             for fields of                    a block of n elements is stored as
===============  ===============================  ==================================================================
``plain``        any dtype                        itself
``float32``      float64                          n float32, 4n bytes
``bfloat16``     float32, float64                 n upper halves of float32, 2n bytes
``int8``         float32, float64, called value   a float32 scale and n multiples of it in −127 … 127, 4 + n bytes
``mxint8``       float32, float64, called value   the same with a power of two as the scale, 1 + n bytes
``mxfp8``        float32, float64                 n floating-point numbers of a byte (E5M2), times a power of two, 1 + n
``packed-<k>``   integers in 0 … 2^k − 1          k bits a value, ⌈nk/8⌉ bytes; loses nothing
===============  ===============================  ==================================================================

Rounding twice is rounding once, to the bit: ``decode(encode(x)) = r`` gives ``decode(encode(r)) = r``. So a cache may
hold rounded values and hand them on to be stored. For ``int8`` that holds because a scale has 17 significant bits: its
products with −127 … 127 are exact in float32.

For short blocks a float32 is a large scale: 4 bytes beside 10 for a row of 10 numbers. ``mxint8`` has an exponent of
one byte, as the OCP microscaling formats do (E8M0; there 32 elements share it, here a block does), and a step that is
up to twice as large. ``mxfp8`` keeps the order of magnitude over 31 powers of two, with an error of up to an eighth,
and lets nothing become zero: it is for the moments of an optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scarml.checkpoint.encoding_kinds import ENCODINGS, PACKED, Encoded, Encoding
from scarml.core.block import Field, Ids, Table
from scarml.errors import UsageError

__all__ = [
    "Encoded",
    "Encoding",
    "Encodings",
    "element_counts",
    "encoding_named",
    "encodings_for",
    "narrow",
    "packed_for",
    "stored_block_bytes",
]

_LONG = 32
"""Elements of a block for which the scale of ``int8`` is small."""
Encodings = Mapping[str, Mapping[str, str]]
"""Per table and field the name of an encoding; what is not named is plain."""


def encoding_named(name: str, also: Sequence[str] = ()) -> Encoding:
    """The encoding of that name. Raises UsageError with the names there are, and those that may ``also`` be given."""
    if not isinstance(name, str):
        raise UsageError(f"encoding {name!r} is no name; expected text such as int8")
    if name not in ENCODINGS:
        named = [*(n for n in ENCODINGS if n not in PACKED), *also]
        raise UsageError(f"encoding {name!r} is unknown; choose one of {', '.join(named)}, packed-<bits, 1 to 63>")
    return ENCODINGS[name]


def packed_for(n_values: int) -> str:
    """The name of the encoding that packs integers in 0 … ``n_values`` − 1 into the fewest bits.

    Example:
        >>> packed_for(1000)
        'packed-10'
    """
    return f"packed-{max(1, (n_values - 1).bit_length())}"


def narrow(tables: Sequence[Table]) -> Encodings:
    """The narrowest form of every field that is made for it.

    For values that are floating-point numbers ``int8``, or ``mxint8`` where a block has fewer than 32 of them, so that
    a scale of 4 bytes would be a tenth of it or more; beside them ``mxfp8`` for the moments of an optimizer, and
    bfloat16 for anything else; and for integers of which it is known what they are below as few bits as that takes.

    Example:
        >>> rows = Table("W", 8, (Field("value"), Field("m", moment=True), Field("step", "int32")))
        >>> narrow([rows, Table("docs", 2, (Field("value", "uint8", below=20),))])
        {'W': {'value': 'mxint8', 'm': 'mxfp8'}, 'docs': {'value': 'packed-5'}}
    """
    named = {t.name: {f.name: form for f in t.fields if (form := _narrowest(f))} for t in tables if not t.derived}
    return {name: fields for name, fields in named.items() if fields}


def _narrowest(field: Field) -> str | None:
    if np.dtype(field.dtype).name in ("float32", "float64"):
        if field.name != "value":
            return "mxfp8" if field.moment else "bfloat16"
        return "int8" if field.ragged or field.n_per_block >= _LONG else "mxint8"
    return None if field.below is None else packed_for(field.below)


def encodings_for(table: Table, names: Mapping[str, str]) -> dict[str, Encoding]:
    """The encoding of every field of a table.

    Args:
        table: whose blocks are stored.
        names: per field the name of its encoding; fields that are not named are plain.

    Raises:
        UsageError: a name is unknown, or an encoding is none for that field.

    Example:
        >>> table = Table("W", 784, (Field("value", "float32", (10,)),))
        >>> encodings_for(table, {"value": "int8"})["value"].name
        'int8'
    """
    if not isinstance(names, Mapping):
        raise UsageError(
            f"the encodings of table {table.name!r} are {names!r}; expected a dict by field, such as "
            '{"value": "int8"}'
        )
    unknown = sorted(set(names) - {f.name for f in table.fields})
    if unknown:
        raise UsageError(f"table {table.name!r} has no field {unknown[0]!r} to give an encoding")
    chosen = {f.name: encoding_named(names.get(f.name, "plain")) for f in table.fields}
    for f in table.fields:
        problem = chosen[f.name].problem_with(f)
        if problem is not None:
            raise UsageError(
                f"field {f.name!r} of table {table.name!r} ({f.dtype}) cannot be stored as {chosen[f.name].name}: "
                f"{problem}"
            )
    return chosen


def element_counts(table: Table, f: Field, ids: Ids) -> Ids:
    """Elements of the field in each of the blocks ``ids``, shape (n,)."""
    return table.block_lengths[ids] if f.ragged else np.full(len(ids), f.n_per_block, np.int64)


def stored_block_bytes(table: Table, names: Mapping[str, str], ids: Ids | None = None) -> Ids:
    """Stored size of the blocks ``ids`` (None: all) over all fields, scales included, in bytes, shape (n,).

    Raises as `encodings_for`.

    Example:
        >>> table = Table("W", 784, (Field("value", "float32", (10,)),))
        >>> stored_block_bytes(table, {"value": "int8"})[:2].tolist()
        [14, 14]
    """
    ids = table.all_ids if ids is None else ids
    encodings = encodings_for(table, names)
    size = np.zeros(len(ids), np.int64)
    for f in table.fields:
        size += encodings[f.name].size_bytes(element_counts(table, f, ids), f.dtype)
    return size

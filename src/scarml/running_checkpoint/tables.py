"""The user's own arrays as tables: `rows` and `ragged`. Nothing is copied; what is restored is filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scarml.core.block import Array, Blocks, Field, Ids, Table
from scarml.errors import UsageError

__all__ = ["Ragged", "Rows", "blocks_over", "check_ids", "check_names", "ragged", "rows"]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A table whose blocks are the rows of arrays. Made by `rows`."""

    fields: Mapping[str, Array]


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """A table whose blocks have different lengths. Made by `ragged`."""

    fields: Mapping[str, Array]
    lengths: Ids


def rows(array: Array, /, **fields: Array) -> Rows:
    """A table with one block for each row, along the first axis.

    Args:
        array: shape (n, …), any numeric dtype; distances are taken over it. It must be C-contiguous and writeable, and
            stay the same object: restored rows are written into it.
        fields: arrays that belong to it, shape (n, …) each, for example an optimizer's moments: row i of all of them is
            saved, and restored, together.

    Returns:
        What `scarml.RunningCheckpoint` takes as a table.

    Raises:
        UsageError: from `scarml.RunningCheckpoint`, which knows the table's name, if an array cannot be used.

    Example:
        >>> W, m = np.zeros((784, 10), np.float32), np.zeros((784, 10), np.float32)
        >>> sorted(rows(W, m=m).fields)
        ['m', 'value']
    """
    return Rows(_joined(array, fields))


def ragged(values: Array, lengths: ArrayLike, /, **fields: Array) -> Ragged:
    """A table whose block i is the next ``lengths[i]`` elements of a flat array.

    Args:
        values: shape (sum of ``lengths``,), any numeric dtype; distances are taken over it. As in `rows` it is written
            into when blocks are restored.
        lengths: elements of each block, shape (n,); may be 0, and must be the same whenever the run is resumed.
        fields: arrays that belong to it: of the shape of ``values``, cut in the same way, or (n, …), a row for each
            block.

    Returns:
        What `scarml.RunningCheckpoint` takes as a table.

    Example:
        >>> topics, lengths = np.zeros(6, np.uint16), [3, 1, 2]
        >>> ragged(topics, lengths).lengths.tolist()
        [3, 1, 2]
    """
    return Ragged(_joined(values, fields), np.ascontiguousarray(lengths, dtype=np.int64))


def _joined(value: Array, fields: Mapping[str, Array]) -> dict[str, Array]:
    if "value" in fields:
        raise UsageError("the first array is the field 'value'; give the other one another name")
    return {"value": value, **fields}


def blocks_over(name: str, given: object) -> Blocks:
    """All blocks of a table, over the user's own memory.

    Args:
        name: of the table.
        given: `Rows` or `Ragged`, or just an array, which means its rows.

    Raises:
        UsageError: an array cannot be used so.
    """
    if isinstance(given, np.ndarray):
        given = rows(given)
    if not isinstance(given, Rows | Ragged):
        raise UsageError(f"table {name!r} is {type(given).__name__}; expected scar.rows(…), scar.ragged(…) or an array")
    for field, array in given.fields.items():
        _check_memory(f"field {field!r} of table {name!r}", array)
    return _over_rows(name, given) if isinstance(given, Rows) else _over_ragged(name, given)


def _over_rows(name: str, given: Rows) -> Blocks:
    n = len(given.fields["value"])
    for field, array in given.fields.items():
        if len(array) != n:
            raise UsageError(f"field {field!r} of table {name!r} has {len(array)} rows; expected {n}, as 'value' has")
    fields = tuple(Field(f, a.dtype.name, a.shape[1:]) for f, a in given.fields.items())
    table = Table(name, n, fields)
    return Blocks(table, table.all_ids, dict(given.fields))


def _over_ragged(name: str, given: Ragged) -> Blocks:
    lengths, flat = given.lengths, given.fields["value"].shape
    if lengths.ndim != 1 or flat != (int(lengths.sum()),):
        raise UsageError(
            f"table {name!r} has values of shape {flat}; expected ({int(lengths.sum())},), the sum of its lengths"
        )
    fields = []
    for field, array in given.fields.items():
        if array.shape == flat:
            fields.append(Field(field, array.dtype.name, ragged=True))
        elif len(array) == len(lengths):
            fields.append(Field(field, array.dtype.name, array.shape[1:]))
        else:
            raise UsageError(
                f"field {field!r} of table {name!r} has shape {array.shape}; expected {flat}, as the values have, "
                f"or {len(lengths)} rows, one for each block"
            )
    table = Table(name, len(lengths), tuple(fields), lengths=lengths)
    return Blocks(table, table.all_ids, dict(given.fields))


def _check_memory(what: str, array: Any) -> None:
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{what} is {type(array).__name__}; expected a NumPy array, which can be filled in place")
    if array.ndim == 0:
        raise UsageError(f"{what} is a single number; expected an array with a row for each block")
    dtype = array.dtype
    if dtype.kind not in "fiub" or dtype.itemsize > 8 or not dtype.isnative:
        raise UsageError(f"{what} has dtype {dtype.str!r}; expected floats, integers or booleans of 8 bytes at most")
    if not array.flags.c_contiguous:
        raise UsageError(f"{what} is not C-contiguous; give it as np.ascontiguousarray(…), and train on that array")
    if not array.flags.writeable:
        raise UsageError(f"{what} is read-only; expected an array that can be filled when the run is resumed")


def check_names(tables: Iterable[str], given: object, what: str) -> None:
    """Raise UsageError if what the user gives by table is not, or a name is none of a table."""
    known = list(tables)
    if not isinstance(given, Mapping):
        raise UsageError(f"{what} is {type(given).__name__}; expected a dict by table, such as {{{known[0]!r}: …}}")
    for name in given:
        if name not in known:
            raise UsageError(f"{what} names the table {name!r}; there are {', '.join(map(repr, known))}")


def check_ids(table: Table, ids: Any, *, unique: bool) -> Ids:
    """Block ids that the user gives, as int64: numbers, or a flag for every block.

    Args:
        table: whose blocks they are.
        ids: shape (n,), in any order.
        unique: none may be there twice; the result is then ascending.

    Raises:
        UsageError: they are not ids of this table.
    """
    try:
        found = np.asarray(ids)
    except ValueError:  # lists of different lengths
        found = np.zeros((), object)
    if found.dtype == bool and found.shape == (table.n_blocks,):
        return np.flatnonzero(found)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size):
        raise UsageError(
            f"the ids of table {table.name!r} are {found.dtype} of shape {found.shape}; expected integers of shape "
            f"(n,), or {table.n_blocks} flags"
        )
    if len(found) and not 0 <= int(found.min()) <= int(found.max()) < table.n_blocks:
        raise UsageError(
            f"table {table.name!r} has no block {int(found.min() if found.min() < 0 else found.max())}; "
            f"expected ids from 0 to {table.n_blocks - 1}"
        )
    found = found.astype(np.int64, copy=False)
    if unique:
        found = np.sort(found)
        again = found[1:][found[1:] == found[:-1]]
        if len(again):
            raise UsageError(f"block {int(again[0])} of table {table.name!r} is given twice")
    return found

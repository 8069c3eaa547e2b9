"""Blocks, fields and tables: the units in which parameters are placed, saved, lost and restored.

A *block* is the unit of saving and restoring (a row of a matrix, a document's topic assignments, a tensor or a slice
of it). A *table* is a named set of blocks, numbered 0 … n_blocks − 1. Every block of a table has the same *fields*
(``value``; for Adam also ``m``, ``v``, ``step``), which are saved and restored together.

A field is either dense, with one shape for all blocks, or ragged, with ``lengths[i]`` elements for block ``i``. The
length of a block never changes, so that a block can be overwritten in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from scarml.core.runs import copy_runs
from scarml.errors import ModelError

__all__ = ["Array", "Blocks", "Field", "Ids", "Table", "concatenate", "flat_index", "positions_of_common"]

Array = NDArray[Any]
Ids = NDArray[np.int64]

_FEW = 256
"""Elements of a row up to which a loop copies it faster than NumPy's assignment by index."""


@dataclass(frozen=True, slots=True)
class Field:
    """One named component of every block of a table.

    Args:
        name: ``value`` is the one that distances are taken over.
        dtype: a NumPy numeric dtype name, for example ``"float32"``.
        shape: shape per block of a dense field; ``()`` for one number a block.
        ragged: the block has ``table.lengths[i]`` elements; ``shape`` must then be ``()``.
        below: of integers, if it is known: all are in 0 … ``below`` − 1, so that they can be stored in fewer bits.
        moment: an optimizer's running mean, of which a rough value will do as long as it does not become zero.
    """

    name: str
    dtype: str = "float32"
    shape: tuple[int, ...] = ()
    ragged: bool = False
    below: int | None = field(default=None, compare=False)  # as the next, a hint: segments do not have it
    moment: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not str(self.name).isidentifier():
            raise ModelError(f"field name {self.name!r} is not an identifier; use letters, digits and '_'")
        if np.dtype(self.dtype).kind not in "fiub":
            raise ModelError(f"field {self.name!r} has dtype {self.dtype!r}; expected a numeric dtype")
        if self.below is not None and (np.dtype(self.dtype).kind not in "iu" or self.below < 1):
            raise ModelError(
                f"field {self.name!r} ({self.dtype}) has below={self.below}; it is for integers, from 1 on"
            )
        if self.ragged and self.shape:
            raise ModelError(f"field {self.name!r} is ragged and has shape {self.shape}; a ragged field has no shape")

    @property
    def n_per_block(self) -> int:
        """Elements per block of a dense field."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A named set of blocks.

    Args:
        name: unique within a model.
        n_blocks: blocks are numbered 0 … n_blocks − 1.
        fields: what every block consists of; one of them is called ``value``.
        home: ``server`` (default), or ``worker``: the blocks live beside the data shard that they belong to.
        derived: rebuilt from other state after a loss, never saved.
        dead_at_boundary: between two iterations nothing depends on it: the first phase computes the blocks anew before
            anything reads them. What a phase-aware checkpoint saves goes to other tables first.
        lengths: elements of each block's ragged fields, shape (n_blocks,); needed if there is a ragged field.
        weights: how much the loss feels it when a block moves, beside the others, shape (n_blocks,), above 0; for
            example the root of its curvature along the block. None: all the same.

    Raises:
        ModelError: if the description contradicts itself.

    Example:
        >>> Table("W", 784, (Field("value", "float32", (10,)),)).block_bytes[:2].tolist()
        [40, 40]
    """

    name: str
    n_blocks: int
    fields: tuple[Field, ...]
    home: Literal["server", "worker"] = "server"
    derived: bool = False
    dead_at_boundary: bool = False
    lengths: Ids | None = None
    weights: NDArray[np.float64] | None = None
    offsets: Ids | None = field(init=False, default=None)
    """Where each block starts in a full ragged field, shape (n_blocks + 1,); None without ``lengths``."""

    def __post_init__(self) -> None:
        names = [f.name for f in self.fields]
        if not str(self.name).isidentifier():
            raise ModelError(f"table name {self.name!r} is not an identifier; use letters, digits and '_'")
        if self.n_blocks < 1:
            raise ModelError(f"table {self.name!r} has {self.n_blocks} blocks; expected at least 1")
        if "value" not in names or len(set(names)) != len(names):
            raise ModelError(f"table {self.name!r} has fields {names}; expected distinct names, one of them 'value'")
        if self.home not in ("server", "worker"):
            raise ModelError(f"table {self.name!r} has home {self.home!r}; expected 'server' or 'worker'")
        if any(f.ragged for f in self.fields) and self.lengths is None:
            raise ModelError(f"table {self.name!r} has a ragged field but no lengths; give one length per block")
        if self.lengths is not None:
            lengths = np.ascontiguousarray(self.lengths, dtype=np.int64)
            if lengths.shape != (self.n_blocks,) or (lengths < 0).any():
                raise ModelError(f"table {self.name!r}: lengths must be {self.n_blocks} numbers that are not negative")
            offsets = np.zeros(self.n_blocks + 1, np.int64)
            np.cumsum(lengths, out=offsets[1:])
            object.__setattr__(self, "lengths", lengths)
            object.__setattr__(self, "offsets", offsets)
        if self.weights is not None:
            weights = np.asarray(self.weights, np.float64)
            if weights.shape != (self.n_blocks,) or not (np.isfinite(weights) & (weights > 0)).all():
                raise ModelError(f"table {self.name!r}: weights must be {self.n_blocks} finite numbers above 0")
            object.__setattr__(self, "weights", weights)

    @property
    def all_ids(self) -> Ids:
        """Every block id, ascending."""
        return np.arange(self.n_blocks, dtype=np.int64)

    @property
    def block_bytes(self) -> Ids:
        """Size of each block over all fields, in bytes, shape (n_blocks,)."""
        size = np.zeros(self.n_blocks, np.int64)
        for f in self.fields:
            itemsize = np.dtype(f.dtype).itemsize
            size += itemsize * (self.block_lengths if f.ragged else f.n_per_block)
        return size

    @property
    def block_lengths(self) -> Ids:
        """`lengths`, or an error for a table that has none."""
        if self.lengths is None:
            raise ModelError(f"table {self.name!r} has no ragged field, so its blocks have no lengths")
        return self.lengths

    def empty(self, ids: Ids) -> Blocks:
        """Blocks of zeros for ``ids``."""
        n_ragged = int(self.block_lengths[ids].sum()) if self.lengths is not None else 0
        shapes = {f.name: (n_ragged,) if f.ragged else (len(ids), *f.shape) for f in self.fields}
        return Blocks(self, ids, {f.name: np.zeros(shapes[f.name], f.dtype) for f in self.fields})


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Some blocks of one table: ids, and for every field the values of those blocks.

    Args:
        table: what they are blocks of.
        ids: strictly increasing block ids, shape (n,).
        fields: per field an array: dense (n, *shape), ragged (sum of the blocks' lengths,), in the order of ``ids``.

    Raises:
        ModelError: if a field is missing, or has another dtype or shape than the table says.
    """

    table: Table
    ids: Ids
    fields: Mapping[str, Array]

    def __post_init__(self) -> None:
        if set(self.fields) != {f.name for f in self.table.fields}:
            expected = [f.name for f in self.table.fields]
            raise ModelError(f"blocks of {self.table.name!r} have fields {sorted(self.fields)}; expected {expected}")
        n_ragged = int(self.table.block_lengths[self.ids].sum()) if self.table.lengths is not None else 0
        for f in self.table.fields:
            got = self.fields[f.name]
            shape = (n_ragged,) if f.ragged else (len(self.ids), *f.shape)
            if not isinstance(got, np.ndarray):
                raise ModelError(f"field {f.name!r} of table {self.table.name!r} is no array, but {got!r:.50}")
            if got.shape != shape or got.dtype != np.dtype(f.dtype):
                raise ModelError(
                    f"field {f.name!r} of table {self.table.name!r} is {got.dtype}{got.shape}; "
                    f"expected {f.dtype}{shape} for {len(self.ids)} blocks"
                )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def value(self) -> Array:
        """The field that distances are taken over."""
        return self.fields["value"]

    @property
    def nbytes(self) -> int:
        """Bytes of all fields, ids not counted."""
        return sum(a.nbytes for a in self.fields.values())

    @property
    def lengths(self) -> Ids:
        """Ragged elements of each of these blocks, shape (n,)."""
        return self.table.block_lengths[self.ids]

    def positions(self, ids: Ids) -> Ids:
        """Where ``ids`` stand among these blocks. Raises ModelError if one of them is not here."""
        if len(self.ids) == self.table.n_blocks:
            return ids
        if len(ids) == len(self.ids) and np.array_equal(ids, self.ids):
            return np.arange(len(ids), dtype=np.int64)
        at = np.searchsorted(self.ids, ids)
        if len(ids) and (len(self.ids) == 0 or at.max() >= len(self.ids) or (self.ids[at] != ids).any()):
            raise ModelError(f"blocks {np.setdiff1d(ids, self.ids)[:5].tolist()} … of {self.table.name!r} are not here")
        return at

    def take(self, ids: Ids, out: Mapping[str, Array] | None = None) -> Blocks:
        """A copy of the blocks ``ids`` (strictly increasing).

        ``out`` gives memory to copy into, per field an array at least as long as needed: fresh pages cost several
        times what copying costs.
        """
        at = self.positions(ids)
        starts, lengths, own_starts = self._runs(at)
        n_ragged = int(lengths.sum())
        fields = {}
        for f in self.table.fields:
            n = n_ragged if f.ragged else len(at)
            memory = None if out is None else out[f.name][:n]
            if f.ragged:
                memory = np.empty(n, f.dtype) if memory is None else memory
                copy_runs(self.fields[f.name], starts, lengths, memory, own_starts)
                fields[f.name] = memory
            else:
                fields[f.name] = np.take(self.fields[f.name], at, axis=0, out=memory, mode="clip")
        return Blocks(self.table, ids, fields)

    def span(self, first: int, end: int) -> Blocks:
        """The blocks at positions ``first`` up to ``end``, as views of these: nothing is copied."""
        part, elements = slice(first, end), slice(0, 0)
        if self.table.offsets is not None:
            is_whole = len(self.ids) == self.table.n_blocks
            offsets = self.table.offsets if is_whole else np.append(0, np.cumsum(self.lengths))
            elements = slice(int(offsets[first]), int(offsets[end]))
        fields = {f.name: self.fields[f.name][elements if f.ragged else part] for f in self.table.fields}
        return Blocks(self.table, self.ids[part], fields)

    def put(self, other: Blocks) -> None:
        """Overwrite the blocks ``other.ids`` of this container, in place, with ``other``'s values."""
        at = self.positions(other.ids)
        starts, lengths, own_starts = self._runs(at)
        for f in self.table.fields:
            source, target = other.fields[f.name], self.fields[f.name]
            if f.ragged:
                copy_runs(source, own_starts, lengths, target, starts)
            elif 1 < f.n_per_block <= _FEW and source.flags.c_contiguous and target.flags.c_contiguous:
                n = f.n_per_block
                own_at = np.arange(0, len(at) * n, n)
                copy_runs(source.reshape(-1), own_at, np.full(len(at), n), target.reshape(-1), at * n)
            else:
                target[at] = source

    def _runs(self, at: Ids) -> tuple[Ids, Ids, Ids]:
        """Where the ragged blocks at positions ``at`` start here, their lengths, and where they start by themselves."""
        if self.table.lengths is None:
            return at, np.zeros(0, np.int64), at
        every = self.lengths
        lengths = every[at]
        return (np.cumsum(every) - every)[at], lengths, np.cumsum(lengths) - lengths

    def read_only(self) -> Blocks:
        """The same memory, through arrays that cannot be written into."""
        fields = {name: a.view() for name, a in self.fields.items()}
        for a in fields.values():
            a.flags.writeable = False
        return Blocks(self.table, self.ids, fields)

    def copy(self) -> Blocks:
        """A deep copy."""
        return Blocks(self.table, self.ids.copy(), {name: a.copy() for name, a in self.fields.items()})

    def differs_from(self, other: Blocks) -> NDArray[np.bool_]:
        """Which blocks have other bytes than the same blocks of ``other`` (same ids), shape (n,)."""
        return self._any_per_block(lambda f: _bits_of(self.fields[f]) != _bits_of(other.fields[f]))

    def is_nonfinite(self) -> NDArray[np.bool_]:
        """Which blocks hold a NaN or an infinity in any field, shape (n,)."""
        return self._any_per_block(lambda f: None if _is_all_finite(self.fields[f]) else ~np.isfinite(self.fields[f]))

    def _any_per_block(self, flags_of: Callable[[str], NDArray[np.bool_] | None]) -> NDArray[np.bool_]:
        """Which blocks have a flag set; ``flags_of`` a field gives one for each element, or None for no flag at all."""
        found = np.zeros(len(self.ids), bool)
        for f in self.table.fields:
            flags = flags_of(f.name)
            if flags is None:
                continue
            if f.ragged:
                lengths = self.lengths
                has_any = lengths > 0
                starts = (np.cumsum(lengths) - lengths)[has_any]
                if len(starts):
                    found[has_any] |= np.logical_or.reduceat(flags, starts)
            else:
                found |= flags.reshape(len(self), f.n_per_block).any(axis=1)
        return found


def concatenate(table: Table, parts: Sequence[Blocks]) -> Blocks:
    """One container with the blocks of all ``parts``, which must not share a block.

    Raises:
        ModelError: if a block is in two parts.
    """
    if len(parts) == 1:
        return parts[0]
    ids = np.sort(np.concatenate([p.ids for p in parts])) if parts else np.zeros(0, np.int64)
    if (ids[1:] == ids[:-1]).any():
        raise ModelError(f"a block of table {table.name!r} is in two of the parts that were to be joined")
    whole = table.empty(ids)
    for part in parts:
        whole.put(part)
    return whole


def positions_of_common(ids: Ids, others: Ids) -> Ids:
    """The positions in ``ids`` of those that are in ``others`` too; both are strictly increasing."""
    if not len(others):
        return np.zeros(0, np.int64)
    at = np.searchsorted(others, ids)
    return np.flatnonzero(others[np.minimum(at, len(others) - 1)] == ids)


def flat_index(lengths: Ids, at: Ids) -> Ids:
    """Element indices of the ragged blocks at positions ``at``, given every block's length."""
    starts = np.cumsum(lengths) - lengths
    n = lengths[at]
    before = np.cumsum(n) - n
    return np.repeat(starts[at] - before, n) + np.arange(int(n.sum()), dtype=np.int64)


def _bits_of(a: Array) -> Array:
    """Integers that are equal where the bytes of the elements are; floats are not: 0.0 == -0.0, and NaN != NaN."""
    return a.view(f"u{a.dtype.itemsize}") if a.dtype.itemsize <= 8 else a


def _is_all_finite(a: Array) -> bool:
    """Whether it is certain that there is no NaN and no infinity.

    A sum is finite only if all its terms are, and takes a third of the time that a flag for each element takes.
    """
    if a.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(a.sum()))

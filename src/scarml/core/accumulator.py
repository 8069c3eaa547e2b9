"""Parting updates by owner, and folding the updates of many shards into one value per block.

Floating-point addition is not associative, so whoever folds must do it in shard order; then the result does not depend
on how shards and blocks are spread over nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from scarml.core.block import Array, Blocks, Ids, Table, flat_index, positions_of_common
from scarml.core.model import ALL, Combine, Update
from scarml.errors import ModelError

__all__ = ["Accumulator", "restrict"]


class Accumulator:
    """The combined updates of one phase to the blocks of one container; its memory is kept between phases."""

    def __init__(self, blocks: Blocks, combine: Combine) -> None:
        if combine not in ("add", "assign"):
            raise ModelError(f"combine of table {blocks.table.name!r}: is {combine!r}; expected 'add' or 'assign'")
        self._table = blocks.table
        self._ids = blocks.ids
        self._ragged = next(f for f in blocks.table.fields if f.name == "value").ragged
        self._row_of_id = blocks.positions
        self._combine = combine
        self._sum: Array | None = None
        self._n_updates = np.zeros(len(blocks), np.int64)
        self._lengths = blocks.lengths if self._ragged else np.zeros(0, np.int64)

    @property
    def n_updates(self) -> Ids:
        """How many updates each block of the container has got since `clear`, shape (n,); valid until the next call."""
        return self._n_updates

    def fold(self, update: Update) -> None:
        """Add (or assign) one shard's update. Its ids must all be in this container.

        Raises:
            ModelError: if an assigned block was assigned before in this phase.
        """
        ids = self._ids if update.ids is ALL else update.ids
        assert isinstance(ids, np.ndarray)
        at = self._row_of_id(ids)
        if self._combine == "assign" and self._n_updates[at].any():
            twice = ids[self._n_updates[at] > 0][:5].tolist()
            raise ModelError(
                f"two shards assign blocks {twice} of table {self._table.name!r}; expected one writer each"
            )
        total = self._memory_for(update.values)
        blocks: Array | slice = slice(None) if len(at) == len(self._ids) else at
        where = flat_index(self._lengths, at) if self._ragged and not isinstance(blocks, slice) else blocks
        if self._combine == "add":
            total[where] += update.values
        else:
            total[where] = update.values
        self._n_updates[blocks] += 1

    def apply_to(self, blocks: Blocks, apply: Callable[[dict[str, Array], Array], Mapping[str, Array]]) -> None:
        """Let ``apply(fields, combined)`` compute the new fields of touched blocks, store them, and start afresh."""
        if self._sum is not None and self._n_updates.all():
            self._store(blocks, self._applied(apply, blocks.fields, self._sum))
        elif self._sum is not None and self._n_updates.any():
            at = np.flatnonzero(self._n_updates)
            some = blocks.take(self._ids[at])
            combined = self._sum[flat_index(self._lengths, at) if self._ragged else at]
            blocks.put(Blocks(self._table, some.ids, self._applied(apply, some.fields, combined)))
        self.clear()

    def clear(self) -> None:
        """Forget everything folded so far."""
        if self._sum is not None:
            self._sum[...] = 0
        self._n_updates[...] = 0

    def _memory_for(self, values: Array) -> Array:
        shape = (int(self._lengths.sum()),) if self._ragged else (len(self._ids), *values.shape[1:])
        if self._sum is None or self._sum.shape != shape or self._sum.dtype != values.dtype:
            if self._n_updates.any():
                raise ModelError(
                    f"updates to table {self._table.name!r} differ in dtype or shape within a phase: "
                    f"{values.dtype}{values.shape[1:]} after {self._sum.dtype if self._sum is not None else None}"
                )
            self._sum = np.zeros(shape, values.dtype)
        return self._sum

    def _applied(
        self, apply: Callable[[dict[str, Array], Array], Any], fields: Mapping[str, Array], combined: Array
    ) -> dict[str, Array]:
        new = apply(dict(fields), combined)
        if not isinstance(new, Mapping):
            raise ModelError(f"apply to table {self._table.name!r}: must return the new fields, got {new!r:.50}")
        return dict(new)

    @staticmethod
    def _store(blocks: Blocks, fields: dict[str, Array]) -> None:
        checked = Blocks(blocks.table, blocks.ids, fields)
        for name, new in checked.fields.items():
            if new is not blocks.fields[name]:
                blocks.fields[name][...] = new


def restrict(update: Update, table: Table, owned: Ids) -> Update | None:
    """The part of an update that concerns the blocks ``owned`` (ascending); None if there is none."""
    if len(owned) == table.n_blocks:
        return update
    ragged = next(f for f in table.fields if f.name == "value").ragged
    if update.ids is ALL:
        ids = at = owned
        lengths = table.block_lengths if ragged else None
    else:
        assert isinstance(update.ids, np.ndarray)
        at = positions_of_common(update.ids, owned)
        ids = update.ids[at]
        lengths = table.block_lengths[update.ids] if ragged else None
    if not len(at):
        return None
    return Update(update.table, ids, np.take(update.values, at if lengths is None else flat_index(lengths, at), axis=0))

"""Regression on a few rows of an embedding table an example, by mini-batches: sparse reads, sparse updates that add up.

The words in a sentence, or the items that a user has bought, are the rows; a few of them are in most examples, and most
of them in few. So blocks are used with very different frequencies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Array, Blocks, Field, Ids, Table
from scarml.core.model import Computed, Context, Model, Reads, Shard, Update
from scarml.core.rng import block_normal

__all__ = ["SparseExamples", "SparseRegression"]


@dataclass(frozen=True, slots=True, eq=False)
class SparseExamples:
    """Examples with ``k`` rows each.

    Args:
        rows: which rows of the table, shape (n, k), a row perhaps twice.
        targets: float64, shape (n,).
        n_rows: of the table.
    """

    rows: Ids
    targets: NDArray[np.float64]
    n_rows: int


@dataclass(frozen=True, slots=True)
class SparseRegression(Model):
    """Minimise ½ Σ (Σ_j w[rows_j] − y)² by SGD; every iteration each shard draws a batch of its examples.

    Args:
        learning_rate: of the summed gradient of a batch.
        batch_size: examples of a shard an iteration.
    """

    learning_rate: float = 0.05
    batch_size: int = 4

    def tables(self, data: SparseExamples) -> Sequence[Table]:
        """The table ``E`` of one number a row."""
        return [Table("E", data.n_rows, (Field("value", "float64"),))]

    def shards(self, data: SparseExamples, n_shards: int) -> Sequence[Shard]:
        """A slice of the examples each."""
        parts = np.array_split(np.arange(len(data.targets)), n_shards)
        return [Shard(s, (data.rows[p], data.targets[p]), n_examples=len(p)) for s, p in enumerate(parts)]

    def init(self, table: Table, ids: Ids, seed: int) -> Mapping[str, Array]:
        """Normal values."""
        return {"value": block_normal(seed, table, ids)}

    def reads(self, ctx: Context, shard: Shard) -> Reads:
        """The rows in this iteration's batch."""
        rows, _ = self._batch(ctx, shard)
        return {"E": np.unique(rows)}

    def compute(self, ctx: Context, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> Computed:
        """A step against the gradient."""
        rows, targets = self._batch(ctx, shard)
        table = reads["E"]
        at = np.searchsorted(table.ids, rows)
        errors = np.broadcast_to((table.value[at].sum(axis=1) - targets)[:, None], rows.shape)
        gradient = np.bincount(at.ravel(), errors.ravel(), minlength=len(table))
        return Computed([Update("E", table.ids, -self.learning_rate * gradient)])

    def loss_reads(self, shard: Shard) -> Reads:
        """All rows that the shard's examples have."""
        return {"E": np.unique(shard.data[0])}

    def loss(self, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> float:
        """Half of the summed squares."""
        rows, targets = shard.data
        predicted = reads["E"].value[np.searchsorted(reads["E"].ids, rows)].sum(axis=1)
        return float(0.5 * np.square(predicted - targets).sum())

    def _batch(self, ctx: Context, shard: Shard) -> tuple[Ids, NDArray[np.float64]]:
        rows, targets = shard.data
        drawn = ctx.rng(shard.index).permutation(len(targets))[: self.batch_size]
        return rows[drawn], targets[drawn]

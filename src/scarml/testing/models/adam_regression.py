"""Linear regression with Adam at the server: several fields a block, an `apply` of its own, groups of blocks.

Source: D. Kingma, J. Ba, Adam: A Method for Stochastic Optimization, ICLR 2015, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scarml.core.block import Array, Blocks, Field, Ids, Table
from scarml.core.model import ALL, Computed, Context, Model, Reads, Shard, Update
from scarml.core.rng import block_normal

__all__ = ["AdamRegression", "Regression"]


@dataclass(frozen=True, slots=True, eq=False)
class Regression:
    """``features``, shape (n, d), and ``targets``, shape (n,), both float64."""

    features: Array
    targets: Array


@dataclass(frozen=True, slots=True)
class AdamRegression(Model):
    """Minimise ½ Σ (x · w − y)² by Adam on the gradient of the mean.

    The table ``w`` has a block for each feature with the fields ``value``, ``m``, ``v`` and ``step``; each three
    blocks that follow one another are a group, as slices of one layer might be.

    Args:
        learning_rate: α.
        beta_1: decay of the mean of gradients.
        beta_2: decay of the mean of squared gradients.
        epsilon: keeps the step finite.
    """

    learning_rate: float = 0.05
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8

    def tables(self, data: Regression) -> Sequence[Table]:
        """The table ``w``."""
        fields = (
            Field("value", "float32"),
            *(Field(name, "float32", moment=True) for name in "mv"),
            Field("step", "int64"),
        )
        return [Table("w", data.features.shape[1], fields)]

    def groups(self, table: Table) -> Ids:
        """Three blocks each."""
        return table.all_ids // 3

    def shards(self, data: Regression, n_shards: int) -> Sequence[Shard]:
        """A slice of the examples, with the number of all of them."""
        n = len(data.targets)
        rows = np.array_split(np.arange(n), n_shards)
        return [Shard(s, (data.features[r], data.targets[r], n), n_examples=len(r)) for s, r in enumerate(rows)]

    def init(self, table: Table, ids: Ids, seed: int) -> Mapping[str, Array]:
        """Normal values; no gradients seen yet."""
        return {**table.empty(ids).fields, "value": block_normal(seed, table, ids)}

    def reads(self, ctx: Context, shard: Shard) -> Reads:
        """All of w."""
        return {"w": ALL}

    def compute(self, ctx: Context, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> Computed:
        """This shard's part of the gradient."""
        features, targets, n = shard.data
        return Computed([Update("w", ALL, (features @ reads["w"].value - targets) @ features / n)])

    def apply(self, ctx: Context, table: Table, fields: dict[str, Array], combined: Array) -> Mapping[str, Array]:
        """One step of Adam."""
        step = fields["step"] + 1
        m = self.beta_1 * fields["m"] + (1 - self.beta_1) * combined
        v = self.beta_2 * fields["v"] + (1 - self.beta_2) * combined**2
        unbiased_m, unbiased_v = m / (1 - self.beta_1**step), v / (1 - self.beta_2**step)
        value = fields["value"] - self.learning_rate * unbiased_m / (np.sqrt(unbiased_v) + self.epsilon)
        return {
            "value": value.astype(np.float32),
            "m": m.astype(np.float32),
            "v": v.astype(np.float32),
            "step": step,
        }

    def loss(self, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> float:
        """½ Σ (x · w − y)² over the shard's examples."""
        features, targets, _ = shard.data
        return float(0.5 * ((features @ reads["w"].value.astype(np.float64) - targets) ** 2).sum())

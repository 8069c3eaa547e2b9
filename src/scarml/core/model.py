"""The `Model` protocol: all that an engine, a checkpoint or an experiment knows of an algorithm.

A model is an immutable value that holds hyper-parameters only; data and state are always passed in. One *iteration* is
one or more *phases*; in each phase every shard of the data computes updates from a consistent state, and all updates
become visible at one *commit*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Array, Blocks, Ids, Table
from scarml.core.metric import Metric
from scarml.core.norm import l2_distance
from scarml.core.rng import stream
from scarml.errors import ModelError

__all__ = ["ALL", "Combine", "Computed", "Context", "Model", "Reads", "Shard", "Update", "WholeTable"]

Combine = Literal["add", "assign"]


class WholeTable:
    """The type of `ALL`."""

    def __repr__(self) -> str:
        return "ALL"

    def __reduce__(self) -> str:
        return "ALL"  # there is one of it in every process


ALL = WholeTable()
"""In `Model.reads`: every block of the table."""

Reads = Mapping[str, Ids | WholeTable]
"""Per table the block ids that a shard wants to read (strictly increasing), or `ALL`."""


@dataclass(frozen=True, slots=True)
class Context:
    """Where training stands: passed to every call that computes.

    Args:
        seed: of the run.
        iteration: the iteration being computed, from 1.
        phase: which of the model's phases, from 0.
        repair: which step of a repair, from 1: the phase is done again for lost blocks alone; 0: it is no repair.
    """

    seed: int
    iteration: int
    phase: int = 0
    repair: int = 0

    def rng(self, shard: int) -> np.random.Generator:
        """The random stream of one shard in this phase; the same whenever and wherever it is computed."""
        step = ("repair", self.repair) if self.repair else ()
        return stream(self.seed, "compute", shard, self.iteration, self.phase, *step)


@dataclass(frozen=True, slots=True)
class Shard:
    """A fixed piece of the input data, with the worker-home blocks that belong to it.

    Args:
        index: 0 … n − 1; updates are folded in this order.
        data: whatever the model's `compute` wants; must be picklable.
        n_examples: examples in it, for losses per example.
        blocks: per worker-home table the ids that live with this shard, ascending.
    """

    index: int
    data: Any
    n_examples: int
    blocks: Mapping[str, Ids] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Update:
    """What one shard changes in one table in one phase.

    Args:
        table: name of a server-home table.
        ids: the blocks it touches, strictly increasing, or `ALL`.
        values: one entry per block, shape (n, *shape); ragged tables: flat. The server combines the entries of all
            shards (`Model.combine`) and hands the outcome to `Model.apply`.
    """

    table: str
    ids: Ids | WholeTable
    values: Array


@dataclass(frozen=True, slots=True)
class Computed:
    """The outcome of `Model.compute`: updates for the servers, and the new values of the shard's own blocks."""

    updates: Sequence[Update] = ()
    local: Mapping[str, Blocks] = field(default_factory=dict)


class Model(Protocol):
    """An iterative-convergent algorithm. Subclass it; what has a body here is a default.

    All calls are made for batches of blocks, must not change their arguments (except where said), and must depend on
    nothing but their arguments and the model's hyper-parameters. `scarml.testing.check_model` checks that.

    Example:
        See ``examples/kmeans.py``: a model of one's own in under 60 lines.
    """

    @property
    def n_phases(self) -> int:
        """Phases an iteration; ``n_phases: ClassVar[int] = 2`` will do where it depends on no hyper-parameter."""
        return 1

    def tables(self, data: Any) -> Sequence[Table]:
        """The tables for this data set."""
        ...

    def shards(self, data: Any, n_shards: int) -> Sequence[Shard]:
        """Cut the data into ``n_shards`` shards; some may be empty. A function of the data and ``n_shards`` alone."""
        ...

    def init(self, table: Table, ids: Ids, seed: int) -> Mapping[str, Array]:
        """x(0) of the blocks ``ids``: a function of seed, table and block, so that any block can be made alone.

        Use `scarml.core.rng.block_uniform` and its kin for random values. Not called for derived tables, which start
        at zero and are rebuilt.
        """
        ...

    def reads(self, ctx: Context, shard: Shard) -> Reads:
        """Which server-home blocks `compute` needs in this phase."""
        ...

    def compute(self, ctx: Context, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> Computed:
        """One phase of one shard: from what it reads and its own blocks to updates and new values of its own blocks."""
        ...

    def combine(self, table: Table) -> Combine:
        """How the updates of several shards to one block combine: ``add`` (default), or ``assign`` (one writer)."""
        return "add"

    def apply(self, ctx: Context, table: Table, fields: dict[str, Array], combined: Array) -> Mapping[str, Array]:
        """New fields of updated blocks, from their old fields and the combined updates.

        ``fields`` may be written into and returned. The default adds the combined update to ``value``, or sets it.
        """
        value = fields["value"]
        if self.combine(table) == "add":
            value += combined
        else:
            value[...] = combined
        return fields

    def groups(self, table: Table) -> Ids:
        """The group of each block, shape (n_blocks,): blocks that are placed, and lost, together. Default: none are."""
        return table.all_ids

    def distance(self, a: Blocks, b: Blocks) -> NDArray[np.float64]:
        """How far each block of ``a`` is from the same block of ``b``; default: Euclidean over ``value``."""
        return l2_distance(a, b)

    def rebuild(self, shard: Shard, local: Mapping[str, Blocks]) -> Sequence[Update]:
        """This shard's contribution to the derived tables; contributions are added. Default: none."""
        return ()

    @property
    def n_repair_phases(self) -> int:
        """How many phases, the last ones, recovery ``repair`` does again for lost blocks alone.

        0 (default): the model mends nothing, and ``repair`` restores what was lost and no more, as ``partial`` does.
        See `scarml.core.repair`. A class variable will do, as for `n_phases`.
        """
        return 0

    def lost_part(self, ctx: Context, shard: Shard, lost: Mapping[str, Ids]) -> Shard:
        """The part of a shard with which `reads` and `compute` give new values to lost blocks, and to no others.

        Needed by models with `n_repair_phases` only. Derived tables may be updated as ever.

        Args:
            ctx: the phase that is done again.
            shard: with its data and blocks.
            lost: per table all lost blocks, ascending, those of other shards too.

        Returns:
            A shard of the same index, with the lost ones of its blocks; its ``n_examples`` are those that `compute`
            will work on, since the work of a repair is counted by them.
        """
        raise ModelError(f"{type(self).__name__} has n_repair_phases, but no lost_part")

    def loss_reads(self, shard: Shard) -> Reads:
        """Which server-home blocks `loss` needs; default: those of the first phase."""
        return self.reads(Context(seed=0, iteration=1), shard)

    def loss(self, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> float:
        """This shard's part of the loss, summed over its examples, in float64."""
        ...

    # ------------------------------------------------------------------------- on examples that it was not trained on
    @property
    def metrics(self) -> Sequence[Metric]:
        """What is told of it on held-out data; the first is what early stopping goes by. Default: nothing.

        ``metrics = (Metric("rmse", of_mean="root"),)`` will do where it depends on no hyper-parameter.
        """
        return ()

    def held_out_shards(self, data: Any, n_shards: int) -> Sequence[Shard]:
        """Cut held-out data into ``n_shards`` shards that own no blocks; default: as training data is cut.

        ``n_examples`` of all of them together is what means are taken over.
        """
        return self.shards(data, n_shards)

    def metric_reads(self, shard: Shard) -> Reads:
        """Which server-home blocks `metric_sums` needs for a held-out shard; default: those of `loss`."""
        return self.loss_reads(shard)

    def metric_sums(self, shard: Shard, reads: Mapping[str, Blocks]) -> Mapping[str, float]:
        """For each of `metrics` the sum over the examples of a held-out shard, in float64; default: the loss."""
        return dict.fromkeys((metric.name for metric in self.metrics), self.loss(shard, reads, {}))

"""Training in one place, without nodes: what every engine must reproduce bit by bit.

The laboratory runs its trials on it, `scarml.testing` checks models with it, and the simulation holds each commit of a
whole cluster against it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from scarml.core.accumulator import Accumulator
from scarml.core.block import Blocks, Ids, Table
from scarml.core.contract import check_loss, check_metric_sums
from scarml.core.metric import metric_values
from scarml.core.model import ALL, Context, Model, Reads, Shard
from scarml.core.repair import check_mended, lost_part, repair_phases, work_iters
from scarml.errors import ModelError

__all__ = ["Sequential", "State", "digest", "initial_blocks", "select_reads"]

State = dict[str, Blocks]
"""Per table all of its blocks."""


def initial_blocks(model: Model, table: Table, ids: Ids, seed: int) -> Blocks:
    """x(0) of the blocks ``ids``; derived tables start at zero."""
    if table.derived:
        return table.empty(ids)
    fields: Any = model.init(table, ids, seed)
    if not isinstance(fields, Mapping):
        raise ModelError(f"init: must return a mapping from field names to arrays, got a {type(fields).__name__}")
    return Blocks(table, ids, dict(fields))


def digest(state: Mapping[str, Blocks]) -> str:
    """SHA-256 over all blocks in table and id order, as 64 hex digits."""
    total = hashlib.sha256()
    for name in sorted(state):
        for f in state[name].table.fields:
            total.update(f"{name}.{f.name}".encode())
            total.update(state[name].fields[f.name].data.cast("B") if len(state[name]) else b"")
    return total.hexdigest()


def select_reads(state: Mapping[str, Blocks], reads: Reads) -> dict[str, Blocks]:
    """The blocks that a shard asked for; whole tables are not copied."""
    return {name: state[name] if ids is ALL else state[name].take(_ids(ids)) for name, ids in reads.items()}


class Sequential:
    """A model on its data, stepped phase by phase in this thread.

    Args:
        model: the algorithm.
        data: what `Model.tables` and `Model.shards` take.
        seed: of all random values.
        n_shards: how finely the data is cut; results depend on it in the last bits.

    Example:
        >>> import scarml as scar
        >>> run = scar.core.sequential.Sequential(scar.QP(), None, seed=0, n_shards=1)
        >>> run.step(); run.iteration
        1
    """

    def __init__(self, model: Model, data: Any, *, seed: int = 0, n_shards: int = 16) -> None:
        self.model = model
        self.seed = seed
        self.tables = {t.name: t for t in model.tables(data)}  # first: it is where models refuse data
        self.shards = model.shards(data, n_shards)
        self.state: State = {t.name: initial_blocks(model, t, t.all_ids, seed) for t in self.tables.values()}
        self.iteration = 0
        self.uses: dict[str, Ids] = {}
        """Of the last phase, per table that is saved and was used: how often each block was.

        Of tables at home on servers that is `Accumulator.n_updates`; a shard that computes a block of its own uses it
        once."""
        self._accumulators: dict[str, Accumulator] = {}
        self.rebuild()

    def step(self) -> None:
        """One iteration: all phases."""
        for phase in range(self.model.n_phases):
            self.run_phase(Context(self.seed, self.iteration + 1, phase))
        self.iteration += 1

    def repair(self, lost: Mapping[str, Ids], upcoming: Context | None = None) -> float:
        """Mend blocks that have been restored; see `scarml.core.repair`.

        Args:
            lost: per table the blocks, ascending.
            upcoming: the phase to be computed next; by default the first one of the next iteration.

        Returns:
            Its work, in iterations; 0 if nothing is lost, or if the model mends nothing.
        """
        upcoming = upcoming or Context(self.seed, self.iteration + 1)
        phases = repair_phases(self.model.n_repair_phases, self.model.n_phases, upcoming)
        done = sum(self.run_phase(ctx, lost) for ctx in phases) if any(map(len, lost.values())) else 0
        return work_iters(done, sum(s.n_examples for s in self.shards), self.model.n_phases)

    def run_phase(self, ctx: Context, lost: Mapping[str, Ids] | None = None) -> int:
        """One phase over all shards, and its commit; of a repair, over their lost parts.

        Returns:
            How many examples it went through.
        """
        new_local: dict[str, list[Blocks]] = {}
        n_examples = 0
        for whole in self.shards:
            shard = whole if lost is None else lost_part(self.model, ctx, whole, lost)
            n_examples += shard.n_examples
            reads = select_reads(self.state, self.model.reads(ctx, shard))
            computed = self.model.compute(ctx, shard, reads, self._local(shard))
            if lost is not None:
                check_mended(self.tables, lost, shard, computed)
            for update in computed.updates:
                self._accumulator(update.table).fold(update)
            for name, blocks in computed.local.items():
                new_local.setdefault(name, []).append(blocks)
        self.uses = {}
        for name, acc in self._accumulators.items():
            table = self.tables[name]
            if not table.derived and acc.n_updates.any():
                self.uses[name] = acc.n_updates.copy()
            acc.apply_to(self.state[name], partial(self.model.apply, ctx, table))
        for name, parts in new_local.items():
            self.uses[name] = np.zeros(self.tables[name].n_blocks, np.int64)
            for blocks in parts:
                self.state[name].put(blocks)
                self.uses[name][blocks.ids] += 1
        return n_examples

    def rebuild(self) -> None:
        """Recompute the derived tables from the shards' own blocks."""
        for name, table in self.tables.items():
            if table.derived:
                self.state[name] = table.empty(table.all_ids)
                self._accumulators.pop(name, None)
        for shard in self.shards:
            for update in self.model.rebuild(shard, self._local(shard)):
                self._accumulator(update.table).fold(update)
        for name, acc in self._accumulators.items():
            if self.tables[name].derived:
                acc.apply_to(self.state[name], lambda _, combined: {"value": combined.copy()})

    def loss_sum(self) -> float:
        """The loss over all shards, folded in shard order."""
        total = 0.0
        for shard in self.shards:
            reads = select_reads(self.state, self.model.loss_reads(shard))
            total += check_loss(self.model.loss(shard, reads, self._local(shard)), f"loss of shard {shard.index}")
        return total

    def metrics(self, held_out: Sequence[Shard]) -> dict[str, float]:
        """The held-out metrics, of what `Model.held_out_shards` gives; sums are folded in shard order."""
        parts = []
        for shard in held_out:
            reads = select_reads(self.state, self.model.metric_reads(shard))
            sums = self.model.metric_sums(shard, reads)
            parts.append(check_metric_sums(self.model.metrics, sums, f"metric_sums of shard {shard.index}"))
        return metric_values(self.model.metrics, parts, sum(s.n_examples for s in held_out))

    def _local(self, shard: Shard) -> dict[str, Blocks]:
        return {name: self.state[name].take(ids) for name, ids in shard.blocks.items()}

    def _accumulator(self, name: str) -> Accumulator:
        if name not in self._accumulators:
            self._accumulators[name] = Accumulator(self.state[name], self.model.combine(self.tables[name]))
        return self._accumulators[name]


def _ids(ids: Any) -> Ids:
    return ids  # type: ignore[no-any-return]  # narrowed by the caller: not ALL

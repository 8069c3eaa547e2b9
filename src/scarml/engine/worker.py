"""A worker: owns shards of the data and the blocks that live with them, and computes updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np

from scarml.control import messages as m
from scarml.control.view import NodeId, View
from scarml.core.accumulator import restrict
from scarml.core.block import Blocks, Ids, concatenate, positions_of_common
from scarml.core.contract import check_computed, check_loss, check_metric_sums, check_reads, check_updates
from scarml.core.model import ALL, Reads, Shard, Update, WholeTable
from scarml.core.repair import check_mended, lost_part
from scarml.engine.node import (
    BlockHolder,
    Forward,
    OpenReader,
    Output,
    Peers,
    Reply,
    RunShards,
    ShardOrder,
    ShardResult,
    Stored,
    Training,
)

__all__ = ["Worker"]


@dataclass(frozen=True, slots=True, eq=False)
class _Gathered:
    """What the shards of a worker need for an order.

    Args:
        shards: what to work on: in a repair, their lost parts; for metrics, those that are held out.
        wanted: what each reads.
        blocks: per table what any of them reads.
    """

    shards: Mapping[int, Shard]
    wanted: Mapping[int, Reads]
    blocks: Mapping[str, Blocks]

    def reads(self, index: int) -> dict[str, Blocks]:
        """A shard's own copy of some blocks; a whole table is shared."""
        return {
            name: self.blocks[name] if isinstance(ids, WholeTable) else self.blocks[name].take(ids)
            for name, ids in self.wanted[index].items()
        }


class Worker:
    """One worker.

    New values of its own blocks are kept aside until the commit, so that a phase can be computed again.

    Args:
        training: what is trained; of the shards a worker touches only those that it owns.
        open_reader: the store.
        peers: the other nodes.
    """

    def __init__(self, name: NodeId, training: Training, open_reader: OpenReader, peers: Peers) -> None:
        self.name = name
        self.holder = BlockHolder(name, "worker", training, open_reader, peers)
        self._model = training.model
        self._layout = training.layout
        self._shards = training.shards
        self._held_out = training.held_out
        self._peers = peers
        self._server_blocks: dict[str, list[Ids]] = {}
        self._under_way: m.ComputePhase | None = None
        self._outstanding: set[int] = set()
        self._new_local: list[Blocks] = []
        self._n_examples = 0
        self._evaluation: m.EvaluateLoss | m.EvaluateMetrics | None = None
        self._evaluated: dict[int, ShardResult] = {}
        self._gathered: dict[ShardOrder, _Gathered] = {}
        self._whole: dict[tuple[int, int, str], Blocks] = {}
        """By view, commit and name."""
        self._lock = Lock()

    def handle(self, order: m.NodeOrder | Stored | ShardResult) -> list[Output]:
        """Carry out one order."""
        match order:
            case m.ComputePhase() if self.holder.obeys(order.view) and order.commit == self.holder.commit + 1:
                return self._start_phase(order)
            case m.EvaluateLoss() | m.EvaluateMetrics() if self._is_at(order):
                self._evaluation, self._evaluated = order, {}
                return [RunShards(order, tuple(self._view.shards_of(self.name)))]
            case ShardResult():
                return self._take_in(order)
            case m.CommitPhase():
                return self._commit(order)
            case m.InstallView():
                return self._install(order)
            case _:
                return self.holder.handle(order)

    def _is_at(self, order: m.EvaluateLoss | m.EvaluateMetrics) -> bool:
        return self.holder.obeys(order.view) and order.commit == self.holder.commit

    @property
    def _view(self) -> View:
        assert self.holder.view is not None
        return self.holder.view

    def _install(self, order: m.InstallView) -> list[Output]:
        self._under_way, self._new_local, self._outstanding = None, [], set()
        self._gathered, self._whole = {}, {}
        outputs = self.holder.handle(order)
        if self.holder.obeys(order.view.number):
            self._server_blocks = {
                name: [order.view.blocks_of(server, self._layout, name) for server in order.view.servers]
                for name, table in self._layout.tables.items()
                if table.home == "server"
            }
        return outputs

    # ------------------------------------------------------------------------------------------------ orders, in turn
    def _start_phase(self, order: m.ComputePhase) -> list[Output]:
        if self._under_way == order:
            return []
        self._under_way = order
        shards = self._view.shards_of(self.name)
        self._outstanding, self._new_local, self._n_examples = set(shards), [], 0
        if not shards:
            return [Reply(m.Prepared(self.name, order.view, order.commit))]
        return [RunShards(order, tuple(shards))]

    def _take_in(self, result: ShardResult) -> list[Output]:
        order = result.order
        if not self.holder.obeys(order.view):
            return []
        if not isinstance(order, m.ComputePhase):
            return self._take_in_evaluated(order, result)
        if order != self._under_way or result.shard not in self._outstanding:
            return []
        self._outstanding.remove(result.shard)
        self._new_local += result.local
        self._n_examples += result.n_examples
        outputs: list[Output] = list(result.pushes)
        if not self._outstanding:
            outputs.append(Reply(m.Prepared(self.name, order.view, order.commit, self._n_examples)))
        return outputs

    def _take_in_evaluated(self, order: m.EvaluateLoss | m.EvaluateMetrics, result: ShardResult) -> list[Output]:
        if order != self._evaluation:
            return []
        done = self._evaluated
        done[result.shard] = result
        if len(done) < len(self._view.shards_of(self.name)):
            return []
        if isinstance(order, m.EvaluateLoss):
            losses = {shard: r.loss for shard, r in done.items()}
            return [Reply(m.LossComputed(self.name, order.view, order.commit, losses))]
        sums = {shard: r.sums for shard, r in done.items()}
        return [Reply(m.MetricsComputed(self.name, order.view, order.commit, sums))]

    def _commit(self, order: m.CommitPhase) -> list[Output]:
        if not self.holder.obeys(order.view) or order.commit != self.holder.commit + 1:
            return []
        for blocks in self._new_local:
            self.holder.blocks[blocks.table.name].put(blocks)
            self.holder.caches[blocks.table.name].use(blocks.ids, 1)
        self._new_local, self._under_way = [], None
        self._gathered, self._whole = {}, {}
        self.holder.advance(order.commit)
        return [Reply(m.Committed(self.name, order.view, order.commit))]

    # ------------------------------------------------------------------------------------------- shards, in parallel
    def run_shard(self, order: ShardOrder, index: int) -> ShardResult | None:
        """Compute one shard from the state that the order speaks of. Changes nothing; may run beside others.

        Returns:
            None if a server that it needs is gone or elsewhere: a new view is then on its way.
        """
        if isinstance(order, m.ComputePhase) and order.ctx.phase == m.REBUILD:
            shard = self._shards[index]
            updates = self._model.rebuild(shard, self._local(shard))
            check_updates(self._layout.tables, updates, f"rebuild of shard {index}")
            return ShardResult(order, index, self._pushes(order, index, updates), n_examples=shard.n_examples)
        with self._lock:  # one shard fetches for all; the others need it too
            gathered = self._gathered.get(order) or self._gather(order)
        if gathered is None:
            return None
        shard, reads = gathered.shards[index], gathered.reads(index)
        if isinstance(order, m.EvaluateLoss):
            loss = check_loss(self._model.loss(shard, reads, self._local(shard)), f"loss of shard {index}")
            return ShardResult(order, index, loss=loss)
        if isinstance(order, m.EvaluateMetrics):
            sums = self._model.metric_sums(shard, reads)
            checked = check_metric_sums(self._model.metrics, sums, f"metric_sums of shard {index}")
            return ShardResult(order, index, sums=checked)
        computed = self._model.compute(order.ctx, shard, reads, self._local(shard))
        check_computed(self._layout.tables, shard, computed)
        if order.ctx.repair:
            check_mended(self._layout.tables, order.lost, shard, computed)
        pushes, local = self._pushes(order, index, computed.updates), tuple(computed.local.values())
        return ShardResult(order, index, pushes, local, shard.n_examples)

    def _local(self, shard: Shard) -> Mapping[str, Blocks]:
        return {name: self.holder.blocks[name].take(ids) for name, ids in shard.blocks.items()}

    def _gather(self, order: ShardOrder) -> _Gathered | None:
        """Fetch what the shards of this worker read for an order: one request a server for all of them.

        Whole tables are fetched once a commit: a loss and the phase after it read the same.
        """
        all_gathered, whole = self._gathered, self._whole  # others from the next commit or view on
        view, commit = order.view, order.commit - isinstance(order, m.ComputePhase)
        shards = {index: self._shard_for(order, index) for index in self._view.shards_of(self.name)}
        wanted = {index: self._wanted(order, shard) for index, shard in shards.items()}
        names = dict.fromkeys(name for reads in wanted.values() for name in reads)
        ids_of = {name: _union([reads[name] for reads in wanted.values() if name in reads]) for name in names}
        request: dict[NodeId, dict[str, Ids | None]] = {}
        for name, ids in ids_of.items():
            if isinstance(ids, WholeTable) and (view, commit, name) in whole:
                continue
            for server, owned in zip(self._view.servers, self._server_blocks[name], strict=True):
                mine = None if isinstance(ids, WholeTable) else ids[positions_of_common(ids, owned)]
                if mine is None or len(mine):
                    request.setdefault(server, {})[name] = mine
        got = self._peers.read(view, commit, request) if request and self.holder.obeys(view) else {}
        if got is None or not self.holder.obeys(view):
            return None
        blocks = {}
        for name, ids in ids_of.items():
            if not isinstance(ids, WholeTable):
                blocks[name] = self._joined(name, got)
                continue
            if (view, commit, name) not in whole:
                # With one server these are the very arrays that it holds: a model that wrote into them would change
                # the state of all shards at once, and nobody would notice.
                whole[view, commit, name] = self._joined(name, got).read_only()
            blocks[name] = whole[view, commit, name]
        return all_gathered.setdefault(order, _Gathered(shards, wanted, blocks))

    def _shard_for(self, order: ShardOrder, index: int) -> Shard:
        """What there is to work on: a shard, in a repair its lost part, or for metrics one that is held out."""
        if isinstance(order, m.EvaluateMetrics):
            return self._held_out[index]
        shard = self._shards[index]
        if isinstance(order, m.ComputePhase) and order.ctx.repair:
            return lost_part(self._model, order.ctx, shard, order.lost)
        return shard

    def _wanted(self, order: ShardOrder, shard: Shard) -> Reads:
        if isinstance(order, m.EvaluateLoss):
            wanted, what = self._model.loss_reads(shard), "loss_reads"
        elif isinstance(order, m.EvaluateMetrics):
            wanted, what = self._model.metric_reads(shard), "metric_reads"
        else:
            wanted, what = self._model.reads(order.ctx, shard), "reads"
        check_reads(self._layout.tables, wanted, f"{what} of shard {shard.index}")
        return wanted

    def _joined(self, name: str, got: Mapping[NodeId, Mapping[str, Blocks]]) -> Blocks:
        return concatenate(self._layout.tables[name], [tables[name] for tables in got.values() if name in tables])

    def _pushes(self, order: m.ComputePhase, shard: int, updates: Sequence[Update]) -> tuple[Forward, ...]:
        """The updates, parted by owner; every server gets a push, if only an empty one."""
        per_server: list[list[Update]] = [[] for _ in self._view.servers]
        for update in updates:
            for position, owned in enumerate(self._server_blocks[update.table]):
                part = restrict(update, self._layout.tables[update.table], owned)
                if part is not None:
                    per_server[position].append(part)
        return tuple(
            Forward(server, m.Push(order.view, order.commit, order.ctx, shard, tuple(mine)))
            for server, mine in zip(self._view.servers, per_server, strict=True)
        )


def _union(ids: list[Ids | WholeTable]) -> Ids | WholeTable:
    some = [i for i in ids if not isinstance(i, WholeTable)]
    return ALL if len(some) < len(ids) else np.unique(np.concatenate(some))

"""A worker: owns shards of the data and the blocks that live with them, and computes updates."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from scarml.control import messages as m
from scarml.control.view import NodeId, View
from scarml.core.accumulator import restrict
from scarml.core.block import Blocks, Ids, concatenate, positions_of_common
from scarml.core.contract import check_computed, check_loss, check_reads, check_updates
from scarml.core.model import Computed, Reads, Update, WholeTable
from scarml.engine.node import (
    BlockHolder,
    Forward,
    OpenReader,
    Output,
    Peers,
    Reply,
    RunShards,
    ShardResult,
    Stored,
    Training,
    Wanted,
)

__all__ = ["Worker"]


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
        self._peers = peers
        self._server_blocks: dict[str, list[Ids]] = {}
        self._under_way: m.ComputePhase | None = None
        self._outstanding: set[int] = set()
        self._new_local: list[Blocks] = []
        self._whole: dict[tuple[int, int, str], Blocks] = {}
        self._lock = Lock()

    def handle(self, order: m.NodeOrder | Stored | ShardResult) -> list[Output]:
        """Carry out one order."""
        match order:
            case m.ComputePhase() if self.holder.obeys(order.view) and order.commit == self.holder.commit + 1:
                return self._start_phase(order)
            case m.EvaluateLoss() if self.holder.obeys(order.view) and order.commit == self.holder.commit:
                return [RunShards(order, tuple(self._view.shards_of(self.name)))]
            case ShardResult():
                return self._take_in(order)
            case m.CommitPhase():
                return self._commit(order)
            case m.InstallView():
                return self._install(order)
            case _:
                return self.holder.handle(order)

    @property
    def _view(self) -> View:
        assert self.holder.view is not None
        return self.holder.view

    def _install(self, order: m.InstallView) -> list[Output]:
        self._under_way, self._new_local, self._outstanding = None, [], set()
        with self._lock:
            self._whole = {}
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
        self._outstanding, self._new_local = set(shards), []
        if not shards:
            return [Reply(m.Prepared(self.name, order.view, order.commit))]
        return [RunShards(order, tuple(shards))]

    def _take_in(self, result: ShardResult) -> list[Output]:
        order = result.order
        if not self.holder.obeys(order.view):
            return []
        if isinstance(order, m.EvaluateLoss):
            return [Reply(m.LossComputed(self.name, order.view, order.commit, result.shard, result.loss))]
        if order != self._under_way or result.shard not in self._outstanding:
            return []
        self._outstanding.remove(result.shard)
        self._new_local += result.local
        outputs: list[Output] = list(result.pushes)
        if not self._outstanding:
            outputs.append(Reply(m.Prepared(self.name, order.view, order.commit)))
        return outputs

    def _commit(self, order: m.CommitPhase) -> list[Output]:
        if not self.holder.obeys(order.view) or order.commit != self.holder.commit + 1:
            return []
        for blocks in self._new_local:
            self.holder.blocks[blocks.table.name].put(blocks)
        self._new_local, self._under_way = [], None
        with self._lock:
            self._whole = {}
        self.holder.advance(order.commit)
        return [Reply(m.Committed(self.name, order.view, order.commit))]

    # ------------------------------------------------------------------------------------------- shards, in parallel
    def run_shard(self, order: m.ComputePhase | m.EvaluateLoss, index: int) -> ShardResult | None:
        """Compute one shard from the state that the order speaks of. Changes nothing; may run beside others.

        Returns:
            None if a server that it needs is gone or elsewhere: a new view is then on its way.
        """
        shard = self._shards[index]
        local = {name: self.holder.blocks[name].take(ids) for name, ids in shard.blocks.items()}
        if isinstance(order, m.EvaluateLoss):
            wanted = self._model.loss_reads(shard)
            check_reads(self._layout.tables, wanted, f"loss_reads of shard {index}")
            reads = self._read(order.view, order.commit, wanted)
            if reads is None:
                return None
            loss = check_loss(self._model.loss(shard, reads, local), f"loss of shard {index}")
            return ShardResult(order, index, loss=loss)
        if order.ctx.phase == m.REBUILD:
            updates = self._model.rebuild(shard, local)
            check_updates(self._layout.tables, updates, f"rebuild of shard {index}")
            computed = Computed(updates)
        else:
            wanted = self._model.reads(order.ctx, shard)
            check_reads(self._layout.tables, wanted, f"reads of shard {index}")
            reads = self._read(order.view, order.commit - 1, wanted)
            if reads is None:
                return None
            computed = self._model.compute(order.ctx, shard, reads, local)
            check_computed(self._layout.tables, shard, computed)
        return ShardResult(order, index, self._pushes(order, index, computed), tuple(computed.local.values()))

    def _read(self, view: int, commit: int, wanted: Reads) -> Mapping[str, Blocks] | None:
        """What a shard reads: its own blocks in one request a server, whole tables once a commit for all shards."""
        whole = self._whole_tables(view, commit, [name for name, ids in wanted.items() if isinstance(ids, WholeTable)])
        if whole is None:
            return None
        some = {name: ids for name, ids in wanted.items() if not isinstance(ids, WholeTable)}
        request: dict[NodeId, dict[str, Ids | None]] = {}
        for name, ids in some.items():
            for server, owned in zip(self._view.servers, self._server_blocks[name], strict=True):
                mine = ids[positions_of_common(ids, owned)]
                if len(mine):
                    request.setdefault(server, {})[name] = mine
        got = self._ask(view, commit, request)
        return None if got is None else {**whole, **{name: self._joined(name, got) for name in some}}

    def _whole_tables(self, view: int, commit: int, names: list[str]) -> Mapping[str, Blocks] | None:
        """All blocks of these tables, put together once a commit and shared by this worker's shards."""
        with self._lock:
            missing = [name for name in names if (view, commit, name) not in self._whole]
            request = {server: dict.fromkeys(missing) for server in self._view.servers} if missing else {}
            got = self._ask(view, commit, request)
            if got is None:
                return None
            for name in missing:
                # With one server these are the very arrays that it holds: a model that wrote into them would change
                # the state of all shards at once, and nobody would notice.
                self._whole[view, commit, name] = self._joined(name, got).read_only()
            return {name: self._whole[view, commit, name] for name in names}

    def _ask(self, view: int, commit: int, request: Wanted) -> Mapping[NodeId, Mapping[str, Blocks]] | None:
        if not self.holder.obeys(view):
            return None
        return self._peers.read(view, commit, request) if request else {}

    def _joined(self, name: str, got: Mapping[NodeId, Mapping[str, Blocks]]) -> Blocks:
        return concatenate(self._layout.tables[name], [tables[name] for tables in got.values() if name in tables])

    def _pushes(self, order: m.ComputePhase, shard: int, computed: Computed) -> tuple[Forward, ...]:
        """The updates, parted by owner; every server gets a push, if only an empty one."""
        per_server: list[list[Update]] = [[] for _ in self._view.servers]
        for update in computed.updates:
            for position, owned in enumerate(self._server_blocks[update.table]):
                part = restrict(update, self._layout.tables[update.table], owned)
                if part is not None:
                    per_server[position].append(part)
        return tuple(
            Forward(server, m.Push(order.view, order.commit, order.ctx, shard, tuple(updates)))
            for server, updates in zip(self._view.servers, per_server, strict=True)
        )

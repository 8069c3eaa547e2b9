"""A parameter server: owns partitions of the server-home tables, folds updates, commits phases."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scarml.control import messages as m
from scarml.control.view import NodeId
from scarml.core.accumulator import Accumulator
from scarml.core.block import Array, Blocks, Ids, Table
from scarml.core.model import ALL, Context, Update
from scarml.engine.node import BlockHolder, OpenReader, Output, Peers, Reply, ShardResult, Stored, Training
from scarml.errors import ProtocolError

__all__ = ["Server"]


class Server:
    """One server.

    Updates of a phase are folded in shard order, whatever order they arrive in; an update that was received before is
    dropped. When all shards are folded the phase is prepared here. Nothing that workers read changes before the commit.

    Args: as `BlockHolder`.
    """

    def __init__(self, name: NodeId, training: Training, open_reader: OpenReader, peers: Peers) -> None:
        self.name = name
        self.holder = BlockHolder(name, "server", training, open_reader, peers)
        self._model = training.model
        self._layout = training.layout
        self._accumulators: dict[str, Accumulator] = {}
        self._received: dict[int, tuple[Update, ...]] = {}
        self.n_folded = 0
        """Shards of the phase under way that have been folded."""

    def handle(self, order: m.NodeOrder | Stored | ShardResult) -> list[Output]:
        """Carry out one order."""
        match order:
            case m.Push():
                return self._push(order)
            case m.CommitPhase():
                return self._commit(order)
            case m.InstallView():
                self._forget_phase()
                self._accumulators = {}
                return self.holder.handle(order)
            case ShardResult():
                raise ProtocolError(f"{self.name} is a server and computes no shards")
            case _:
                return self.holder.handle(order)

    def read(self, view: int, commit: int, wanted: Mapping[str, Ids | None]) -> dict[str, Blocks] | None:
        """Per table this server's blocks of these ids (None: all) after ``commit``; None if it is elsewhere.

        All of them are not a copy: they are valid until the next commit, which nothing computed from a stale view can
        reach.
        """
        if not self.holder.obeys(view) or self.holder.commit != commit:
            return None
        found = {}
        for name, ids in wanted.items():
            blocks = self.holder.blocks[name]
            found[name] = blocks if ids is None else blocks.take(ids)
        return found

    def _push(self, order: m.Push) -> list[Output]:
        if not self.holder.obeys(order.view) or order.commit != self.holder.commit + 1:
            return []
        if self._is_repeat(order.shard):
            return []
        self._received[order.shard] = order.updates
        n_before = self.n_folded
        while self.n_folded in self._received:
            for update in self._received[self.n_folded]:
                self._accumulator(update.table).fold(update)
            self._received[self.n_folded] = ()
            self.n_folded += 1
        if self.n_folded == n_before or self.n_folded < self._layout.n_shards:
            return []
        return [Reply(m.Prepared(self.name, order.view, order.commit))]

    def _is_repeat(self, shard: int) -> bool:
        return shard in self._received

    def _commit(self, order: m.CommitPhase) -> list[Output]:
        if not self.holder.obeys(order.view) or order.commit != self.holder.commit + 1:
            return []
        if self.n_folded != self._layout.n_shards:
            raise ProtocolError(f"{self.name} was told to commit {order.commit} with {self.n_folded} shards folded")
        if order.ctx.phase == m.REBUILD:
            self._commit_rebuild()
        else:
            for name, accumulator in self._accumulators.items():
                if name in self.holder.caches:
                    self.holder.caches[name].use(ALL, accumulator.n_updates)
                accumulator.apply_to(self.holder.blocks[name], self._applier(order.ctx, self._layout.tables[name]))
        self._forget_phase()
        self.holder.advance(order.commit)
        return [Reply(m.Committed(self.name, order.view, order.commit))]

    def _commit_rebuild(self) -> None:
        for name, blocks in self.holder.blocks.items():
            if blocks.table.derived:
                for a in blocks.fields.values():
                    a[...] = 0
                if name in self._accumulators:
                    self._accumulators[name].apply_to(blocks, lambda _, combined: {"value": combined.copy()})

    def _applier(self, ctx: Context, table: Table) -> Callable[[dict[str, Array], Array], Mapping[str, Array]]:
        return lambda fields, combined: self._model.apply(ctx, table, fields, combined)

    def _accumulator(self, table: str) -> Accumulator:
        if table not in self._accumulators:
            combine = self._model.combine(self._layout.tables[table])
            self._accumulators[table] = Accumulator(self.holder.blocks[table], combine)
        return self._accumulators[table]

    def _forget_phase(self) -> None:
        self._received = {}
        self.n_folded = 0
        for accumulator in self._accumulators.values():
            accumulator.clear()

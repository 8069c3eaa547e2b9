"""Nodes that live in this process: for the engine in one process, and for the simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock

import numpy as np

from scarml.control import messages as m
from scarml.control.view import NodeId, View
from scarml.core.block import Blocks, Ids, concatenate
from scarml.engine.lease import FOR_EVER, Lease
from scarml.engine.node import Handed, Node, Output, Reply, Store, Training, Wanted
from scarml.engine.node_host import NodeHost, make_node
from scarml.engine.scheduler import Scheduler
from scarml.engine.server import Server
from scarml.storage.run_folder import RunFolder

__all__ = ["LocalNodes"]


class LocalNodes:
    """The nodes, how they reach each other, and how they die.

    Args:
        training: what is trained.
        open_folder: gives a node its own way to the run folder.
        scheduler: when and where things run.
        new_lease: for each node.
    """

    def __init__(
        self,
        training: Training,
        open_folder: Callable[[NodeId], RunFolder],
        scheduler: Scheduler,
        new_lease: Callable[[], Lease] = lambda: FOR_EVER,
    ) -> None:
        self.training = training
        self.live: dict[NodeId, Node] = {}
        self.dead: dict[NodeId, Node] = {}
        self.stalled: dict[NodeId, int] = {}
        """Nodes about to be lost, with the lag of their loss: never prepared again; at lag 1 they save nothing more."""
        self._hosts: dict[NodeId, NodeHost] = {}
        self._open_folder = open_folder
        self._scheduler = scheduler
        self._new_lease = new_lease
        self._folding = Lock()

    # ------------------------------------------------------------------------------------------------ life and death
    def add(self, name: NodeId, kind: m.NodeKind) -> None:
        """A new node, which holds nothing."""
        folder = self._open_folder(name)
        node = make_node(name, kind, self.training, folder, self)
        self._hosts[name] = NodeHost(node, folder, self._scheduler, self, self._new_lease())
        self.live = {**self.live, name: node}  # others may be reading the old one

    def start(self, name: NodeId, kind: m.NodeKind) -> None:
        """As `add`, and the controller is told."""
        self.add(name, kind)
        self._scheduler.post(m.NodeJoined(name))

    def stop(self, name: NodeId) -> None:
        """A node that has left the view ends."""
        self._remove(name)

    def kill(self, name: NodeId, reason: str) -> None:
        """A node dies with all it holds; the controller is told."""
        if name in self.live:
            self.dead[name] = self.live[name]
            self._remove(name)
            self._scheduler.post(m.NodeLost(name, reason))

    def _remove(self, name: NodeId) -> None:
        if name in self.live:
            self._hosts[name].close()
            self.forget(name)

    def forget(self, name: NodeId) -> None:
        """Nobody reaches this node any more."""
        if name in self.live:
            self.live = {n: node for n, node in self.live.items() if n != name}
            self.stalled.pop(name, None)

    def host(self, name: NodeId) -> NodeHost:
        """What runs a node, dead or alive."""
        return self._hosts[name]

    def state(self, view: View) -> dict[str, Blocks]:
        """Per table all blocks of the live nodes.

        Some may still be at nodes that are not in the view: one that has been decided, and that nobody obeys yet.
        """
        there = [n.holder.blocks for name, n in self.live.items() if name in view.nodes]
        others = [n.holder.blocks for name, n in self.live.items() if name not in view.nodes]
        whole: dict[str, Blocks] = {}
        for name, table in self.training.layout.tables.items():
            held = whole[name] = concatenate(table, [blocks[name] for blocks in there if name in blocks])
            if len(held) < table.n_blocks:
                missing = np.setdiff1d(table.all_ids, held.ids)
                more = [blocks[name] for blocks in others if name in blocks]
                whole[name] = concatenate(table, [held, *(b.take(np.intersect1d(b.ids, missing)) for b in more)])
        return whole

    # --------------------------------------------------------------------------------------------------------- orders
    def send(self, source: NodeId, name: NodeId, order: m.NodeOrder) -> None:
        """Bring an order to a node."""
        host = self._hosts[name]

        def give() -> None:
            if source == "controller":
                host.lease.renew()
            host.give(order)

        self._scheduler.deliver(source, name, give, isinstance(order, m.Push))

    def passes(self, source: NodeId, output: Output) -> bool:
        """What a node about to be lost does not get out any more."""
        lag = self.stalled.get(source)
        return (lag is None or not _is_withheld(output, lag)) and source in self.live  # in this order, see `_remove`

    def post(self, source: NodeId, event: m.Event) -> None:
        """To the controller."""
        self._scheduler.post(event)

    def forward(self, source: NodeId, node: NodeId, order: m.NodeOrder) -> None:
        """From a worker to a server."""
        self.send(source, node, order)

    def folded(self, commit: int) -> None:
        """The shards that all servers have folded."""
        with self._folding:  # so that the last word is the newest: else shards could wait for ever
            # One that waits to join is sent nothing yet: it must not hold the others up.
            servers = [n for n in self.live.values() if isinstance(n, Server) and n.holder.view is not None]
            self._scheduler.folded(commit, min((s.n_folded for s in servers), default=0))

    def may_compute(self, order: m.ComputePhase) -> bool:
        """The scheduler's threads begin no shard that is far ahead of what is folded."""
        return True

    # ------------------------------------------------------------------------------------------------------ data path
    def read(self, view: int, commit: int, wanted: Wanted) -> dict[NodeId, dict[str, Blocks]] | None:
        """What the workers read: no copy where they read a whole table."""
        found: dict[NodeId, dict[str, Blocks]] = {}
        for server, tables in wanted.items():
            node = self.live.get(server)
            got = node.read(view, commit, tables) if isinstance(node, Server) else None
            if got is None:
                return None
            found[server] = got
        return found

    def hand_over(self, holder: NodeId, commit: int, ids: Mapping[str, Ids]) -> Handed | None:
        """What one node takes over from another."""
        node = self.live.get(holder)
        return node.holder.hand_over(commit, ids) if node is not None else None


def _is_withheld(output: Output, lag: int) -> bool:
    if isinstance(output, Reply):
        if isinstance(output.event, m.Prepared):
            return True
        return lag == 1 and isinstance(output.event, (m.BlocksMeasured, m.BlocksStaged, m.SaveCommitted))
    return lag == 1 and isinstance(output, Store)

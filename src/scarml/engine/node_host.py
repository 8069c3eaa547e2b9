"""One node at work: gives it its orders, and passes on what comes out.

Here is everything that a node needs around it, whether it lives beside others in one process, in virtual time, or in a
process of its own: a lane for its orders, threads for its shards, a writer for its segments, and a lease.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from scarml.control import messages as m
from scarml.control.view import NodeId
from scarml.engine.lease import Lease
from scarml.engine.node import (
    Forward,
    Node,
    Output,
    Peers,
    Reply,
    RunShards,
    ShardOrder,
    ShardResult,
    Store,
    Stored,
    Training,
)
from scarml.engine.scheduler import Scheduler
from scarml.engine.server import Server
from scarml.engine.worker import Worker
from scarml.storage.background_writer import SaveJob, write_job
from scarml.storage.run_folder import RunFolder

__all__ = ["Links", "NodeHost", "make_node"]


class Links(Protocol):
    """How what comes out of a node reaches others."""

    def passes(self, source: NodeId, output: Output) -> bool:
        """Whether this gets out of the node at all."""
        ...

    def post(self, source: NodeId, event: m.Event) -> None:
        """To the controller."""
        ...

    def forward(self, source: NodeId, node: NodeId, order: m.NodeOrder) -> None:
        """To another node, in order."""
        ...

    def folded(self, commit: int) -> None:
        """A server has folded more shards of a phase."""
        ...

    def may_compute(self, order: m.ComputePhase) -> bool:
        """Before a worker begins another shard: waits while too much of what it pushed is not folded.

        Returns:
            False if the work is not wanted any more.
        """
        ...


def make_node(name: NodeId, kind: m.NodeKind, training: Training, folder: RunFolder, peers: Peers) -> Node:
    """A server or a worker that holds nothing yet."""
    node: type[Server] | type[Worker] = Server if kind == "server" else Worker
    return node(name, training, folder.reader, peers)


class NodeHost:
    """One node and what runs it.

    Args:
        node: a server or a worker.
        folder: its own way to the run folder.
        scheduler: when and where things run.
        links: to the controller and to other nodes.
        lease: a node whose lease is over does nothing more, and stores nothing.
    """

    def __init__(self, node: Node, folder: RunFolder, scheduler: Scheduler, links: Links, lease: Lease) -> None:
        self.node = node
        self.lease = lease
        self._folder = folder
        self._scheduler = scheduler
        self._links = links
        self._is_over = False

    def close(self) -> None:
        """The node does nothing more."""
        self._is_over = True

    @property
    def is_over(self) -> bool:
        """Whether the node has ended, or must."""
        return self._is_over or self.lease.is_over

    def give(self, order: m.NodeOrder | Stored | ShardResult) -> None:
        """Carry out one order, on the node's own lane."""
        if self.is_over:
            return
        for output in self.node.handle(order):
            self._pass_on(output)
        if isinstance(order, m.Push):
            self._links.folded(order.commit)

    def _pass_on(self, output: Output) -> None:
        name = self.node.name
        if self._is_over or not self._links.passes(name, output):
            return
        match output:
            case Reply():
                self._links.post(name, output.event)
            case Forward():
                self._links.forward(name, output.node, output.order)
            case Store():
                self._scheduler.write(name, lambda: self._store(output))
            case RunShards():
                for shard in output.shards:
                    self._run_shard(output.order, shard)

    def _run_shard(self, order: ShardOrder, shard: int) -> None:
        worker = self.node
        assert isinstance(worker, Worker)

        def task() -> None:
            if self.is_over or (isinstance(order, m.ComputePhase) and not self._links.may_compute(order)):
                return
            try:
                result = worker.run_shard(order, shard)
            except Exception:
                # A shard of an old view may see blocks change under it; what it makes of them does not count.
                if worker.holder.obeys(order.view):
                    raise
                return
            if result is not None:
                self._to_itself(result)

        in_order = order.commit if isinstance(order, m.ComputePhase) else 0
        self._scheduler.compute(worker.name, shard, in_order, task)

    def _store(self, store: Store) -> None:
        if not self.is_over:  # one that the controller has given up must not write
            outcome = write_job(self._folder, SaveJob(store.segment))
            self._to_itself(Stored(store.segment.save_id, outcome))

    def _to_itself(self, outcome: Stored | ShardResult) -> None:
        self._scheduler.deliver(self.node.name, self.node.name, self._later(outcome))

    def _later(self, outcome: Stored | ShardResult) -> Callable[[], None]:
        return lambda: self.give(outcome)

"""What is inside the process of a node: the same node code as in one process, its threads, and its lease."""

from __future__ import annotations

import os
import socket
import threading
import traceback
from collections.abc import Mapping, Sequence
from queue import Empty
from time import monotonic
from typing import Any

import ray
import ray.cloudpickle
from threadpoolctl import threadpool_limits

from scarml.control import messages as m
from scarml.control.view import NodeId
from scarml.core.block import Blocks, Ids
from scarml.core.model import Shard
from scarml.data.held_out import load_with_held_out
from scarml.engine.lease import Lease
from scarml.engine.node import Handed, Training
from scarml.engine.node_host import NodeHost, make_node
from scarml.engine.ray.actor_links import ActorLinks
from scarml.engine.ray.setup import Setup
from scarml.engine.server import Server
from scarml.engine.threads import ThreadScheduler
from scarml.errors import ClusterError, ScarError
from scarml.storage.open_store import open_store
from scarml.storage.run_folder import RunFolder

__all__ = ["HostedNode"]

BY_REFERENCE_BYTES = 100_000
"""From here on Ray passes a value through shared memory; it is put there once for all who read it."""
POLL_S = 0.25
LONGEST_WAY_S = 10.0


class HostedNode:
    """One node in this process.

    Args:
        job: what it is part of.
        name, kind: of the node.
        setup: of the run.
    """

    def __init__(self, job: str, name: NodeId, kind: m.NodeKind, setup: Setup) -> None:
        threadpool_limits(1)
        self._name = name
        self._closed = threading.Event()
        self._scheduler = ThreadScheduler(1, n_writers=1)
        self.links = ActorLinks(job, name, self._scheduler.post, self._closed.is_set)
        shards, held_out = _shards(setup) if kind == "worker" else ((), ())
        training = Training(setup.model, shards, setup.layout, setup.seed, setup.encodings, held_out)
        store = open_store(setup.url)
        if not RunFolder.is_run(store):
            raise ClusterError(
                f"the process of {name} on {socket.gethostname()} finds no run in {setup.url}; on several machines the "
                "run folder must be one that all of them see: a shared folder or s3://bucket/prefix"
            )
        folder = RunFolder(store, {})
        node = make_node(name, kind, training, folder, self.links)
        self._host = NodeHost(node, folder, self._scheduler, self.links, Lease(setup.silence_s, monotonic))
        self.links.node = node
        self._received: dict[NodeId, int] = {}
        self._unacknowledged: list[tuple[int, Any]] = []
        self._n_events = 0
        self._n_orders_due = 0
        """So many the driver had sent at the time of some poll, and had not all been received."""
        self._due_since_s = monotonic()
        self._put: tuple[tuple[int, int], dict[str, Any]] = ((0, 0), {})
        self._putting = threading.Lock()
        threading.Thread(target=self._watch_the_lease, daemon=True, name="scarml-lease").start()

    def close(self) -> None:
        """End the node and its threads; the process goes on."""
        self._closed.set()
        self._host.close()
        self._scheduler.close()

    def _watch_the_lease(self) -> None:
        length_s = self._host.lease.length_s or 1.0
        while not self._closed.wait(length_s / 4):
            self._end_if_lease_is_over()

    def _end_if_lease_is_over(self) -> None:
        if self._host.lease.is_over:
            os._exit(1)

    def ask_to_leave(self, reason: str) -> None:
        """Tell the controller that this node is about to go. Safe in a signal handler."""
        self._scheduler.post(m.DrainRequested(self._name, reason, replace=True))

    # --------------------------------------------------------------------------------------------------------- orders
    def give(self, source: NodeId, number: int, orders: list[Any]) -> None:
        """Take in orders, to be carried out one after the other."""
        if number != self._received.get(source, 0):
            os._exit(1)  # one is missing, or came twice
        self._received[source] = number + len(orders)
        if source == "controller":
            self._host.lease.renew()
        for order in orders:
            if isinstance(order, m.InstallView):
                self.links.newest_view = order.view.number
            self._scheduler.deliver(source, self._name, lambda order=order: self._host.give(order))  # type: ignore[misc]

    def poll(self, acknowledged: int, n_orders: int) -> list[tuple[int, Any]]:
        """See `scarml.engine.ray.process.NodeProcess.poll`."""
        self._end_if_lease_is_over()
        self._host.lease.renew()
        self._end_if_orders_are_missing(n_orders)
        self.links.check_what_was_sent()
        self._unacknowledged = [(n, e) for n, e in self._unacknowledged if n > acknowledged]
        if not self._unacknowledged:
            try:
                self._take(self._scheduler.events.get(timeout=POLL_S))
                while True:
                    self._take(self._scheduler.events.get_nowait())
            except Empty:
                pass
        return self._unacknowledged

    def _end_if_orders_are_missing(self, n_orders: int) -> None:
        """Orders and polls come by separate ways. An order that is still not here after a lease will never be."""
        if self._received.get("controller", 0) >= self._n_orders_due:
            self._n_orders_due, self._due_since_s = n_orders, monotonic()
        elif monotonic() - self._due_since_s > (self._host.lease.length_s or LONGEST_WAY_S):
            os._exit(1)

    def _take(self, event: m.Event | BaseException) -> None:
        self._n_events += 1
        self._unacknowledged.append((self._n_events, _sendable(event) if isinstance(event, BaseException) else event))

    # ------------------------------------------------------------------------------------------------------ data path
    def read(self, view: int, commit: int, wanted: Mapping[str, Ids | None]) -> dict[str, Any] | None:
        """See `scarml.engine.server.Server.read`. A large whole table comes as a reference, in a list."""
        node = self._host.node
        got = node.read(view, commit, wanted) if isinstance(node, Server) else None
        if got is None:
            return None
        return {
            name: self._by_reference(view, commit, name, blocks)
            if wanted[name] is None and blocks.nbytes >= BY_REFERENCE_BYTES
            else blocks
            for name, blocks in got.items()
        }

    def _by_reference(self, view: int, commit: int, name: str, blocks: Blocks) -> list[Any]:
        with self._putting:
            if self._put[0] != (view, commit):
                self._put = ((view, commit), {})
            references = self._put[1]
            if name not in references:
                references[name] = ray.put(blocks)
            return [references[name]]

    def hand_over(self, commit: int, ids: Mapping[str, Ids]) -> Handed | None:
        """See `scarml.engine.node.BlockHolder.hand_over`."""
        return self._host.node.holder.hand_over(commit, ids)

    def n_folded(self, commit: int) -> int:
        """Shards of the phase of this commit that have been folded; all of them, if it is another one."""
        node = self._host.node
        assert isinstance(node, Server)
        return node.n_folded if node.holder.commit + 1 == commit else 1 << 30

    def blocks(self, table: str) -> Blocks | None:
        """All blocks of a table that the node holds; None if the table's home is elsewhere."""
        return self._host.node.holder.blocks.get(table)


def _shards(setup: Setup) -> tuple[Sequence[Shard], Sequence[Shard]]:
    """A worker reads the data by itself, unless the driver has put it into Ray's store; and so what is held out."""
    data, held_out = (ray.get(d) if isinstance(d, ray.ObjectRef) else d for d in (setup.data, setup.held_out))
    training, others = load_with_held_out(data, held_out, setup.seed)
    n = setup.layout.n_shards
    return setup.model.shards(training, n), () if others is None else setup.model.held_out_shards(others, n)


def _sendable(error: BaseException) -> BaseException:
    """The same error, with its traceback as a note; or one that tells of it, if it cannot leave this process."""
    text = "".join(traceback.format_exception(error))
    try:
        error.add_note(f"In the process of a node:\n{text}")
        ray.cloudpickle.loads(ray.cloudpickle.dumps(error))
    except Exception:  # noqa: BLE001 - a user's exception may do anything when it is pickled
        return ScarError(f"{type(error).__name__} in the process of a node:\n{text}")
    return error

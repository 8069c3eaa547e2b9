"""How what comes out of a node in a process of its own reaches the controller and the other nodes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import ray
from ray.exceptions import ObjectLostError, RayActorError, RayError

from scarml.control import messages as m
from scarml.control.view import NodeId
from scarml.core.block import Blocks, Ids
from scarml.engine.node import Handed, Node, Output, Wanted

__all__ = ["ActorLinks"]

FLUSH_BYTES = 1 << 20
"""Updates for one server are sent together, as soon as they are so large or the phase is done."""
MOST_UNFOLDED_BYTES = 64 << 20
"""A worker does not begin another shard while so much of what it has pushed is waiting at one server to be folded."""
LOOK_S = 0.25
_UNREACHABLE = (RayActorError, ObjectLostError)


class _Outbox:
    """Pushes on their way to one server."""

    def __init__(self) -> None:
        self.waiting: list[m.Push] = []
        self.waiting_bytes = 0
        self.n_sent = 0
        self.unfolded: dict[int, int] = {}
        """By shard the bytes that have been sent and, as far as is known, not been folded."""
        self.phase = (0, 0)
        """View and commit of what has been sent."""


class ActorLinks:
    """The `Links` and the `Peers` of a node in a process of its own.

    Args:
        job: what the node is part of.
        name: of the node.
        post: brings an event to the driver.
        is_over: whether the node has ended.
    """

    node: Node

    def __init__(self, job: str, name: NodeId, post: Callable[[m.Event], None], is_over: Callable[[], bool]) -> None:
        self.newest_view = 0
        """The newest view that the controller has told of; it may not be installed yet."""
        self._job = job
        self._name = name
        self._post = post
        self._is_over = is_over
        self._processes: dict[NodeId, Any] = {}
        self._outboxes: dict[NodeId, _Outbox] = {}
        self._sent: list[tuple[NodeId, Any]] = []
        self._mutex = threading.Lock()

    def meet(self, processes: Mapping[NodeId, Any]) -> None:
        """Get to know the processes of other nodes."""
        self._processes = {**self._processes, **processes}

    # ------------------------------------------------------------------------------------------ what the node sends
    def passes(self, source: NodeId, output: Output) -> bool:
        """Nothing is held back."""
        return True

    def post(self, source: NodeId, event: m.Event) -> None:
        """To the controller. Who says that it is prepared has sent everything."""
        if isinstance(event, m.Prepared):
            for node in self._outboxes:
                self._flush(node)
        self._post(event)

    def forward(self, source: NodeId, node: NodeId, order: m.NodeOrder) -> None:
        """To a server, together with other pushes."""
        assert isinstance(order, m.Push)
        box = self._outboxes.setdefault(node, _Outbox())
        size = sum(u.values.nbytes for u in order.updates)
        with self._mutex:
            if box.phase != (order.view, order.commit):
                box.phase, box.unfolded = (order.view, order.commit), {}
            box.unfolded[order.shard] = size
        box.waiting.append(order)
        box.waiting_bytes += size
        if box.waiting_bytes >= FLUSH_BYTES:
            self._flush(node)

    def _flush(self, node: NodeId) -> None:
        box = self._outboxes[node]
        pushes, box.waiting, box.waiting_bytes = box.waiting, [], 0
        if pushes:
            sent = self._processes[node].give.remote(self._job, self._name, box.n_sent, pushes)
            box.n_sent += len(pushes)
            with self._mutex:
                self._sent.append((node, sent))
        self.check_what_was_sent()

    def check_what_was_sent(self) -> None:
        """A push that did not arrive must not hold training up for ever: the server is as good as lost.

        Any thread may ask.
        """
        with self._mutex:
            pending = [reference for _, reference in self._sent]
            arrived = set(ray.wait(pending, num_returns=len(pending), timeout=0)[0]) if pending else set()
            answers = [(n, r) for n, r in self._sent if r in arrived]
            self._sent = [(n, r) for n, r in self._sent if r not in arrived]
        for node, reference in answers:
            try:
                ray.get(reference)
            except RayError as e:
                self._accuse(node, e)

    def _accuse(self, node: NodeId, error: RayError) -> None:
        """Whoever cannot be reached is as good as lost: nobody else would notice, and all would wait for ever."""
        self._post(m.NodeLost(node, f"{self._name} cannot reach it: {type(error).__name__}"))

    def folded(self, commit: int) -> None:
        """Who pushes asks for it."""

    def may_compute(self, order: m.ComputePhase) -> bool:
        """Ask the servers that have got much from this worker, until they have folded enough of it."""
        phase, is_wanted = (order.view, order.commit), partial(self.node.holder.obeys, order.view)
        for node, box in list(self._outboxes.items()):
            while box.phase == phase and sum(box.unfolded.values()) > MOST_UNFOLDED_BYTES:
                got = self._all({node: self._processes[node].n_folded.remote(self._job, phase[1])}, is_wanted, [node])
                if got is None or got[node] is None or not is_wanted():
                    return False
                with self._mutex:
                    if box.phase == phase:
                        box.unfolded = {shard: size for shard, size in box.unfolded.items() if shard >= got[node]}
                threading.Event().wait(0.005)
        return True

    # ------------------------------------------------------------------------------------------------------ data path
    def read(self, view: int, commit: int, wanted: Wanted) -> dict[NodeId, dict[str, Blocks]] | None:
        """One request a server, all at once."""
        is_wanted = partial(self.node.holder.obeys, view)
        calls = {
            server: self._processes[server].read.remote(self._job, view, commit, dict(t))
            for server, t in wanted.items()
        }
        got = self._all(calls, is_wanted, list(calls))
        if got is None or None in got.values():
            return None
        references = {
            (server, name): value[0]
            for server, tables in got.items()
            for name, value in tables.items()
            if isinstance(value, list)
        }
        large = self._all(references, is_wanted, [server for server, _ in references])
        if large is None:
            return None
        return {
            server: {name: large.get((server, name), value) for name, value in tables.items()}
            for server, tables in got.items()
        }

    def hand_over(self, holder: NodeId, commit: int, ids: Mapping[str, Ids]) -> Handed | None:
        """Given up when the controller tells of another view: the holder may be lost."""
        view = self.newest_view
        if holder not in self._processes:
            return None  # it was gone when this node was told of the view
        call = self._processes[holder].hand_over.remote(self._job, commit, dict(ids))
        got = self._all({holder: call}, lambda: self.newest_view == view, [holder])
        return None if got is None else got[holder]

    def _all(
        self, references: Mapping[Any, Any], is_wanted: Callable[[], bool], nodes: list[NodeId]
    ) -> dict[Any, Any] | None:
        """The values of all references; None if one cannot be had, or they are not wanted any more.

        Args:
            references: by key.
            is_wanted: asked again and again.
            nodes: of every reference the node that it comes from.
        """
        pending = list(references.values())
        while pending:
            _, pending = ray.wait(pending, num_returns=len(pending), timeout=LOOK_S)
            if pending and (self._is_over() or not is_wanted()):
                return None
        values = {}
        for (key, reference), node in zip(references.items(), nodes, strict=True):
            try:
                values[key] = ray.get(reference)
            except _UNREACHABLE as e:
                self._accuse(node, e)
                return None
        return values

"""The nodes as the driver reaches them: each in a process of its own, which may die at any moment."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from time import monotonic
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayActorError, RayError, RaySystemError, RayTaskError

from scarml.control import messages as m
from scarml.control.view import NodeId, View
from scarml.core.block import Blocks, Table, concatenate
from scarml.engine.ray.connection import RayCluster
from scarml.engine.ray.health import RayHealth
from scarml.engine.ray.setup import Setup
from scarml.errors import ClusterError, ClusterLostError

__all__ = ["RemoteNodes"]

_log = logging.getLogger(__name__)

START_S = 120.0
"""A process that has not begun after so long is given up: the cluster has no room, or cannot import what it needs."""
N_TRIES = 3
"""Processes for one node of the first view: one that dies while it starts is no reason to give the run up."""
LOOK_S = 0.1
END_S = 5.0


@dataclass(slots=True)
class _Member:
    """One node, as far as the driver knows."""

    kind: m.NodeKind
    process: Any
    begins_by_s: float
    n_tries: int = 1
    begun: Any = None
    """The pending answer of `begin`, until it comes."""
    pid: int | None = None
    host: str | None = None
    n_sent: int = 0
    acquainted: set[NodeId] = field(default_factory=set)
    acknowledged: int = 0
    heard_s: float = 0.0
    polls_again_at_s: float | None = None


class RemoteNodes:
    """The `Nodes` of a cluster on Ray. One thread listens to all of them.

    Args:
        cluster: where processes come from.
        setup: of the run.
        post: brings an event, or an error of a node, to whoever runs the controller.
        silence_s: ticks come often enough to notice a silence of this length.
    """

    def __init__(
        self, cluster: RayCluster, setup: Setup, post: Callable[[m.Event | BaseException], None], silence_s: float
    ) -> None:
        self._cluster = cluster
        self._job = uuid.uuid4().hex
        self._setup = ray.put(setup)
        self._post = post
        self._silence_s = silence_s
        self._tick_s = min(silence_s / 10, 1.0)
        self.gcs_lost: str | None = None
        """Where the GCS was, if it is gone: the run has been asked to stop."""
        self._health = RayHealth(cluster.is_started_here, self._stop_in_time)
        self._members: dict[NodeId, _Member] = {}
        self._here = socket.gethostname()
        self._mutex = threading.Lock()
        self._is_over = threading.Event()
        self._first: set[NodeId] = set()
        """Nodes of the first view that have not begun."""
        self._first_begun: SimpleQueue[tuple[NodeId, BaseException | None]] = SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True, name="scarml-listener")

    # ------------------------------------------------------------------------------------------------ life and death
    def start_all(self, nodes: Mapping[NodeId, m.NodeKind]) -> None:
        """Start the nodes of the first view, and wait for them.

        Raises:
            ClusterError: one of them cannot be started.
            Exception: whatever the model raised, or reading the data.
        """
        self._first = set(nodes)
        for name, kind in nodes.items():
            self._begin(name, kind)
        self._listener.start()  # now: who has begun must hear of the driver while others have not
        while self._first:
            name, error = self._first_begun.get()
            if error is not None:
                raise error
            self._first.discard(name)

    def start(self, name: NodeId, kind: m.NodeKind) -> None:
        """Start another one; the listener hears of it when it has begun."""
        self._begin(name, kind)

    def _begin(self, name: NodeId, kind: m.NodeKind, n_tries: int = 1) -> None:
        process = self._cluster.acquire()
        member = _Member(kind, process, monotonic() + START_S, n_tries)
        member.begun = process.begin.remote(self._job, name, kind, self._setup)
        with self._mutex:
            self._members[name] = member

    def _has_begun(self, name: NodeId, where: tuple[int, str]) -> None:
        member = self._members[name]
        member.pid, member.host = where
        member.heard_s, member.begun, member.polls_again_at_s = monotonic(), None, 0.0

    def stop(self, name: NodeId) -> None:
        """The process ends at once, whatever it is doing, also if it is stopped."""
        with self._mutex:
            member = self._members.pop(name, None)
        if member is not None:
            self._end(member)

    def _end(self, member: _Member) -> None:
        if member.pid is not None and member.host == self._here:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member.pid, signal.SIGKILL)  # Ray takes seconds where the process has been stopped
        with contextlib.suppress(RayError):
            ray.kill(member.process)

    def kill(self, name: NodeId) -> None:
        """As a failure would: nobody is told."""
        member = self._members.get(name)
        if member is not None:
            self._end(member)

    def close(self) -> None:
        """Nobody is needed any more; processes that are well may host other nodes."""
        self._is_over.set()
        if self._listener.is_alive():
            self._listener.join()
        members, self._members = self._members, {}
        can_end = not self._health.raylet_is_gone
        self._health.close()
        ending = {
            name: d.process.end.remote()
            for name, d in members.items()
            if can_end and d.begun is None and d.pid is not None
        }
        ended = set(ray.wait([*ending.values()], num_returns=len(ending), timeout=END_S)[0]) if ending else set()
        for name, member in members.items():
            if name in ending and ending[name] in ended and _is_well(ending[name]):
                self._cluster.release(member.process)
            else:
                self._end(member)

    def place(self, name: NodeId) -> tuple[int | None, str | None]:
        """Number and host of the process of a node."""
        member = self._members.get(name)
        return (None, None) if member is None else (member.pid, member.host)

    # --------------------------------------------------------------------------------------------------------- orders
    def send(self, source: NodeId, name: NodeId, order: m.NodeOrder) -> None:
        """Bring an order to a node, in order."""
        member = self._members.get(name)
        if member is None:
            return
        if isinstance(order, m.InstallView):
            self._introduce(member, (*order.view.nodes, *order.fetch))
        member.process.give.options(num_returns=0).remote(self._job, "controller", member.n_sent, [order])
        member.n_sent += 1

    def _introduce(self, member: _Member, names: Iterable[NodeId]) -> None:
        """A node must know the processes of the nodes that it is going to talk to."""
        new = {n: self._members[n].process for n in names if n in self._members and n not in member.acquainted}
        if new:
            member.process.meet.options(num_returns=0).remote(self._job, new)
            member.acquainted |= set(new)

    def state(self, view: View, tables: Mapping[str, Table]) -> dict[str, Blocks]:
        """Per table all blocks of the nodes of a view, brought here; none at all if a node is lost meanwhile."""
        state = {}
        for name, table in tables.items():
            home = view.servers if table.home == "server" else view.workers
            parts = [self._blocks_of(node, name) for node in home]
            if any(p is None for p in parts):
                return {}
            state[name] = concatenate(table, [p for p in parts if p is not None])
        return state

    def _blocks_of(self, name: NodeId, table: str) -> Blocks | None:
        member = self._members[name]
        answer = member.process.blocks.remote(self._job, table)
        while not ray.wait([answer], timeout=LOOK_S)[0]:
            if monotonic() - member.heard_s > self._silence_s:
                return None
        try:
            blocks: Blocks | None = ray.get(answer)
        except RayError as e:
            _log.debug("%s cannot be read: %s", name, e)
            return None
        return blocks

    # ------------------------------------------------------------------------------------------------------ listening
    def _listen(self) -> None:
        try:
            self._listen_until_over()
        except BaseException as e:  # noqa: BLE001 - brought to the thread that waits for events, which raises it
            self._first_begun.put(("", e))
            self._post(e)

    def _listen_until_over(self) -> None:
        polls: dict[Any, NodeId] = {}
        ticks_at_s = 0.0
        while not self._is_over.is_set():
            self._see_that_ray_lives()
            now_s = monotonic()
            if now_s >= ticks_at_s and not self._first:  # else who has not begun yet would seem to be silent
                self._post(m.Tick(now_s))
                ticks_at_s = now_s + self._tick_s
            self._poll(polls, now_s)
            with self._mutex:
                beginning = {d.begun: name for name, d in self._members.items() if d.begun is not None}
            pending = [*polls, *beginning]
            if not pending:
                self._is_over.wait(LOOK_S)
                continue
            ready, _ = ray.wait(pending, num_returns=1, timeout=min(LOOK_S, self._tick_s))
            if ready:  # there may be more by now
                ready, _ = ray.wait(pending, num_returns=len(pending), timeout=0)
            for reference in ready:
                if reference in polls:
                    self._hear(polls.pop(reference), reference)
                else:
                    self._take_in(beginning[reference], reference)
            self._give_up_late_ones(beginning.values())

    def _see_that_ray_lives(self) -> None:
        if self._health.raylet_is_gone:
            raise ClusterLostError(
                "the Ray on this machine has died (its raylet is gone), and all nodes on the machine with it; what was "
                "saved is safe"
            )

    def _stop_in_time(self, gcs: str) -> None:
        self.gcs_lost = gcs
        self._post(m.StopRequested(f"the head of Ray is gone (its GCS, {gcs})"))

    def _poll(self, polls: dict[Any, NodeId], now_s: float) -> None:
        """One call is pending at every node that has begun."""
        with self._mutex:
            members = dict(self._members)
        for name, member in members.items():
            if member.polls_again_at_s is not None and now_s >= member.polls_again_at_s:
                member.polls_again_at_s = None
                polls[member.process.poll.remote(self._job, member.acknowledged, member.n_sent)] = name

    def _hear(self, name: NodeId, reference: Any) -> None:
        member = self._members.get(name)
        if member is None:
            return  # it was stopped
        try:
            events = ray.get(reference)
        except ActorDiedError as e:
            _log.debug("%s has died: %s", name, e)
            self._post(m.NodeLost(name, _why_it_died(member, e)))
            return
        except RayTaskError as e:
            self._post(_as_raised(e))
            return
        except RayError as e:  # it may live: if not, its silence will tell
            _log.debug("%s cannot be reached: %s", name, e)
            member.polls_again_at_s = monotonic() + LOOK_S
            return
        member.polls_again_at_s, member.heard_s = 0.0, monotonic()
        self._post(m.Heartbeat(name, member.heard_s))
        for number, event in events:
            if number > member.acknowledged:
                member.acknowledged = number
                self._post(event)

    def _take_in(self, name: NodeId, reference: Any) -> None:
        member = self._members.get(name)
        if member is None or member.begun is None:
            return
        try:
            self._has_begun(name, ray.get(reference))
        except ActorDiedError as e:
            self._died_while_it_began(name, member, e)
        except RayError as e:
            _log.debug("%s could not be started: %s", name, e)
            self._cannot_begin(name, member, _as_raised(e), f"it could not be started: {_last_line(e)}")
        else:
            if name in self._first:
                self._first_begun.put((name, None))
            else:
                self._post(m.NodeJoined(name))

    def _died_while_it_began(self, name: NodeId, member: _Member, error: ActorDiedError) -> None:
        """Of a node of the first view: the run waits for it, and another process may do better."""
        if name in self._first and member.n_tries < N_TRIES:
            _log.warning("the process of %s has died while it started; another one is started", name)
            self._begin(name, member.kind, member.n_tries + 1)
            return
        what = f"the process of {name} has died while it started"
        why = f"{what}, {member.n_tries} times. Is there enough memory? Ray says: {_last_line(error)}"
        self._cannot_begin(name, member, ClusterError(why), "its process has died while it started")

    def _cannot_begin(self, name: NodeId, member: _Member, error: BaseException, why: str) -> None:
        member.begun = None
        if name in self._first:
            self._first_begun.put((name, error))
        else:
            self._post(m.NodeLost(name, why))

    def _give_up_late_ones(self, beginning: Iterable[NodeId]) -> None:
        for name in beginning:
            member = self._members.get(name)
            if member is not None and member.begun is not None and monotonic() > member.begins_by_s:
                why = f"could not be started within {START_S:.0f} s"
                error = ClusterError(f"{name} {why}. Is there room on the cluster (ray status)?")
                self._cannot_begin(name, member, error, f"it {why}")


def _as_raised(error: RayError) -> BaseException:
    """What was raised in another process, not wrapped by Ray."""
    raised: BaseException | None = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(raised, RaySystemError):  # what it was told cannot be unpickled there
        return ClusterError(
            f"the process of a node cannot make use of the model or its data: {_last_line(raised)}; the module of "
            "a model must be installed where the nodes are, or lie in the folder that the job is started in"
        )
    if isinstance(error, RayTaskError):
        return raised if raised is not None else error
    return ClusterError(f"the process of a node could not be started: {_last_line(error)}")


def _is_well(ended: Any) -> bool:
    try:
        ray.get(ended)
    except RayError:
        return False
    return True


def _why_it_died(member: _Member, error: RayActorError) -> str:
    where = f"its process {member.pid} on {member.host}"
    if isinstance(error, ActorDiedError) and "node was terminated" in str(error):
        return f"{where} is gone with its machine"
    return f"{where} has died"


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__

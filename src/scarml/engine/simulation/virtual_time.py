"""Virtual time: a `scarml.engine.cluster.Scheduler` in which every task waits a random while, decided by a seed."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scarml.control import messages as m
from scarml.control.view import NodeId
from scarml.storage.simulated_disk import SimulatedCrash

__all__ = ["VirtualScheduler"]


@dataclass(frozen=True, slots=True, order=True)
class _Task:
    due_s: float
    number: int
    source: NodeId = field(compare=False)
    owner: NodeId = field(compare=False)
    name: str = field(compare=False)
    run: Callable[[], None] = field(compare=False)


class VirtualScheduler:
    """Virtual time: every task waits a random while; per link and per writer they keep their order.

    Args:
        rng: decides delays, and which repeatable deliveries come twice.
        trace: fed with every task that runs.
    """

    def __init__(self, rng: np.random.Generator, trace: Any) -> None:
        self._rng = rng
        self._trace = trace
        self._now_s = 0.0
        self._tasks: list[_Task] = []
        self._paused_until_s: dict[NodeId, float] = {}
        self._cut_off_until_s: dict[NodeId, float] = {}
        self._slow: set[NodeId] = set()
        self._n = 0
        self._last: dict[tuple[str, NodeId, NodeId], float] = {}
        self._write_s = 0.01
        self.on_event: Callable[[m.Event], None] = lambda _: None
        self.on_post: Callable[[m.Event], None] = lambda _: None

    def now_s(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def deliver(self, source: NodeId, node: NodeId, task: Callable[[], None], may_repeat: bool = False) -> None:
        """In order from each source; a repeat comes later, out of order."""
        self._put(source, node, "deliver", task, self._in_order(("link", source, node), self._delay(0.002, node)))
        if may_repeat and self._rng.random() < 0.1:
            self._put(source, node, "repeat", task, self._delay(0.04, node))

    def compute(self, node: NodeId, shard: int, commit: int, task: Callable[[], None]) -> None:
        """In any order."""
        self._put(node, node, f"shard {shard}", task, self._delay(0.005, node))

    def folded(self, commit: int, n_shards: int) -> None:
        """Nothing is held back here."""

    def write(self, node: NodeId, task: Callable[[], None]) -> None:
        """In order for each node."""
        due_s = self._in_order(("writer", node, node), self._delay(self._write_s, node))
        self._put(node, node, "write", task, due_s)

    def slow_writes(self, slow: bool) -> None:
        """Whether writes take much longer than an iteration."""
        self._write_s = 0.3 if slow else 0.01

    def pause(self, node: NodeId, length_s: float) -> None:
        """A node's process is stopped for a while: it does nothing, and its clock goes on."""
        self._paused_until_s[node] = max(self._now_s + length_s, self._paused_until_s.get(node, 0.0))

    def cut_off(self, node: NodeId, length_s: float) -> None:
        """Nothing gets from a node to the controller, or back, for a while; then it all arrives."""
        self._cut_off_until_s[node] = max(self._now_s + length_s, self._cut_off_until_s.get(node, 0.0))

    def slow_down(self, node: NodeId, length_s: float) -> None:
        """Everything at a node takes long for a while."""
        self._slow.add(node)
        self.at(length_s, "fast again", lambda: self._slow.discard(node))

    def post(self, event: m.Event, delay_s: float = 0.0) -> None:
        """From each node in order; timers exactly."""
        self.on_post(event)
        source = getattr(event, "node", "controller")
        name = type(event).__name__
        due_s = self._in_order(("post", source, "controller"), self._delay(0.002))
        self._put(source, "controller", name, lambda: self.on_event(event), self._now_s + delay_s if delay_s else due_s)

    def at(self, delay_s: float, name: str, task: Callable[[], None]) -> None:
        """Something from outside happens."""
        self._put("outside", "outside", name, task, self._now_s + delay_s)

    def step(self) -> tuple[NodeId, BaseException | None] | None:
        """Run the next task. Returns whose it was and the crash that it died of; None if there is no task."""
        while self._tasks:
            task = heapq.heappop(self._tasks)
            self._now_s = max(self._now_s, task.due_s)
            held_until_s = self._held_until_s(task)
            if held_until_s > self._now_s:
                heapq.heappush(self._tasks, replace(task, due_s=held_until_s))  # those of a link keep their order
                continue
            self._trace.update(f"{task.owner} {task.name} {self._now_s:.9f};".encode())
            try:
                task.run()
            except SimulatedCrash as crash:
                return task.owner, crash
            return task.owner, None
        return None

    def _held_until_s(self, task: _Task) -> float:
        held_s = self._paused_until_s.get(task.owner, 0.0)
        if "controller" in (task.source, task.owner):
            other = task.owner if task.source == "controller" else task.source
            held_s = max(held_s, self._cut_off_until_s.get(other, 0.0))
        return held_s

    def forget(self, owner: NodeId) -> None:
        """A process has died: what it had still to do is not done."""
        self._tasks = [t for t in self._tasks if t.owner != owner or t.name in ("deliver", "repeat")]
        heapq.heapify(self._tasks)

    def _delay(self, typical_s: float, node: NodeId | None = None) -> float:
        slow = 10.0 if self._rng.random() < 0.02 or node in self._slow else 1.0
        return self._now_s + typical_s * slow * float(self._rng.random())

    def _in_order(self, key: tuple[str, NodeId, NodeId], due_s: float) -> float:
        self._last[key] = max(due_s, self._last.get(key, 0.0) + 1e-9)
        return self._last[key]

    def _put(self, source: NodeId, owner: NodeId, name: str, task: Callable[[], None], due_s: float) -> None:
        self._n += 1
        heapq.heappush(self._tasks, _Task(due_s, self._n, source, owner, name, task))

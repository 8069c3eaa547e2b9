"""Threads of this process as a `scarml.engine.scheduler.Scheduler`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from queue import SimpleQueue
from threading import Timer
from time import monotonic

from scarml.control import messages as m
from scarml.control.view import NodeId
from scarml.engine.lane import Lane
from scarml.engine.shard_pool import ShardPool

__all__ = ["ThreadScheduler"]


class ThreadScheduler:
    """Runs node orders, shards and writes on threads of this process.

    Args:
        n_threads: for shards, and as many lanes for node orders; a node is always on the same lane.
        window: shards that may be begun before the first of them is folded; None: any number.
        n_writers: threads for writes.
    """

    def __init__(self, n_threads: int, window: int | None = None, n_writers: int = 4) -> None:
        self.events: SimpleQueue[m.Event | BaseException] = SimpleQueue()
        self._start_s = monotonic()
        self._lanes = [Lane(f"scarml-lane-{i}", self._guard) for i in range(n_threads)]
        self._lane_of: dict[NodeId, Lane] = {}
        self._pool = ShardPool(n_threads, sys.maxsize if window is None else window, self._guard)
        self._writers = [Lane(f"scarml-writer-{i}", self._guard) for i in range(n_writers)]
        self._writer_of: dict[NodeId, Lane] = {}
        self._timers: set[Timer] = set()

    def now_s(self) -> float:
        """Seconds since this scheduler was made."""
        return monotonic() - self._start_s

    def deliver(self, source: NodeId, node: NodeId, task: Callable[[], None], may_repeat: bool = False) -> None:
        """On the node's lane."""
        lane = self._lane_of.setdefault(node, self._lanes[len(self._lane_of) % len(self._lanes)])
        lane.submit(task)

    def compute(self, node: NodeId, shard: int, commit: int, task: Callable[[], None]) -> None:
        """On the shard pool."""
        self._pool.submit(commit, shard, task)

    def folded(self, commit: int, n_shards: int) -> None:
        """Lets the shard pool go on."""
        self._pool.folded(commit, n_shards)

    def write(self, node: NodeId, task: Callable[[], None]) -> None:
        """On the node's writer: the nodes of a save wait for the disk together, not one after the other."""
        writer = self._writer_of.setdefault(node, self._writers[len(self._writer_of) % len(self._writers)])
        writer.submit(task)

    def post(self, event: m.Event, delay_s: float = 0.0) -> None:
        """To the controller's queue."""
        if not delay_s:
            self.events.put(event)
            return
        timer = Timer(delay_s, self.events.put, (event,))
        timer.daemon = True
        self._timers.add(timer)
        timer.start()

    def drain_writes(self) -> None:
        """Wait until everything that was to be written has been, or has failed, and its node knows."""
        for lane in (*self._writers, *self._lanes):
            lane.drain()

    def close(self) -> None:
        """End all threads, writes first."""
        for timer in self._timers:
            timer.cancel()
        for writer in self._writers:
            writer.close()
        self._pool.close()
        for lane in self._lanes:
            lane.close()

    def _guard(self, task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as e:  # noqa: BLE001 - brought to the thread that waits for events, which raises it
            self.events.put(e)

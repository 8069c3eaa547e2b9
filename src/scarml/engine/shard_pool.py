"""Threads that work on shards, lowest first, and never far ahead of what has been folded."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from threading import Condition, Thread

__all__ = ["ShardPool"]

Task = Callable[[], None]


class ShardPool:
    """A fixed number of daemon threads.

    Servers fold updates in shard order, so an update that comes early is kept waiting. A shard is therefore not begun
    before all shards but the ``window`` before it are folded.

    Args:
        n_threads: at least 1.
        window: shards that may be begun before the first of them is folded.
        guard: runs every task; catches what it raises.
    """

    def __init__(self, n_threads: int, window: int, guard: Callable[[Task], None]) -> None:
        self._window = window
        self._guard = guard
        self._waiting: list[tuple[int, int, int, Task]] = []
        self._n_submitted = 0
        self._commit = 1
        self._n_folded = 0
        self._closed = False
        self._changed = Condition()
        self._threads = [Thread(target=self._work, daemon=True, name=f"scarml-shards-{i}") for i in range(n_threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, commit: int, shard: int, task: Task) -> None:
        """Work on a shard. ``commit`` 0: nothing is folded, begin whenever a thread is free."""
        with self._changed:
            self._n_submitted += 1
            heapq.heappush(self._waiting, (commit, shard, self._n_submitted, task))
            self._changed.notify()

    def folded(self, commit: int, n_shards: int) -> None:
        """So many shards of this commit have been folded everywhere."""
        with self._changed:
            if commit >= self._commit:
                self._commit, self._n_folded = commit, n_shards
                if self._may_begin():  # every push of every shard comes here, and waking threads in vain is dear
                    self._changed.notify_all()

    def close(self) -> None:
        """End the threads; what has not begun is dropped."""
        with self._changed:
            self._closed = True
            self._waiting = []
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _may_begin(self) -> bool:
        if not self._waiting:
            return False
        commit, shard, _, _ = self._waiting[0]
        n_folded = self._n_folded if commit == self._commit else 0
        return commit < self._commit or shard < n_folded + self._window

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._may_begin())
                if self._closed:
                    return
                *_, task = heapq.heappop(self._waiting)
            self._guard(task)

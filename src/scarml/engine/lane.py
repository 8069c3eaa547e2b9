"""A thread that runs tasks one after the other."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread

__all__ = ["Lane"]

Task = Callable[[], None]


class Lane:
    """One daemon thread. An executor does more (a future and a lock for each task) and costs five times as much.

    Args:
        name: of the thread.
        guard: runs every task; catches what it raises.
    """

    def __init__(self, name: str, guard: Callable[[Task], None]) -> None:
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._guard = guard
        self._thread = Thread(target=self._work, daemon=True, name=name)
        self._thread.start()

    def submit(self, task: Task) -> None:
        """Run a task when all that were submitted before are done. After `close` it is dropped."""
        self._tasks.put(task)

    def drain(self) -> None:
        """Wait until everything submitted so far has been done."""
        done = Event()
        self.submit(done.set)
        done.wait()

    def close(self) -> None:
        """Do what was submitted, then end the thread."""
        self._tasks.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._guard(task)

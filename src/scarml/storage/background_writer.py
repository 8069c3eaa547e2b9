"""Storing segments beside training: a plain function that stores one, and a thread that calls it.

The simulation calls `write_job` itself; on real machines `BackgroundWriter` does. Nothing is retried here: the
checkpoint coordinator decides that.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from scarml.errors import ProtocolError, StoreError, SupersededError
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment import Segment

__all__ = ["BackgroundWriter", "Outcome", "SaveJob", "WriteFailed", "Written", "write_job"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class SaveJob:
    """One segment to store. Its arrays must not change until the outcome is there."""

    segment: Segment


@dataclass(frozen=True, slots=True)
class Written:
    """The segment is durable, and its term was the newest when it became so."""

    size_bytes: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """The segment does not count.

    Args:
        cause: in words.
        kind: ``retry``: the store failed, trying again is safe; ``superseded``: stop; ``defect``: a bug, and
            trying again is of no use.
        duration_s: until it failed.
    """

    cause: str
    kind: Literal["retry", "superseded", "defect"]
    duration_s: float


Outcome = Written | WriteFailed


def write_job(run: RunFolder, job: SaveJob, clock_s: Callable[[], float] = time.perf_counter) -> Outcome:
    """Store one segment and say how it went; raises nothing that is an `Exception`."""
    start_s = clock_s()
    try:
        size_bytes = run.write_segment(job.segment)
    except SupersededError as e:
        return WriteFailed(str(e), "superseded", clock_s() - start_s)
    except StoreError as e:
        return WriteFailed(str(e), "retry", clock_s() - start_s)
    except Exception as e:  # noqa: BLE001 - a bug must not end the thread, or be taken for a failing store
        _log.exception("storing save %s failed for a reason that should not be", job.segment.save_id)
        return WriteFailed(f"{type(e).__name__}: {e}", "defect", clock_s() - start_s)
    return Written(size_bytes, clock_s() - start_s)


class BackgroundWriter:
    """One daemon thread that stores segments, one after the other.

    Args:
        run: where to.
        max_waiting: jobs that may wait; more is an error, since at most one save is in flight.

    Example:
        >>> with BackgroundWriter(run) as writer:                       # doctest: +SKIP
        ...     writer.submit(SaveJob(segment), on_done=outcomes.put)
    """

    def __init__(self, run: RunFolder, max_waiting: int = 2) -> None:
        self._run = run
        self._tasks: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._slots = threading.Semaphore(max_waiting + 1)
        self._mutex = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="scar-writer", daemon=True)
        self._thread.start()

    def submit(self, job: SaveJob, on_done: Callable[[Outcome], None]) -> None:
        """Store a segment soon. ``on_done`` is called with the outcome, in the writer's thread; it must be quick.

        Raises:
            ProtocolError: too many jobs wait, or the writer is closed.
        """
        with self._mutex:
            if self._is_closed:
                raise ProtocolError(f"{job.segment.name} was submitted to a writer that is closed")
            if not self._slots.acquire(blocking=False):
                raise ProtocolError(f"{job.segment.name} was submitted while earlier saves still wait to be stored")
            self._tasks.put(lambda: self._store(job, on_done))

    def call(self, task: Callable[[], None]) -> None:
        """Do something else on the store, such as keeping events, after what waits; not if the writer is closed."""
        with self._mutex:
            if not self._is_closed:
                self._tasks.put(task)

    def close(self, timeout_s: float | None = None) -> bool:
        """Store what waits, then end; whether that was done within the time. Closing twice does nothing more."""
        with self._mutex:
            if not self._is_closed:
                self._is_closed = True
                self._tasks.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def __enter__(self) -> BackgroundWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except Exception:  # noqa: BLE001 - it is the caller's, and must not end the thread
                _log.exception("a task of the writer failed for a reason that should not be")
            del task  # a staged segment is not kept until the next one comes

    def _store(self, job: SaveJob, on_done: Callable[[Outcome], None]) -> None:
        outcome = write_job(self._run, job)
        self._slots.release()
        try:
            on_done(outcome)
        except Exception:  # noqa: BLE001 - as above
            _log.exception("the outcome of save %s could not be delivered", job.segment.save_id)

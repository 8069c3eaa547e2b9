"""A job whose iterations are let through one by one, so that they can alternate with something else."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import scarml as scar

__all__ = ["SteppedJob", "never_saving"]


class SteppedJob:
    """Runs a `scarml.Job` in a thread; the hook of the job's events holds training at every commit.

    Args: as `scarml.Job`; nothing is evaluated and the job never ends by itself.
    """

    def __init__(self, model: scar.Model, data: Any, **settings: Any) -> None:
        self._may_go, self._has_come, self._ending = Event(), Event(), False
        self.records: list[Any] = []
        stop = scar.Stop(max_iters=10**9, eval_every_iters=10**9)
        self._job = scar.Job(model, data, stop=stop, on_event=self._on_event, **settings)
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()
        self._has_come.wait()

    def step(self) -> None:
        """One iteration."""
        self._has_come.clear()
        self._may_go.set()
        self._has_come.wait()

    def close(self) -> None:
        """End the job."""
        self._ending = True
        self._may_go.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._job.run()
        except _EndError:
            return
        finally:
            self._has_come.set()

    def _on_event(self, record: Any) -> None:
        self.records.append(record)
        if record.name == "iteration_committed":
            self._has_come.set()
            self._may_go.wait()
            self._may_go.clear()
            if self._ending:
                raise _EndError


class _EndError(Exception):
    pass


def never_saving() -> scar.Checkpoint:
    """Settings under which no save falls due."""
    return scar.Checkpoint(policy="round", fraction=1, interval_iters=10**9)

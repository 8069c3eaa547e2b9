"""Slowing a run down, so that eyes can follow it, or so that a slow disk can."""

from __future__ import annotations

import time
from collections.abc import Callable

from scarml.control.history import Record

__all__ = ["Pace"]

LONGEST_WAIT_S = 0.12
LONGEST_SLEEP_S = 0.1


class Pace:
    """Waits in every iteration, while the store writes what was staged.

    Args:
        seconds: to wait in an iteration, half of it for the save and half after the loss.
        follow_store: wait for as long as the last save took, if that is longer, up to 0.12 seconds.
        is_over: asked while waiting; True ends the wait: a run that was told to stop stops at once.
    """

    def __init__(self, seconds: float, follow_store: bool = False, is_over: Callable[[], bool] = lambda: False) -> None:
        self._seconds = seconds
        self._follow_store = follow_store
        self._is_over = is_over
        self._staged_at_s = 0.0
        self.save_took_s = 0.0

    def take_in(self, record: Record) -> None:
        """Wait, if this is the moment."""
        match record.name:
            case "save_staged":
                self._staged_at_s = time.monotonic()
                self._wait(max(self._seconds / 2, self._for_store()))
            case "save_committed":
                self.save_took_s = time.monotonic() - self._staged_at_s
            case "loss_evaluated":
                self._wait(self._seconds / 2)

    def _for_store(self) -> float:
        return min(1.2 * self.save_took_s, LONGEST_WAIT_S) if self._follow_store else 0.0

    def _wait(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0 and not self._is_over():
            time.sleep(min(left_s, LONGEST_SLEEP_S))

"""A node's lease: how long it may go on without having heard the controller.

The controller takes a node that has been silent for as long for lost. One that merely hung, was stopped or cut off then
finds its lease over when it goes on, and ends itself before it can do anything that nobody expects any more.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["FOR_EVER", "Lease"]


class Lease:
    """Renewed by every word of the controller.

    Args:
        length_s: it is over after so many seconds of silence; None: never.
        now_s: the node's clock; it must go on while the process is stopped.
    """

    def __init__(self, length_s: float | None, now_s: Callable[[], float]) -> None:
        self.length_s = length_s
        self._now_s = now_s
        self._heard_s = now_s()
        self._was_over = False

    def renew(self) -> None:
        """The controller has spoken. Too late is too late: a lease that was over stays over."""
        if not self.is_over:
            self._heard_s = self._now_s()

    @property
    def is_over(self) -> bool:
        """Whether the controller has been silent for too long."""
        if self.length_s is not None and self._now_s() - self._heard_s > self.length_s:
            self._was_over = True
        return self._was_over


FOR_EVER = Lease(None, lambda: 0.0)
"""Where node and controller share one fate."""

"""SIGINT and SIGTERM as a wish to stop at the next boundary."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["StopWish"]


class StopWish:
    """Whether, and by which signal, this process was asked to stop.

    Args:
        tell: is told the signal's name, in the signal handler.
    """

    def __init__(self, tell: Callable[[str], None] = lambda _: None) -> None:
        self.signal_name: str | None = None
        self._tell = tell

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A first signal is noted; a second one of the same kind does what it did before. Only in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {s: signal.getsignal(s) or signal.SIG_DFL for s in (signal.SIGINT, signal.SIGTERM)}

        def note(number: int, _: Any) -> None:
            signal.signal(number, before[signal.Signals(number)])
            self.signal_name = signal.Signals(number).name
            self._tell(self.signal_name)

        for s in before:
            signal.signal(s, note)
        try:
            yield
        finally:
            for s, handler in before.items():
                signal.signal(s, handler)

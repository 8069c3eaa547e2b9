"""What people see of the demo: headlines, progress, and a pace that eyes can follow."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from scarml.cli.pace import Pace
from scarml.cli.progress import PlainLines, Progress, Silence, is_terminal
from scarml.cli.run_status import RunStatus
from scarml.control.history import Record

__all__ = ["Show"]

SECONDS_AN_ITERATION = 0.1
MOST_CHILD_PACE_S = 0.1
SECONDS_AT = {"node_lost": 0.6, "recovery_completed": 1.6}


class Show:
    """Shows runs one after the other. On a terminal it slows them down; elsewhere they wait for the disk alone.

    An iteration of this small model takes some 30 ms. Where a save takes longer, saves would be skipped, and the demo
    would show the disk instead of the strategy.

    Args:
        quiet: show nothing.
    """

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self.on_terminal = not quiet and is_terminal()
        """Whether somebody watches."""
        self._pace = Pace(SECONDS_AN_ITERATION if self.on_terminal else 0.0, follow_store=True)

    def say(self, text: str) -> None:
        """Lines on stderr."""
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)

    @contextmanager
    def run(self, headline: str, status: RunStatus) -> Iterator[Progress]:
        """While a run goes on. ``status`` is kept up to date by what is given here."""
        self.say(f"\n── {headline}")
        with self._progress(status) as progress:
            yield progress

    def pace(self, record: Record) -> None:
        """Wait for a slow disk; on a terminal also a moment so that this can be seen."""
        self._pace.take_in(record)
        if self.on_terminal and record.fields.get("kind") != "start":
            time.sleep(SECONDS_AT.get(record.name, 0.0))

    @property
    def child_pace_s(self) -> float:
        """A pace for a process that cannot be watched so closely, from how long the last save took here."""
        return min(0.02 * math.ceil(self._pace.save_took_s / 0.016), MOST_CHILD_PACE_S)

    def _progress(self, status: RunStatus) -> Progress:
        if self._quiet:
            return Silence(status)
        if self.on_terminal:
            from scarml.cli.live_view import LiveView

            return LiveView(status)
        return PlainLines(status)

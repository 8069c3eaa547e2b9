"""What people see of the demo: headlines, progress, and a pace that eyes can follow."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from scarml.cli.progress import PlainLines, Progress, Silence, is_terminal
from scarml.cli.status import RunStatus
from scarml.control.history import Record

__all__ = ["Show"]

SECONDS_AN_ITERATION = 0.08
SECONDS_AT = {"node_lost": 0.6, "recovery_completed": 1.6}


class Show:
    """Shows runs one after the other. On a terminal it slows them down; elsewhere nothing waits for eyes.

    Args:
        quiet: show nothing.
    """

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._on_terminal = not quiet and is_terminal()

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
        """Wait a moment, on a terminal, so that this can be seen."""
        if not self._on_terminal:
            return
        if record.name == "iteration_committed":
            time.sleep(SECONDS_AN_ITERATION)
        elif record.fields.get("kind") != "start":
            time.sleep(SECONDS_AT.get(record.name, 0.0))

    def _progress(self, status: RunStatus) -> Progress:
        if self._quiet:
            return Silence(status)
        if self._on_terminal:
            from scarml.cli.live_view import LiveView

            return LiveView(status)
        return PlainLines(status)

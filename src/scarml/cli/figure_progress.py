"""How far an experiment is: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from scarml.cli.progress import is_terminal, write_line

__all__ = ["TrialProgress"]

SECONDS_BETWEEN_LINES = 15.0


class TrialProgress:
    """Is told of trials that are done, and shows them on stderr.

    Args:
        quiet: show nothing but what is said.

    Example:
        >>> with TrialProgress(quiet=True) as progress:
        ...     progress.tell("single", 3, 1000)
    """

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}
        self._shown: tuple[str, int] = ("", 0)
        self._next_line_s = 0.0

    def __enter__(self) -> TrialProgress:
        if not self._quiet and is_terminal():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(elapsed_when_finished=True),
                console=Console(stderr=True, highlight=False),
            )
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def tell(self, name: str, done: int, of: int) -> None:
        """So many trials of that name are done."""
        if self._bars is not None:
            if name not in self._tasks or done < self._bars.tasks[self._tasks[name]].completed:
                self._tasks[name] = self._bars.add_task(name, total=of)
            self._bars.update(self._tasks[name], completed=done, total=of)
        elif not self._quiet and (done == of or time.monotonic() >= self._next_line_s):
            if (name, done) != self._shown:
                write_line(f"{name}: {done:,} of {of:,}")
            self._shown = (name, done)
            self._next_line_s = time.monotonic() + SECONDS_BETWEEN_LINES

    def say(self, text: str) -> None:
        """A line."""
        write_line(f"scarml: {text}")

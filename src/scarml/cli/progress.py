"""Showing progress on stderr: a live view on a terminal, plain lines elsewhere, JSON lines for programs, or nothing."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Protocol

from scarml.cli.old_news import OldNews
from scarml.cli.run_status import RunStatus
from scarml.cli.wording import counted, in_words
from scarml.control.history import Record
from scarml.storage.json_text import to_json_text

__all__ = ["JsonLines", "PlainLines", "Progress", "Silence", "is_terminal", "open_progress", "write_line"]

SECONDS_BETWEEN_LINES = 2.0


def write_line(text: str) -> None:
    """A line on stderr. That it cannot be written (a log on a full disk) is no reason to end a run."""
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise
    except OSError:
        return


class Progress(AbstractContextManager["Progress", None], Protocol):
    """Gets every record of a run, and what the command itself has to say."""

    def take_in(self, record: Record) -> None:
        """Something happened."""
        ...

    def say(self, text: str) -> None:
        """A line of the command's own."""
        ...


def is_terminal() -> bool:
    """Whether stderr can show a live view."""
    from rich.console import Console

    console = Console(stderr=True)
    return console.is_terminal and not console.is_dumb_terminal


def open_progress(status: RunStatus, verbosity: int, log_format: str) -> Progress:
    """The way that fits.

    Args:
        status: is kept up to date by what is returned.
        verbosity: −1 silent, 0 what nobody should miss, 1 or more: every record.
        log_format: ``text`` or ``json``.
    """
    if log_format == "json":
        return JsonLines(status)
    if verbosity < 0:
        return Silence(status)
    if is_terminal():
        from scarml.cli.live_view import LiveView

        return LiveView(status, verbose=verbosity > 0)
    return PlainLines(status, verbose=verbosity > 0)


class Silence(Progress):
    """Shows nothing.

    Args:
        status: is kept up to date.
    """

    def __init__(self, status: RunStatus) -> None:
        self._status = status

    def __exit__(self, *_: object) -> None:
        return None

    def take_in(self, record: Record) -> None:
        """Keeps the status."""
        self._status.take_in(record)

    def say(self, text: str) -> None:
        """Says nothing."""


class JsonLines(Silence):
    """One JSON object a record.

    Example:
        >>> JsonLines(RunStatus()).take_in(Record("save_skipped", {"iteration": 3}, 0.5))  # to stderr
    """

    def take_in(self, record: Record) -> None:
        """One line."""
        super().take_in(record)
        line = {"event": record.name, "t_s": round(record.t_s, 6), **record.fields}
        write_line(to_json_text(line))


class PlainLines(Silence):
    """One line for what nobody should miss, and now and then one for the progress.

    Args:
        status: is kept up to date.
        verbose: a line for every record.
    """

    def __init__(self, status: RunStatus, verbose: bool = False) -> None:
        super().__init__(status)
        self._verbose = verbose
        self._old = OldNews()
        self._next_line_s = 0.0

    def take_in(self, record: Record) -> None:
        """A line, or none."""
        self._status.take_in(record)
        text = in_words(record, self._status.iteration)
        if text is None and self._verbose:
            text = as_plain_text(record)
        elif record.name == "loss_evaluated" and record.t_s >= self._next_line_s:
            self._next_line_s = record.t_s + SECONDS_BETWEEN_LINES
            text = self._progress()
        if text is not None and (self._verbose or not self._old.has(record)):
            self.say(f"{record.t_s:7.2f} s  {text}")

    def say(self, text: str) -> None:
        """A line on stderr."""
        write_line(text)

    def _progress(self) -> str:
        s = self._status
        alive = f"{counted(sum(s.servers.values()), 'server')}, {counted(sum(s.workers.values()), 'worker')}"
        held_out = f"held out: {s.metrics_in_words()}, " if s.metrics else ""
        return f"x({s.iteration}): {s.loss_in_words()}, {held_out}{alive}, {counted(s.n_saves, 'save')}"


def as_plain_text(record: Record) -> str:
    """Name and fields.

    Example:
        >>> as_plain_text(Record("iteration_committed", {"iteration": 2, "commit": 2}))
        'iteration_committed iteration=2 commit=2'
    """
    return " ".join([record.name, *(f"{k}={_short(v)}" for k, v in record.fields.items())])


def _short(value: object) -> str:
    return (
        ",".join(map(str, value)) if isinstance(value, list) else f"{value:.6g}" if type(value) is float else str(value)
    )

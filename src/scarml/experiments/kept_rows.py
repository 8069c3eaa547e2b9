"""The rows of one cell, kept trial by trial, so that an interrupt loses only what was under way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from scarml.errors import DataError
from scarml.experiments.results import append_row, read_rows, write_rows

__all__ = ["KeptRows"]

_log = logging.getLogger(__name__)


class _Trial(Protocol):
    @property
    def trial(self) -> int: ...


Row = TypeVar("Row", bound=_Trial)


class KeptRows(Generic[Row]):
    """A file of rows with the same settings. What is there already is taken over, if its settings are these.

    While trials are missing, rows are appended to a file beside it, which `finish` replaces. More trials can be added
    to a finished file: each depends on its number and the settings alone. A finished file with other settings, or that
    cannot be read, is set aside: its name gets ``.before`` at the end; or ``.before-2``, if there is one already.

    Args:
        path: of the finished file; compressed if it ends in ``.gz``.
        kind: of the rows, a dataclass.
        settings: names and values of columns that all rows share.
    """

    def __init__(self, path: Path, kind: type[Row], settings: Mapping[str, object]) -> None:
        self._path = path
        self._begun = path.with_name(f"{path.name.removesuffix('.gz')}.begun")
        self._kind = kind
        self._rows: dict[int, Row] = {}
        finished = _rows_of(path, kind)
        for row in [*finished, *_rows_of(self._begun, kind)]:
            if all(getattr(row, name) == value for name, value in settings.items()):
                self._rows[row.trial] = row
        self._is_other = path.exists() and not any(row in self._rows.values() for row in finished)
        if self._begun.exists():  # its last line may be torn, and other settings are given up
            write_rows(self._begun, self._rows.values(), self._kind)

    @property
    def rows(self) -> Collection[Row]:
        """What is there."""
        return self._rows.values()

    def missing(self, n_trials: int) -> list[int]:
        """The numbers of the trials that are still to be done, of 0 … n_trials − 1."""
        return [trial for trial in range(n_trials) if trial not in self._rows]

    def add(self, row: Row) -> None:
        """Keep the row of a trial."""
        if not self._begun.exists():
            write_rows(self._begun, self._rows.values(), self._kind)
        self._rows[row.trial] = row
        append_row(self._begun, row)

    def revise(self, revised: Callable[[Row], Row]) -> None:
        """Change all rows: what follows from their trials in a way that has changed."""
        self._rows = {trial: revised(row) for trial, row in self._rows.items()}

    def finish(self, n_trials: int) -> list[Row]:
        """Write the file, with trials beyond ``n_trials`` that were there; the rows of 0 … n_trials − 1 in order."""
        if self._is_other:
            names = chain([".before"], (f".before-{n}" for n in count(2)))
            before = next(p for n in names if not (p := self._path.with_name(self._path.name + n)).exists())
            self._path.replace(before)
            _log.warning("%s has results of other settings; they are kept as %s", self._path, before.name)
            self._is_other = False
        write_rows(self._path, [self._rows[trial] for trial in sorted(self._rows)], self._kind)
        self._begun.unlink(missing_ok=True)
        return [self._rows[trial] for trial in range(n_trials)]


def _rows_of(path: Path, kind: type[Row]) -> list[Row]:
    """What can be read; nothing of a file that is missing or of another form."""
    try:
        return read_rows(path, kind, torn=True) if path.exists() else []
    except DataError as error:
        _log.warning("%s; its trials are run again", error)
        return []

"""Tidy results: a row a trial, with its settings, in CSV files that need nothing else to be understood."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, overload

from scarml.errors import DataError

__all__ = [
    "CellSettings",
    "TrialRow",
    "append_row",
    "column_names",
    "read_folder",
    "read_rows",
    "write_rows",
    "write_whole",
]


@dataclass(frozen=True, slots=True)
class CellSettings:
    """The settings of a cell, the same in all its rows."""

    panel: str
    """Model and data set."""
    model_seed: int
    n_shards: int
    criterion: float
    """Summed loss."""
    strategy: str
    """Short name of the next eight."""
    policy: str
    fraction: str
    interval_iters: int
    recovery: str
    budget_in: str
    rank_by: str
    encode: str
    """How values are stored: a name, or per table and field."""
    phase_aware: bool
    lag_commits: int
    after_phase: int
    """0: failures at iteration boundaries; 1: after the first phase of an iteration."""
    lost_fraction: str
    failure_seed: int
    rate_per_baseline: float
    n_trials: int
    """That were asked for when this one was run; more may have been added since."""


@dataclass(frozen=True, slots=True)
class TrialRow(CellSettings):
    """One trial. Up to ``trial`` the settings, the same in all rows of a cell; then what happened."""

    trial: int
    failed_at_iter: float
    n_lost_blocks: int
    perturbation: float
    """The norm of δ."""
    perturbation_repaired: float
    """The same after the repair, if there is one."""
    mean_age_iters: float
    """Over the restored blocks."""
    rework_iters: float
    """Iterations that were done, and are done again."""
    repair_iters: float
    """Work of the repair, in iterations; both are part of the cost."""
    control: float
    """Iterations to the criterion with δ = 0, interpolated."""
    control_whole: float
    cost: float
    """Iteration cost, interpolated: the metric."""
    cost_whole: float
    """Iteration cost in whole iterations."""


_Row = TypeVar("_Row")
_TYPES: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": {"True": True, "False": False}.__getitem__,
}


def column_names(kind: type[Any]) -> list[str]:
    """Of a table whose rows are of this kind."""
    return [f.name for f in fields(kind)]


def write_rows(path: Path, rows: Iterable[Any], kind: type[Any] = TrialRow) -> None:
    """Write a CSV file, whole or not at all; compressed where its name ends in ``.gz``.

    The same rows make the same bytes.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, column_names(kind), lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    data = text.getvalue().encode()
    write_whole(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: what is there stays if there is no room, or the process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def append_row(path: Path, row: Any) -> None:
    """Add a row to a file that `write_rows` has made and that is not compressed."""
    with path.open("a", newline="") as file:
        csv.DictWriter(file, column_names(type(row)), lineterminator="\n").writerow(asdict(row))


@overload
def read_rows(path: Path) -> list[TrialRow]: ...
@overload
def read_rows(path: Path, kind: type[_Row], *, torn: bool = False) -> list[_Row]: ...
def read_rows(path: Path, kind: type[Any] = TrialRow, *, torn: bool = False) -> list[Any]:
    """The rows of a file.

    Args:
        path: a CSV file; compressed if its name ends in ``.gz``.
        kind: of the rows, a dataclass.
        torn: leave out what comes after the last line break: a row that was not written to its end.

    Raises:
        DataError: naming file and line, if it is not such a file.
    """
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if torn:
        text = text[: text.rfind("\n") + 1]
    reader, names = csv.DictReader(io.StringIO(text)), column_names(kind)
    if reader.fieldnames != names:
        raise DataError(f"{path}, line 1 has columns {reader.fieldnames}; expected {names}")
    try:
        return [kind(**{f.name: _TYPES[str(f.type)](line[f.name]) for f in fields(kind)}) for line in reader]
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}, line {reader.line_num} is no trial: {error}") from error


@overload
def read_folder(folder: Path) -> Sequence[TrialRow]: ...
@overload
def read_folder(folder: Path, kind: type[_Row]) -> Sequence[_Row]: ...
def read_folder(folder: Path, kind: type[Any] = TrialRow) -> Sequence[Any]:
    """The rows of all finished files below a folder, compressed or not."""
    paths = sorted([*folder.rglob("*.csv"), *folder.rglob("*.csv.gz")])
    return [row for path in paths for row in read_rows(path, kind)]

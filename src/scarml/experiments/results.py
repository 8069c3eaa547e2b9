"""Tidy results: a row a trial, with its settings, in CSV files that need nothing else to be understood."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from scarml.errors import DataError

__all__ = ["SETTINGS", "TrialRow", "read_folder", "read_rows", "write_rows"]


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One trial. Up to ``trial`` the settings, the same in all rows of a cell; then what happened."""

    panel: str
    """Model and data set."""
    model_seed: int
    n_shards: int
    criterion: float
    """Summed loss."""
    strategy: str
    """Short name of the next six."""
    policy: str
    fraction: str
    interval_iters: int
    recovery: str
    budget_in: str
    rank_by: str
    lag_commits: int
    after_phase: int
    """0: failures at iteration boundaries; 1: after the first phase of an iteration."""
    lost_fraction: str
    failure_seed: int
    rate_per_baseline: float
    n_trials: int
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


_NAMES = [f.name for f in fields(TrialRow)]
SETTINGS = tuple(_NAMES[: _NAMES.index("trial")])
"""Names of the columns that are settings."""
_TYPES = {"str": str, "int": int, "float": float}


def write_rows(path: Path, rows: Iterable[TrialRow]) -> None:
    """Write a CSV file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with part.open("w", newline="") as file:
        writer = csv.DictWriter(file, _NAMES, lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    part.replace(path)


def read_rows(path: Path) -> list[TrialRow]:
    """The rows of a file.

    Raises:
        DataError: naming file and line, if it is not such a file.
    """
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != _NAMES:
            raise DataError(f"{path}, line 1 has columns {reader.fieldnames}; expected {_NAMES}")
        try:
            return [
                TrialRow(**{f.name: _TYPES[str(f.type)](line[f.name]) for f in fields(TrialRow)}) for line in reader
            ]
        except (TypeError, ValueError) as error:
            raise DataError(f"{path}, line {reader.line_num} is no trial: {error}") from error


def read_folder(folder: Path) -> Sequence[TrialRow]:
    """The rows of all files below a folder."""
    return [row for path in sorted(folder.rglob("*.csv")) for row in read_rows(path)]

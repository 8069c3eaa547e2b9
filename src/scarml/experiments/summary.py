"""Summaries of tidy results: mean costs, and reductions with paired bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from scarml.experiments.results import TrialRow
from scarml.theory.bootstrap import Interval, mean_interval, paired_reduction

__all__ = [
    "LEAST_TRIALS",
    "MISSING",
    "REFERENCE",
    "CellSummary",
    "paired_with",
    "percent",
    "reduction_in_words",
    "reduction_text",
    "select",
    "summarise",
    "trials_text",
]

MISSING = "–"
"""In tables, where there is nothing to tell."""
LEAST_TRIALS = 20
"""An interval from fewer says nothing."""


class _Trial(Protocol):
    @property
    def trial(self) -> int: ...
    @property
    def strategy(self) -> str: ...


class _Cell(Protocol):
    @property
    def n_trials(self) -> int: ...


_Row = TypeVar("_Row", bound=_Trial)


@dataclass(frozen=True, slots=True)
class CellSummary:
    """What one strategy came to on one panel.

    Args:
        panel, strategy: their names.
        lost_fraction: what was lost in every trial.
        lag_commits: until a save is durable.
        n_trials: how many failures.
        cost: mean iteration cost, interpolated.
        cost_whole: the mean in whole iterations.
        reduction: of the cost, against full checkpoint and full recovery after the same failures at the same lag; None
            if those are not there or cost nothing on average, or this is them.
        reduction_whole: the same from whole iterations.
        perturbation: mean ‖δ‖.
    """

    panel: str
    strategy: str
    lost_fraction: str
    lag_commits: int
    n_trials: int
    cost: Interval
    cost_whole: float
    reduction: Interval | None
    reduction_whole: float | None
    perturbation: float


REFERENCE = "full-full"
"""The strategy that reductions are against."""


def summarise(rows: Sequence[TrialRow]) -> list[CellSummary]:
    """A summary of each cell, in the order of the rows."""
    cells: dict[tuple[str, str, int, str], list[TrialRow]] = {}
    for row in rows:
        cells.setdefault((row.panel, row.lost_fraction, row.lag_commits, row.strategy), []).append(row)
    return [_summary(mine, cells.get((*key[:3], REFERENCE), [])) for key, mine in cells.items()]


def _summary(rows: Sequence[TrialRow], reference: Sequence[TrialRow]) -> CellSummary:
    first, costs, whole = rows[0], [r.cost for r in rows], [r.cost_whole for r in rows]
    reduction, reduction_whole = None, None
    if paired := paired_with(rows, reference):
        their_costs, their_whole = [r.cost for r in paired], float(np.mean([r.cost_whole for r in paired]))
        if np.mean(their_costs) > 0 and their_whole > 0:
            reduction = paired_reduction(their_costs, costs)
            reduction_whole = 1 - float(np.mean(whole)) / their_whole
    return CellSummary(
        panel=first.panel,
        strategy=first.strategy,
        lost_fraction=first.lost_fraction,
        lag_commits=first.lag_commits,
        n_trials=len(rows),
        cost=mean_interval(costs),
        cost_whole=float(np.mean(whole)),
        reduction=reduction,
        reduction_whole=reduction_whole,
        perturbation=float(np.mean([r.perturbation for r in rows])),
    )


def paired_with(rows: Sequence[_Row], reference: Sequence[_Row]) -> list[_Row]:
    """The reference's row of each trial, of which it may have more; none if it lacks one, or if these are its own."""
    theirs = {r.trial: r for r in reference}
    if rows[0].strategy == REFERENCE or not all(r.trial in theirs for r in rows):
        return []
    return [theirs[r.trial] for r in rows]


def reduction_in_words(reduction: Interval | None) -> str:
    """The end of a line about a cell; nothing where there is no reduction.

    Example:
        >>> reduction_in_words(Interval(0.5, 0.25, 0.75))
        ', -50.0 % [-75.0, -25.0] against full recovery'
    """
    if reduction is None:
        return ""
    value, low, high = (-100 * x for x in (reduction.value, reduction.high, reduction.low))
    return f", {value:+.1f} % [{low:+.1f}, {high:+.1f}] against full recovery"


def percent(reduction: float) -> str:
    """A reduction as the change that it is.

    Example:
        >>> percent(0.25)
        '−25'
    """
    return f"{round(-100 * reduction):+d}".replace("-", "−")


def reduction_text(cell: CellSummary | None) -> str:
    """For tables: in per cent, with its interval; nothing from a few trials."""
    if cell is None or cell.reduction is None or cell.n_trials < LEAST_TRIALS:
        return MISSING
    return f"{percent(cell.reduction.value)} % [{percent(cell.reduction.high)}, {percent(cell.reduction.low)}]"


def trials_text(cells: Sequence[_Cell | None]) -> str:
    """How many trials the cells of a line have, or the fewest and the most; `MISSING` if there are none."""
    counts = {c.n_trials for c in cells if c is not None}
    return "–".join(str(n) for n in sorted({min(counts), max(counts)})) if counts else MISSING


def select(rows: Sequence[TrialRow], **settings: object) -> list[TrialRow]:
    """The rows with these settings, in the order of trials."""
    found = [row for row in rows if all(getattr(row, name) == value for name, value in settings.items())]
    return sorted(found, key=lambda row: row.trial)

"""Tidy rows of runs with repeated failures, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scarml.experiments.results import CellSettings
from scarml.experiments.summary import REFERENCE, paired_with
from scarml.theory.bootstrap import Interval, mean_interval, paired_reduction

__all__ = ["RepeatedRow", "RepeatedSummary", "summarise"]


@dataclass(frozen=True, slots=True)
class RepeatedRow(CellSettings):
    """One run. Up to ``trial`` the settings, the same in all rows of a cell; then what happened."""

    trial: int
    converged: bool
    """If not, the run was given up after ten lengths of the baseline, and its costs are what it had cost by then."""
    n_failures: int
    n_lost_blocks: int
    """By all failures."""
    perturbation: float
    """Sum of the norms of δ, after repairs."""
    rework_iters: float
    """Iterations that were done, and are done again."""
    repair_iters: float
    """Work of the repairs, in iterations; both are part of the cost."""
    control: float
    """Iterations to the criterion without failure, interpolated."""
    control_whole: float
    cost: float
    """Performed iterations minus the control's, interpolated: the metric."""
    cost_whole: float
    """In whole iterations."""


@dataclass(frozen=True, slots=True)
class RepeatedSummary:
    """What one strategy came to on one panel, at one rate of failures.

    Args:
        panel, strategy: their names.
        lag_commits: until a save is durable.
        rate_per_baseline: expected failures in as many iterations as the baseline takes.
        n_trials: how many runs.
        n_given_up: of those; in all means they count with what they had cost when they were given up, so that with any
            of them a mean is a lower bound.
        failures: mean number a run.
        cost: mean iteration cost, interpolated.
        cost_whole: the mean in whole iterations.
        reduction: of the cost, against full checkpoint and full recovery after the same failures at the same lag; None
            if those are not there or cost nothing, or this is them, or a run of either was given up.
    """

    panel: str
    strategy: str
    lag_commits: int
    rate_per_baseline: float
    n_trials: int
    n_given_up: int
    failures: float
    cost: Interval
    cost_whole: float
    reduction: Interval | None


def summarise(rows: Sequence[RepeatedRow]) -> list[RepeatedSummary]:
    """A summary of each cell, in the order of the rows."""
    cells: dict[tuple[str, float, int, str], list[RepeatedRow]] = {}
    for row in rows:
        cells.setdefault((row.panel, row.rate_per_baseline, row.lag_commits, row.strategy), []).append(row)
    return [_summary(mine, cells.get((*key[:3], REFERENCE), [])) for key, mine in cells.items()]


def _summary(rows: Sequence[RepeatedRow], reference: Sequence[RepeatedRow]) -> RepeatedSummary:
    first = rows[0]
    return RepeatedSummary(
        panel=first.panel,
        strategy=first.strategy,
        lag_commits=first.lag_commits,
        rate_per_baseline=first.rate_per_baseline,
        n_trials=len(rows),
        n_given_up=_given_up(rows),
        failures=float(np.mean([r.n_failures for r in rows])),
        cost=mean_interval([r.cost for r in rows]),
        cost_whole=float(np.mean([r.cost_whole for r in rows])),
        reduction=_reduction(rows, reference),
    )


def _reduction(rows: Sequence[RepeatedRow], reference: Sequence[RepeatedRow]) -> Interval | None:
    paired = paired_with(rows, reference)
    if _given_up(rows) or _given_up(paired) or not sum(r.cost for r in paired) > 0:
        return None
    return paired_reduction([r.cost for r in paired], [r.cost for r in rows])


def _given_up(rows: Sequence[RepeatedRow]) -> int:
    return sum(not r.converged for r in rows)

"""Figures 7, 8 and their like in small: directions and rough sizes, in parallel, on the images that come with SCAR."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from scarml.experiments.beyond import FIGURE as BEYOND
from scarml.experiments.failure import FailurePlan
from scarml.experiments.figures import Wanted
from scarml.experiments.panels import QUICK
from scarml.experiments.partial_recovery import FIGURE as PARTIAL_RECOVERY
from scarml.experiments.priority_checkpoints import FIGURE as PRIORITY_CHECKPOINTS
from scarml.experiments.processes import Processes
from scarml.experiments.repeated_failures import FIGURE as REPEATED_FAILURES
from scarml.experiments.repeated_rows import summarise as summarise_repeated
from scarml.experiments.results import TrialRow
from scarml.experiments.strategy import FLOOR, full, partial
from scarml.experiments.summary import select, summarise
from scarml.experiments.sweep import Cell, Sweep

pytestmark = [pytest.mark.ci, pytest.mark.timeout(300)]  # a busy machine takes several times its seconds

N_TRIALS = 6
EIGHTH, HALF = Fraction(1, 8), Fraction(1, 2)


def costs(rows: list[TrialRow]) -> dict[tuple[str, str, int], float]:
    return {(c.strategy, c.lost_fraction, c.lag_commits): c.cost.value for c in summarise(rows)}


def test_partial_recovery_costs_about_as_much_less_as_less_is_lost(tmp_path: Path) -> None:
    cost = costs(PARTIAL_RECOVERY.run(tmp_path, Wanted(quick=True, n_trials=N_TRIALS), Processes(2)))
    whole = cost["full-full", "1/2", 0]
    assert 1.5 < whole < 7
    assert [cost["full-full", lost, 0] for lost in ("1/4", "3/4", "1")] == [whole] * 3
    quarter, half, most, everything = (cost["full-partial", p, 0] / whole for p in ("1/4", "1/2", "3/4", "1"))
    assert 0.1 < quarter < half < most < everything < 1.2
    assert 0.3 < half < 0.75


def test_priority_is_best_and_random_worst_at_equal_bytes(tmp_path: Path) -> None:
    strategies = [full(), *(partial(policy, EIGHTH) for policy in ("priority", "round", "random"))]
    cells = [(HALF, Cell(s, 0)) for s in strategies]
    cells += [(HALF, Cell(s, 1)) for s in (full(), partial("priority", EIGHTH), FLOOR)]
    figure = replace(PRIORITY_CHECKPOINTS, cells=lambda _: cells)
    rows = figure.run(tmp_path, Wanted(quick=True, n_trials=N_TRIALS))
    cost = costs(rows)
    whole, priority, in_turn, random = (cost[s.name, "1/2", 0] for s in strategies)
    assert priority < 0.5 * whole
    assert priority < 0.7 * in_turn
    assert in_turn < random
    whole_1, priority_1, floor_1 = (cost[name, "1/2", 1] for name in ("full-full", "priority-1-8-partial", "floor"))
    assert whole < whole_1
    assert floor_1 < priority_1 < 0.6 * whole_1

    cell = Cell(partial("priority", EIGHTH), 0)
    here = Sweep(QUICK.panel, FailurePlan(n_trials=N_TRIALS), every_loss=True).run_cell(cell)
    assert here == select(rows, strategy=cell.strategy.name, lag_commits=0)  # leaving losses out changes nothing


def test_narrow_values_cost_less_at_the_same_bytes(tmp_path: Path) -> None:
    names = ("full-full", "general", "priority-1-8-partial")
    figure = replace(BEYOND, cells=lambda p: [c for c in BEYOND.cells(p) if c[1].strategy.name in names])
    cost = costs(figure.run(tmp_path, Wanted(quick=True, n_trials=4)))
    for lag in (0, 1):
        whole, general, eighth = (cost[name, "1/2", lag] for name in names)
        assert general < 0.75 * eighth
        assert general < 0.35 * whole


def test_the_more_failures_the_more_is_partial_recovery_worth(tmp_path: Path) -> None:
    rows = REPEATED_FAILURES.run(tmp_path, Wanted(quick=True, n_trials=2), Processes(2))
    cells = {(c.strategy, c.lag_commits, c.rate_per_baseline): c for c in summarise_repeated(rows)}
    cost = {key: c.cost.value for key, c in cells.items()}
    assert not any(c.n_given_up for c in cells.values())
    for strategy, lag in {key[:2] for key in cost}:
        assert 0 <= cost[strategy, lag, 2.0] < cost[strategy, lag, 8.0]
    for rate in (2.0, 8.0):
        whole, partial_, priority, general = (
            cost[name, 0, rate] for name in ("full-full", "full-partial", "priority-1-8-partial", "general")
        )
        assert general < priority < 0.5 * whole
        assert partial_ < 0.8 * whole
        assert cost["floor", 1, rate] < 0.3 * cost["full-full", 1, rate]
    assert 20 < cost["full-full", 0, 8.0] < 100

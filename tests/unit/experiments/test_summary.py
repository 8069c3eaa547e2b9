"""Summaries of cells: against full recovery after the same failures, at the same lag."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.experiments.samples import trainer_of

from scarml.experiments.failure import FailurePlan
from scarml.experiments.problem import Panel
from scarml.experiments.results import TrialRow
from scarml.experiments.strategy import FLOOR, full
from scarml.experiments.summary import summarise
from scarml.experiments.sweep import Cell, Sweep


def rows_of(*cells: Cell, n_trials: int = 4) -> list[TrialRow]:
    sweep = Sweep(Panel("tiny-mlr"), FailurePlan(n_trials=n_trials), trainer=trainer_of("mlr", 20))
    return [row for cell in cells for row in sweep.run_cell(cell)]


def test_each_cell_has_a_summary_against_the_same_failures() -> None:
    rows = rows_of(Cell(full(), 0), Cell(full(), 1), Cell(FLOOR, 0))
    of_full, of_full_late, of_floor = summarise(rows)
    assert (of_full.strategy, of_full.lag_commits, of_full.reduction) == ("full-full", 0, None)
    assert of_full_late.cost.value >= of_full.cost.value > 0
    assert of_floor.cost.value == of_floor.perturbation == 0
    assert of_floor.reduction is not None
    assert of_floor.reduction.value == of_floor.reduction.low == of_floor.reduction_whole == 1


def test_a_planted_reduction_is_what_comes_out() -> None:
    rows = rows_of(Cell(full(), 0))
    planted = [replace(r, strategy="planted", cost=0.25 * r.cost, cost_whole=0.5 * r.cost_whole) for r in rows]
    reduction = summarise([*rows, *planted])[1].reduction
    assert reduction is not None
    assert (reduction.value, reduction.low, reduction.high) == pytest.approx((0.75, 0.75, 0.75))
    assert summarise([*rows, *planted])[1].reduction_whole == pytest.approx(0.5)


def test_fewer_trials_are_held_against_the_same_ones() -> None:
    rows = rows_of(Cell(full(), 0), n_trials=6)
    few = [replace(r, strategy="few") for r in rows[:4]]
    reduction = summarise([*rows, *few])[1].reduction
    assert reduction is not None
    assert reduction.value == 0


def test_without_full_recovery_there_is_no_reduction() -> None:
    assert summarise(rows_of(Cell(FLOOR, 1)))[0].reduction is None


def test_against_a_recovery_that_costs_nothing_there_is_no_reduction() -> None:
    rows = [replace(r, cost=-r.cost) for r in rows_of(Cell(full(), 0))]  # as few trials of a noisy algorithm may say
    other = [replace(r, strategy="other") for r in rows]
    assert summarise([*rows, *other])[1].reduction is None

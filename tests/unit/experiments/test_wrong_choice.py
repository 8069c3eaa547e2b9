"""What the wrong recovery costs is what was planted in the rows."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest
from tests.unit.experiments.samples import trainer_of

from scarml.experiments.failure import FailurePlan
from scarml.experiments.problem import Panel
from scarml.experiments.results import TrialRow
from scarml.experiments.strategy import full
from scarml.experiments.sweep import Cell, Sweep
from scarml.experiments.wrong_choice import table, wrong_choices


@lru_cache
def any_row() -> TrialRow:
    sweep = Sweep(Panel("tiny-mlr"), FailurePlan(n_trials=1), trainer=trainer_of("mlr", 20))
    return sweep.run_cell(Cell(full(), 0))[0]


def planted(panel: str, lost: str, full_costs: list[float], partial_costs: list[float]) -> list[TrialRow]:
    return [
        replace(any_row(), panel=panel, lost_fraction=lost, strategy=strategy, trial=trial, cost=cost)
        for strategy, costs in (("full-full", full_costs), ("full-partial", partial_costs))
        for trial, cost in enumerate(costs)
    ]


def test_costs_shares_and_the_dearest() -> None:
    """Of twenty failures full is right after two, and five leave both equal but for rounding."""
    full_costs = [4.0] * 20
    partial_costs = [100.0, 10.0] + [4.0 + 1e-9] * 5 + [3.0] * 11 + [0.0, -2.0]
    (found,) = wrong_choices(planted("mf-jester", "1/2", full_costs, partial_costs))
    assert (found.panel, found.lost_fraction, found.n_trials) == ("mf-jester", "1/2", 20)
    assert (found.full, found.full_is_better) == (4.0, 0.1)
    assert found.difference.value == pytest.approx(found.full - found.partial)
    assert found.difference.low < found.difference.value < found.difference.high
    assert found.dearest_partial == pytest.approx((96 + 6) / 2)
    assert found.dearest_full == pytest.approx((4 + 6) / 2)


def test_pairs_stay_together_in_the_interval() -> None:
    spread = [float(k) for k in range(20)]
    (found,) = wrong_choices(planted("mlr-mnist", "1/4", spread, [c - 1 for c in spread]))
    assert [found.difference.low, found.difference.high] == pytest.approx([1.0, 1.0])
    assert found.dearest_partial == 0


def test_lines_are_in_the_order_of_the_paper_and_of_what_is_lost() -> None:
    rows = [
        *planted("mf-jester", "1", [1.0] * 20, [2.0] * 20),
        *planted("mlr-mnist", "3/4", [3.0] * 20, [1.0] * 20),
        *planted("mlr-mnist", "1/4", [3.0] * 20, [1.0] * 20),
        *planted("mlr-covtype", "1/4", [3.0] * 3, [1.0] * 3),
    ]
    lines = table(rows, least_trials=20).splitlines()[2:]
    assert [line.split(" | ")[:3] for line in lines] == [
        ["| MLR on MNIST", "1/4", "20"],
        ["| MLR on MNIST", "3/4", "20"],
        ["| MF on Jester", "1", "20"],
    ]
    assert "−1.00 [−1.00, −1.00] | 100 % | 0.0 | 1.0 |" in lines[2]


def test_failures_that_only_one_recovery_has_are_left_out() -> None:
    rows = planted("mlr-mnist", "1/4", [3.0] * 5, [1.0] * 3)
    assert [c.n_trials for c in wrong_choices(rows)] == [3]

"""The first table in small: directions and rough sizes, in parallel, on the images that come with SCAR."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from scarml.experiments.failure import FailurePlan
from scarml.experiments.problem import Panel
from scarml.experiments.results import TrialRow
from scarml.experiments.summary import select
from scarml.experiments.sweep import FLOOR, Cell, Sweep, full, partial

pytestmark = pytest.mark.ci

PANEL, PLAN = Panel("mlr", "mnist-10k"), FailurePlan(n_trials=12)
STRATEGIES = [full(), partial("full", Fraction(1)), partial("priority", Fraction(1, 8)), FLOOR]
CELLS = [Cell(s, lag) for s in STRATEGIES for lag in (0, 1)]


def mean_cost(rows: list[TrialRow], strategy: str, lag: int) -> float:
    return float(np.mean([r.cost for r in select(rows, strategy=strategy, lag_commits=lag)]))


def test_directions_and_rough_sizes(tmp_path: Path) -> None:
    pytest.importorskip("joblib", reason="sweeps run in parallel by joblib")
    rows = Sweep(PANEL, PLAN, n_jobs=2).run(CELLS, tmp_path)
    for lag in (0, 1):
        whole, part, priority, floor = (mean_cost(rows, s.name, lag) for s in STRATEGIES)
        assert 2 < whole < 6
        assert 0.3 < part / whole < 0.7  # a half is lost
        assert priority < 0.7 * part
        assert floor < priority
    assert mean_cost(rows, "floor", 0) == 0
    again = Sweep(PANEL, PLAN, every_loss=True).run_cell(CELLS[4])  # in this process, with every loss evaluated
    assert again == select(rows, strategy=CELLS[4].strategy.name, lag_commits=0)

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

pytestmark = [pytest.mark.ci, pytest.mark.timeout(300)]  # a busy machine takes several times its ten seconds

PANEL, PLAN = Panel("mlr", "mnist-10k"), FailurePlan(n_trials=8)
WHOLE, PART, PRIORITY = full(), partial("full", Fraction(1)), partial("priority", Fraction(1, 8))


def mean_cost(rows: list[TrialRow]) -> float:
    return float(np.mean([r.cost for r in rows]))


def test_directions_and_rough_sizes(tmp_path: Path) -> None:
    pytest.importorskip("joblib", reason="sweeps run in parallel by joblib")
    cells = [Cell(WHOLE, 0), Cell(WHOLE, 1), Cell(PART, 0), Cell(PRIORITY, 0), Cell(PRIORITY, 1), Cell(FLOOR, 1)]
    rows = Sweep(PANEL, PLAN, n_jobs=2).run(cells, tmp_path)
    by_cell = {c: select(rows, strategy=c.strategy.name, lag_commits=c.lag) for c in cells}
    whole_0, whole_1, part_0, priority_0, priority_1, floor_1 = (mean_cost(by_cell[c]) for c in cells)
    assert 1.5 < whole_0 < whole_1 < 7
    assert 0.3 < part_0 / whole_0 < 0.75  # a half is lost
    assert priority_0 < 0.8 * part_0
    assert floor_1 < priority_1 < 0.6 * whole_1
    here = Sweep(PANEL, PLAN, every_loss=True).run_cell(cells[3])  # in this process, with every loss evaluated
    assert here == by_cell[cells[3]]

"""Figures 5 and 6 in small, on data that comes with SCAR: directions, rough sizes, and that the bound holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scarml.experiments.bound_rows import summarise
from scarml.experiments.figures import Wanted
from scarml.experiments.mlr_perturbations import FIGURE

pytestmark = [pytest.mark.ci, pytest.mark.timeout(300)]  # a busy machine takes several times its seconds


def test_directions_sizes_and_the_bound(tmp_path: Path) -> None:
    rows = FIGURE.run(tmp_path, Wanted(quick=True, n_trials=5))
    random, adversarial = ([r for r in rows if r.perturbation == kind] for kind in ("random", "adversarial"))
    for r in rows:
        assert r.cost <= r.bound
    for a, b in zip(random, adversarial, strict=True):
        assert a.norm == pytest.approx(b.norm, rel=1e-3)
        assert a.cost < 0.3 * b.cost
    assert 0.5 < summarise(adversarial)["median_cost_over_bound"] < 1  # near the bound
    assert summarise(random)["median_cost_over_bound"] < 0.1  # far below it
    assert np.corrcoef([r.norm for r in adversarial], [r.cost for r in adversarial])[0, 1] > 0.95

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scarml.experiments.figures import figure as figure_of
from scarml.plots import mlr_perturbations, qp_bound, resets
from scarml.plots.bound import BoundPanel, draw, figure
from scarml.theory.iteration_cost import iteration_cost_bound

PANELS = (
    BoundPanel("single", "random", "size", worst="worst", controls="none"),
    BoundPanel("from the start", "random", "sum", size="from-start", log=True),
)


def rows(setting: str, costs: list[float], perturbation: str = "random") -> list[dict[str, Any]]:
    shared = {
        "setting": setting,
        "perturbation": perturbation,
        "n_perturbations": 1,
        "c": 0.9,
        "c_high": 0.92,
        "distance": 2.0,
        "distance_low": 1.5,
        "at_iter": 10,
        "bound_from_iter": 10,
        "control": 20.0,
    }
    return [{**shared, "norm": 0.5 * k, "discounted_sum": 0.5 * k, "cost": c} for k, c in enumerate(costs, start=1)]


TABLE = rows("random", [1.0, 2.0, 3.0]) + rows("worst", [2.1, 3.8], "adversarial") + rows("none", [-1, 1], "none")


def test_it_shows_trials_bound_and_both_scales() -> None:
    single, summed = figure(PANELS, TABLE).axes
    assert single.get_xlabel() == "size"
    assert all(a.get_ylabel() == "iteration cost, iterations" for a in (single, summed))
    assert [a.get_title() for a in (single, summed)] == ["(a) single", "(b) from the start"]
    lines = {line.get_label(): line for line in single.get_lines()}
    assert list(np.asarray(lines["3 trials, random"].get_ydata())) == [1.0, 2.0, 3.0]
    assert "2 trials, away from the optimum" in lines
    bound = lines["bound, c = 0.9000"]
    x, y = (np.asarray(v, float) for v in bound.get_data())
    np.testing.assert_allclose(y, iteration_cost_bound(x, 2.0, 0.9))
    assert "bound at the end of the interval, c = 0.9200" in lines
    assert summed.get_xscale() == "log"
    sizes = np.asarray({line.get_label(): line for line in summed.get_lines()}["3 trials, random"].get_xdata(), float)
    np.testing.assert_allclose(sizes, np.array([0.5, 1.0, 1.5]) * 0.9**-10)


def test_panels_without_rows_are_left_out(tmp_path: Path) -> None:
    assert draw(PANELS, rows("other", [1.0]), tmp_path, "x") == []
    assert len(figure(PANELS[:1], TABLE).axes) == 1


@pytest.mark.ci
def test_the_picture_is_the_same_file_every_time(tmp_path: Path) -> None:
    first, second = (draw(PANELS, TABLE, tmp_path / name, "x") for name in ("a", "b"))
    assert [p.name for p in first] == ["x.png", "x.svg"]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


@pytest.mark.parametrize(
    ("name", "panels"),
    [
        ("qp-bound", qp_bound.PANELS),
        ("mlr-perturbations", mlr_perturbations.PANELS),
        ("resets", resets.PANELS),
    ],
)
def test_every_panel_of_a_picture_has_an_experiment(name: str, panels: tuple[BoundPanel, ...]) -> None:
    settings = figure_of(name).panels
    for panel in panels:
        assert panel.setting in settings
        assert not panel.worst or panel.worst in settings
        assert not panel.controls or panel.controls.removesuffix("-controls") in settings

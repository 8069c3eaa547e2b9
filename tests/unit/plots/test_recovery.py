"""Figures 7 and 8 show means with intervals, a panel for each problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scarml.experiments.panels import PANELS
from scarml.plots import beyond, partial_recovery, priority_checkpoints
from scarml.plots.recovery import figure
from scarml.theory.bootstrap import mean_interval


def rows(panel: str, strategy: str, costs: list[float], **more: Any) -> list[dict[str, Any]]:
    policy, _, fraction = strategy.removesuffix("-partial").partition("-")
    shared = {
        "panel": panel,
        "strategy": strategy,
        "policy": policy,
        "fraction": fraction.replace("-", "/"),
        "budget_in": "blocks",
        "lost_fraction": "1/2",
        "lag_commits": 0,
    }
    return [{**shared, **more, "cost": cost} for cost in costs]


SEVEN = [
    row
    for part, lost in ((1.0, "1/4"), (2.0, "1/2"))
    for row in (
        rows("mlr-mnist", "full-full", [3.0, 5.0], lost_fraction=lost)
        + rows("mlr-mnist", "full-partial", [part, part], lost_fraction=lost)
    )
]
EIGHT = (
    rows("mf-jester", "full-full", [4.0, 4.0])
    + rows("mf-jester", "full-partial", [2.0, 2.0])
    + rows("mf-jester", "priority-1-8-partial", [0.5, 1.5])
    + rows("mf-jester", "random-1-8-partial", [5.0, 5.0])
    + rows("mf-jester", "floor", [0.25, 0.25], lag_commits=1)
)


def drawn(axes: Axes) -> dict[str, tuple[list[float], list[float]]]:
    """By label the points of each line."""
    found = {}
    for container, label in zip(*axes.get_legend_handles_labels(), strict=True):
        of_line = container[0] if isinstance(container, tuple) else container
        found[label] = tuple(np.asarray(v, float).tolist() for v in of_line.get_data())
    return found


def panels_of(fig: Figure) -> dict[str, Axes]:
    return {axes.get_title(): axes for axes in fig.axes if axes.axison}


def test_figure_7_is_over_the_lost_fraction() -> None:
    (axes,) = panels_of(figure(partial_recovery.panel, "lost fraction", SEVEN)).values()
    lines = drawn(axes)
    assert lines["full recovery"] == ([0.25, 0.5], [4.0, 4.0])
    assert lines["partial recovery"] == ([0.25, 0.5], [1.0, 2.0])
    assert [t.get_text() for t in axes.get_xticklabels()] == ["1/4", "1/2"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("lost fraction", "iteration cost, iterations")


def test_figure_8_begins_with_the_full_checkpoint() -> None:
    panels = panels_of(figure(priority_checkpoints.panel, "fraction", EIGHT))
    lines = drawn(panels["MF on Jester (2 trials)"])
    assert lines["priority"] == ([0, 3], [2.0, 1.0])
    assert lines["random"] == ([0, 3], [2.0, 5.0])
    assert "round" not in lines
    assert lines["full checkpoint, full recovery"][1] == [4.0, 4.0]
    assert lines["floor at lag 1"][1] == [0.25, 0.25]


def test_beyond_has_a_place_for_each_addition_that_was_run() -> None:
    table = EIGHT + rows("mf-jester", "general", [0.0, 0.5]) + rows("mf-jester", "general", [1.0, 1.0], lag_commits=1)
    (axes,) = panels_of(figure(beyond.panel, "", table)).values()
    lines = drawn(axes)
    assert lines["lag 0"] == ([0.0, 1.0], [1.0, 0.25])
    assert lines["lag 1"] == ([1.0], [1.0])
    assert lines["floor at lag 1"][1] == [0.25, 0.25]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["priority\n1/8", "general"]


def test_panels_come_in_the_order_of_the_paper_and_say_how_many_trials() -> None:
    table = EIGHT + rows("mlr-mnist", "full-full", [1.0]) + rows("mine", "full-full", [1.0, 2.0])
    table += rows("mine", "full-partial", [1.0])
    titles = list(panels_of(figure(priority_checkpoints.panel, "fraction", table)))
    assert titles == ["MLR on MNIST (1 trials)", "MF on Jester (2 trials)", "mine (1–2 trials)"]


def test_titles_are_those_of_the_experiments() -> None:
    table = [row for name in PANELS for row in rows(name, "full-full", [1.0])]
    titles = panels_of(figure(priority_checkpoints.panel, "fraction", table))
    assert set(titles) == {f"{p.title} (1 trials)" for p in PANELS.values()}


def test_bars_are_intervals_of_the_mean() -> None:
    (axes,) = panels_of(figure(priority_checkpoints.panel, "fraction", EIGHT)).values()
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    segments = handles["priority"][2][0].get_segments()
    expected = mean_interval([0.5, 1.5])
    np.testing.assert_allclose(segments[1][:, 1], [expected.low, expected.high])


@pytest.mark.ci
def test_the_picture_is_the_same_file_every_time(tmp_path: Path) -> None:
    first, second = (priority_checkpoints.draw(EIGHT, tmp_path / name, "x") for name in ("a", "b"))
    assert [p.name for p in first] == ["x.png", "x.svg"]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]

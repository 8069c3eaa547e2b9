"""The picture of repeated failures: means over the rate, and marks where runs were given up."""

from __future__ import annotations

from typing import Any

from tests.unit.plots.test_recovery import drawn, panels_of, rows

from scarml.plots.recovery import figure
from scarml.plots.repeated_failures import panel


def cell(strategy: str, rate: float, costs: list[float], **more: Any) -> list[dict[str, Any]]:
    return rows("mlr-mnist", strategy, costs, **{"rate_per_baseline": rate, "converged": 1, **more})


TABLE = [
    *cell("full-full", 1.0, [2.0, 4.0]),
    *cell("full-full", 8.0, [40.0, 60.0]),
    *cell("general", 1.0, [0.0, 1.0]),
    *cell("floor", 1.0, [0.5, 0.5], lag_commits=1),
    *cell("full-full", 1.0, [9.0, 9.0], lag_commits=1),
]


def test_lines_are_over_the_rate() -> None:
    (axes,) = panels_of(figure(panel, "rate", TABLE)).values()
    lines = drawn(axes)
    assert lines["full recovery"] == ([1.0, 8.0], [3.0, 50.0])
    assert lines["general"] == ([1.0], [0.5])
    assert lines["floor at lag 1"] == ([1.0], [0.5])
    assert set(lines) == {"full recovery", "general", "floor at lag 1"}
    assert axes.get_title() == "MLR on MNIST (2 trials)"
    assert [t.get_text() for t in axes.get_xticklabels()] == ["1", "8"]


def test_means_with_runs_that_were_given_up_are_marked() -> None:
    table = TABLE + cell("full-partial", 8.0, [500.0, 540.0], converged=0)
    (axes,) = panels_of(figure(panel, "rate", table)).values()
    assert drawn(axes)["at least: some given up"] == ([8.0], [520.0])

"""Repeated failures: what a run costs in all, over how many failures are expected in a baseline's length."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scarml.plots import recovery
from scarml.plots.recovery import Look, Rows, line, mean_cost
from scarml.plots.style import BLUE, GREEN, GREY, ORANGE, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw", "panel"]

_LOOKS = {
    ("full-full", 0): Look("full recovery", VERMILION, "s"),
    ("full-partial", 0): Look("partial recovery", ORANGE, "^"),
    ("priority-1-8-partial", 0): Look("priority 1/8, partial recovery", BLUE),
    ("general", 0): Look("general", GREEN, "D"),
    ("floor", 1): Look("floor at lag 1", GREY, style="-.", hollow=True),
}
"""By strategy and lag."""
_LINEAR_UP_TO = 1.0
"""Iterations; the axis is logarithmic beyond."""


def panel(axes: Axes, rows: Rows) -> None:
    """One panel, from its rows."""
    from matplotlib.ticker import SymmetricalLogLocator

    rates = sorted({r["rate_per_baseline"] for r in rows})
    for (strategy, lag), look in _LOOKS.items():
        wanted = {"strategy": strategy, "lag_commits": lag}
        line(axes, look, {rate: mean_cost(rows, **wanted, rate_per_baseline=rate) for rate in rates})
    given_up = {(r["strategy"], r["lag_commits"], r["rate_per_baseline"]) for r in rows if not r["converged"]}
    at_least = [
        (rate, mean.value)
        for strategy, lag, rate in sorted(given_up)
        if (mean := mean_cost(rows, strategy=strategy, lag_commits=lag, rate_per_baseline=rate)) is not None
    ]
    if at_least:
        axes.plot(*zip(*at_least, strict=True), "o", color="none", mec="black", ms=10, label="at least: some given up")
    axes.set_xscale("log", base=2)
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.set_yscale("symlog", linthresh=_LINEAR_UP_TO)
    axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=_LINEAR_UP_TO, subs=[1, 3]))
    axes.yaxis.set_major_formatter("{x:g}")


draw = partial(recovery.draw, panel, "expected failures a baseline")
"""Write the picture from the rows; see `scarml.plots.recovery.draw`."""

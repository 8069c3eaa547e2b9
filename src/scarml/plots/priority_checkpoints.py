"""Figure 8: what losing half of all blocks costs, over the fraction that a save writes, at equal bytes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scarml.plots import recovery
from scarml.plots.recovery import Look, Rows, line, mean_cost
from scarml.plots.style import BLACK, BLUE, GREEN, GREY, ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw", "panel"]

_FRACTIONS = ("1", "1/2", "1/4", "1/8")
_LOOKS = {
    ("priority", "blocks", 0): Look("priority", BLUE),
    ("round", "blocks", 0): Look("round", ORANGE, "s"),
    ("random", "blocks", 0): Look("random", GREEN, "^"),
    ("priority", "bytes", 0): Look("priority, budget in bytes", BLUE, "D", "-.", hollow=True),
    ("priority", "blocks", 1): Look("priority, lag 1", BLUE, "o", ":", hollow=True),
}


def panel(axes: Axes, rows: Rows) -> None:
    """One panel, from its rows."""
    for (policy, unit, lag), look in _LOOKS.items():
        if not any((r["policy"], r["budget_in"], r["lag_commits"]) == (policy, unit, lag) for r in rows):
            continue
        cells = {
            float(x): mean_cost(rows, policy=policy, fraction=r, budget_in=unit, lag_commits=lag)
            for x, r in enumerate(_FRACTIONS)
        }
        cells[0] = mean_cost(rows, strategy="full-partial", lag_commits=lag)
        line(axes, look, cells)
    for strategy, lag, colour, style, label in (
        ("full-full", 0, BLACK, "--", "full checkpoint, full recovery"),
        ("floor", 1, GREY, "-.", "floor at lag 1"),
    ):
        level = mean_cost(rows, strategy=strategy, lag_commits=lag)
        if level is not None:
            axes.axhline(level.value, color=colour, linestyle=style, linewidth=1.2, label=label)
    axes.set_xticks(range(len(_FRACTIONS)), _FRACTIONS)


draw = partial(recovery.draw, panel, "fraction of a save")
"""Write the picture from the rows; see `scarml.plots.recovery.draw`."""

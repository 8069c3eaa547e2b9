"""Figure 7: what full and partial recovery cost, over the lost fraction."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from scarml.plots import recovery
from scarml.plots.recovery import Look, Rows, line, mean_cost
from scarml.plots.style import BLUE, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw", "panel"]

_LOOKS = {
    "full-full": Look("full recovery", VERMILION, "s"),
    "full-partial": Look("partial recovery", BLUE),
}


def panel(axes: Axes, rows: Rows) -> None:
    """One panel, from its rows."""
    fractions = sorted({r["lost_fraction"] for r in rows}, key=Fraction)
    for strategy, look in _LOOKS.items():
        means = {float(Fraction(p)): mean_cost(rows, strategy=strategy, lost_fraction=p) for p in fractions}
        line(axes, look, means)
    axes.set_xticks([float(Fraction(p)) for p in fractions], fractions)


draw = partial(recovery.draw, panel, "lost fraction")
"""Write the picture from the rows; see `scarml.plots.recovery.draw`."""

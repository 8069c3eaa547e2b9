"""Figure 7: what full and partial recovery cost, over the lost fraction."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from scarml.plots.recovery import Look, Rows, draw_panels, line, mean_cost
from scarml.plots.style import BLUE, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw", "panel"]

_LOOKS = {
    "full-full": Look("full recovery", VERMILION, "s"),
    "full-partial": Look("partial recovery", BLUE),
}


def draw(rows: Rows, folder: Path, file_name: str) -> list[Path]:
    """Write the picture.

    Args:
        rows: the table.
        folder: where to.
        file_name: of the files, without the ending.

    Returns:
        The paths, the PNG first.
    """
    return draw_panels(rows, panel, "lost fraction", folder, file_name)


def panel(axes: Axes, rows: Rows) -> None:
    """One panel, from its rows."""
    fractions = sorted({r["lost_fraction"] for r in rows}, key=Fraction)
    for strategy, look in _LOOKS.items():
        means = {float(Fraction(p)): mean_cost(rows, strategy=strategy, lost_fraction=p) for p in fractions}
        line(axes, look, means)
    axes.set_xticks([float(Fraction(p)) for p in fractions], fractions)

"""Beyond the paper: what losing half of all blocks costs with each addition, at lag 0 and lag 1."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scarml.plots import recovery
from scarml.plots.recovery import Look, Rows, line, mean_cost
from scarml.plots.style import BLACK, BLUE, GREY, ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw", "panel"]

_LABELS = {
    "priority-1-8-partial": "priority\n1/8",
    "priority-1-8-of-bytes-partial": "1/8 of\nthe bytes",
    "bfloat16": "bfloat16",
    "narrow": "narrow",
    "per-byte": "per byte",
    "phase-aware": "phase-aware",
    "priority-1-8-repair": "repair",
    "general": "general",
    "general-repair": "general,\nrepair",
}
"""By strategy."""


def panel(axes: Axes, rows: Rows) -> None:
    """One panel, from its rows."""
    names = [name for name in _LABELS if any(r["strategy"] == name for r in rows)]
    for lag, look in (
        (0, Look("lag 0", BLUE, style="none")),
        (1, Look("lag 1", ORANGE, "s", style="none", hollow=True)),
    ):
        cells = {float(x): mean_cost(rows, strategy=name, lag_commits=lag) for x, name in enumerate(names)}
        line(axes, look, cells)
    for strategy, lag, colour, style, label in (
        ("full-full", 0, BLACK, "--", "full checkpoint, full recovery, lag 0"),
        ("floor", 1, GREY, "-.", "floor at lag 1"),
    ):
        level = mean_cost(rows, strategy=strategy, lag_commits=lag)
        if level is not None:
            axes.axhline(level.value, color=colour, linestyle=style, linewidth=1.2, label=label)
    axes.set_xticks(range(len(names)), [_LABELS[name] for name in names], rotation=45, ha="right")


draw = partial(recovery.draw, panel, "")
"""Write the picture from the rows; see `scarml.plots.recovery.draw`."""

"""Iteration costs with intervals, a panel for each model and data set: what figures 7 and 8 have in common.

A figure is a function of tidy rows (see `scarml.experiments.results`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scarml.plots.style import GREY, save
from scarml.theory.bootstrap import Interval, mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["DrawPanel", "Look", "Rows", "draw", "figure", "line", "mean_cost"]

Rows = Sequence[Mapping[str, Any]]
DrawPanel = Callable[["Axes", Rows], None]

_TITLES = {
    "mlr-mnist": "MLR on MNIST",
    "mf-movielens": "MF on MovieLens",
    "lda-20newsgroups-5k": "LDA on 20 Newsgroups",
    "cnn-by-layer-mnist": "CNN by layer on MNIST",
    "mlr-covtype": "MLR on CoverType",
    "mf-jester": "MF on Jester",
    "lda-reuters-r8": "LDA on Reuters",
    "cnn-by-shard-mnist": "CNN by shard on MNIST",
    "cnn-slices-by-layer-mnist": "CNN by layer, in slices",
}
"""By name of the panel, in the paper's order; others follow under their names."""
_COLUMNS = 4


@dataclass(frozen=True, slots=True)
class Look:
    """How a line looks."""

    label: str
    colour: str
    marker: str = "o"
    style: str = "-"
    hollow: bool = False


def draw(one: DrawPanel, axis_label: str, rows: Rows, folder: Path, file_name: str) -> list[Path]:
    """Write a picture of all panels that have rows.

    Args:
        one: draws a panel from its rows.
        axis_label: below the panels.
        rows: the table.
        folder: where to.
        file_name: of the pictures, without the ending.

    Returns:
        The paths, the PNG first.
    """
    return save(lambda: figure(one, axis_label, rows), folder, file_name)


def figure(one: DrawPanel, axis_label: str, rows: Rows) -> Figure:
    """The figure, for `draw` or a notebook."""
    from matplotlib.figure import Figure

    names = [n for n in _TITLES if any(r["panel"] == n for r in rows)]
    names += sorted({r["panel"] for r in rows} - set(_TITLES))
    n_columns = min(_COLUMNS, len(names))
    n_rows = -(-len(names) // n_columns)
    fig = Figure(figsize=(0.6 + 2.9 * n_columns, 0.9 + 2.7 * n_rows), layout="constrained")
    grid = fig.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axes, name in zip(grid, names, strict=False):
        mine = [r for r in rows if r["panel"] == name]
        one(axes, mine)
        axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)
        axes.set_title(f"{_TITLES.get(name, name)} ({_n_trials(mine)} trials)")
        axes.set_xlabel(axis_label)
        axes.set_ylabel("iteration cost, iterations")
        axes.grid(alpha=0.25, linewidth=0.6)
    for axes in grid[len(names) :]:
        axes.set_axis_off()
    known = {label: handle for axes in grid for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    fig.legend(known.values(), known, loc="outside lower center", ncols=max(1, round(1.3 * n_columns)), frameon=False)
    return fig


def _n_trials(rows: Rows) -> str:
    """Of a cell, or the fewest and the most."""
    counts: dict[tuple[str, ...], int] = {}
    for r in rows:
        key = tuple(str(r.get(name)) for name in ("strategy", "lost_fraction", "lag_commits", "rate_per_baseline"))
        counts[key] = counts.get(key, 0) + 1
    least, most = min(counts.values()), max(counts.values())
    return str(most) if least == most else f"{least}–{most}"


def mean_cost(rows: Rows, **wanted: object) -> Interval | None:
    """Of the rows with these settings, if there are any."""
    costs = [r["cost"] for r in rows if all(r[name] == value for name, value in wanted.items())]
    return mean_interval(costs) if costs else None


def line(axes: Axes, look: Look, costs: Mapping[float, Interval | None]) -> None:
    """Means with intervals.

    Args:
        axes: to draw on.
        look: of the line.
        costs: by the place on the horizontal axis; those that are None are left out.
    """
    known = {x: c for x, c in costs.items() if c is not None}
    if not known:
        return
    below = [c.value - c.low for c in known.values()]
    above = [c.high - c.value for c in known.values()]
    axes.errorbar(
        list(known),
        [c.value for c in known.values()],
        yerr=[below, above],
        color=look.colour,
        marker=look.marker,
        markersize=4.5,
        mfc="white" if look.hollow else look.colour,
        linestyle=look.style,
        linewidth=1.5,
        capsize=2.5,
        label=look.label,
    )

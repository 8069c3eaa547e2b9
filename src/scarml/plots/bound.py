"""Iteration costs against the size of perturbations, under the bound: what figures 3, 5 and 6 have in common.

A figure is a function of tidy rows (see `scarml.experiments.bound_rows`) and of what its panels say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from scarml.plots.style import BLACK, BLUE, GREY, VERMILION, save
from scarml.theory.iteration_cost import iteration_cost_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["BoundPanel", "draw", "figure"]

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class BoundPanel:
    """One panel.

    Args:
        title: above it.
        setting: whose rows it shows.
        label: below it: what the size of a perturbation is, with its unit.
        size: ``norm``, ‖δ‖ of one perturbation on x(T), or ``from-start``, Δ_T = Σ c⁻ˡ ‖δ_l‖.
        worst: a second setting, of perturbations away from the optimum.
        controls: a setting of runs without perturbation, whose spread is shown.
        log: of the axis of sizes.
    """

    title: str
    setting: str
    label: str
    size: Literal["norm", "from-start"] = "norm"
    worst: str = ""
    controls: str = ""
    log: bool = False


def draw(panels: Sequence[BoundPanel], rows: Rows, folder: Path, name: str) -> list[Path]:
    """Write the picture.

    Args:
        panels: those without rows are left out.
        rows: the table.
        folder: where to.
        name: of the files.

    Returns:
        The paths, the PNG first; none if no panel has rows.
    """
    shown = [p for p in panels if _of(rows, p.setting)]
    return save(lambda: figure(shown, rows), folder, name) if shown else []


def figure(panels: Sequence[BoundPanel], rows: Rows) -> Figure:
    """The figure, for `draw` or a notebook."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(0.6 + 3.6 * len(panels), 3.9), layout="constrained")
    for letter, axes, panel in zip("abcdefgh", fig.subplots(1, len(panels), squeeze=False)[0], panels, strict=False):
        _panel(axes, panel, rows)
        axes.set_title(f"({letter}) {panel.title}")
    return fig


def _of(rows: Rows, setting: str) -> Rows:
    """Those that were perturbed, or are controls."""
    return [r for r in rows if setting and r["setting"] == setting and r["n_perturbations"] > 0]


def _panel(axes: Axes, panel: BoundPanel, rows: Rows) -> None:
    mine, worst, controls = (_of(rows, s) for s in (panel.setting, panel.worst, panel.controls))
    first = mine[0]
    if controls:
        spread = np.percentile([r["control"] + r["cost"] - first["control"] for r in controls], [2.5, 97.5])
        axes.axhspan(*spread, color=GREY, alpha=0.35, linewidth=0, label="95 % of runs without perturbation")
    axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)
    x, y = _sizes(panel, mine), np.array([r["cost"] for r in mine])
    alpha = 0.35 if len(mine) > 300 else 0.6
    axes.plot(x, y, "o", color=BLUE, markersize=3.2, alpha=alpha, mec="none", label=_words(mine), rasterized=True)
    if worst:
        costs = [r["cost"] for r in worst]
        axes.plot(
            _sizes(panel, worst), costs, "D", color=BLACK, markersize=3.6, mfc="none", mew=0.8, label=_words(worst)
        )
    _bound(axes, panel, mine, x)
    axes.set_xlabel(panel.label)
    axes.set_ylabel("iteration cost, iterations")
    axes.grid(alpha=0.25, linewidth=0.6)
    _relative(axes, panel, first)
    axes.legend(edgecolor="none", framealpha=0.9, fontsize=7.5, loc="upper left", handlelength=1.8, borderpad=0.2)


def _words(rows: Rows) -> str:
    kind = {"random": "random", "adversarial": "away from the optimum", "reset": "set back to x(0)"}
    return f"{len(rows):,} trials, {kind[rows[0]['perturbation']]}"


def _sizes(panel: BoundPanel, rows: Rows) -> NDArray[np.float64]:
    if panel.size == "norm":
        return np.array([r["norm"] for r in rows])
    return np.array([r["discounted_sum"] * r["c"] ** -r["bound_from_iter"] for r in rows])


def _bound(axes: Axes, panel: BoundPanel, rows: Rows, x: NDArray[np.float64]) -> None:
    """The line; and where the ends of the intervals of c and of the distance would put it."""
    row, largest = rows[0], float(x.max())
    at = np.geomspace(float(x.min()), largest, 400) if panel.log else np.linspace(0, largest, 400)
    since = row["bound_from_iter"] if panel.size == "from-start" else 0
    line = iteration_cost_bound(at, row["distance"] * row["c"] ** -since, row["c"])
    axes.plot(at, line, color=VERMILION, linewidth=2.0, zorder=4, label=f"bound, c = {row['c']:.4f}")
    if row["c"] + 1e-6 < row["c_high"] < 1:
        high = iteration_cost_bound(at, row["distance_low"] * row["c"] ** -since, row["c_high"])
        label = f"bound at the end of the interval, c = {row['c_high']:.4f}"
        axes.plot(at, high, color=VERMILION, linewidth=1.0, linestyle=(0, (4, 2)), label=label)
    if panel.log:
        axes.set_xscale("log")
    else:
        axes.set_xlim(0, 1.02 * largest)
        axes.locator_params(axis="x", nbins=6)
    costs = [r["cost"] for r in rows]
    low, top = min(0.0, *costs), max(float(line.max()), *costs)
    axes.set_ylim(low - 0.05 * (top - low), top + 0.4 * (top - low))  # room for the legend


def _relative(axes: Axes, panel: BoundPanel, row: Mapping[str, Any]) -> None:
    """A second scale above: sizes relative to the distance from the optimum where they are counted from."""
    scale, words = row["distance"], rf"$\|\delta\|\ /\ \|x({row['at_iter']}) - x^*\|$"
    if panel.size == "from-start":
        scale, words = scale * row["c"] ** -row["bound_from_iter"], r"$\Delta_T\ /\ \|x(0) - x^*\|$"
    above = axes.secondary_xaxis("top", functions=(lambda x: x / scale, lambda x: x * scale))
    above.set_xlabel(words, fontsize=8)
    above.tick_params(labelsize=8)

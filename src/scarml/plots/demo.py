"""The demo's picture: loss curves of its runs, with the failures marked.

Above the whole runs; below, on the left what the failure does to the loss, on the right when each run is done. The
figure is a function of the demo's table (``demo.csv``) and the criterion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scarml.plots.style import BLACK, BLUE, GREEN, VERMILION, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "figure"]

Rows = Sequence[Mapping[str, Any]]

AROUND_FAILURE = (-5, 9)
"""Iterations shown before and after the failure, in the panel below on the left."""


@dataclass(frozen=True, slots=True)
class _Look:
    label: str
    colour: str
    line: str = "-"
    width: float = 1.8


_LOOKS = {
    "no-failure": _Look("no failure", BLACK, (0, (1, 1)), 2.2),  # type: ignore[arg-type]
    "partial": _Look("half of the servers lost (simulated), SCAR: partial recovery", BLUE),
    "full": _Look("half of the servers lost (simulated), full recovery", VERMILION),
    "killed": _Look("process killed (SIGKILL, for real), SCAR goes on", GREEN, "--"),
}
_NOTES = {"full": ("all set back to", 16, 8), "partial": ("goes on at", -12, -40)}
"""Words about a recovery, and where they stand beside it, in points."""


def draw(rows: Rows, criterion: float, folder: Path) -> list[Path]:
    """Write ``demo.png`` and ``demo.svg``.

    Args:
        rows: the demo's table: run, iterations, iteration, loss_sum, event.
        criterion: training is done when the loss is below it.
        folder: where to.

    Returns:
        Both paths, the PNG first.
    """
    return save(lambda: figure(rows, criterion), folder, "demo")


def figure(rows: Rows, criterion: float) -> Figure:
    """The figure, for `draw` or a notebook."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(8.4, 6.6), layout="constrained")
    panels = fig.subplot_mosaic([["whole", "whole"], ["failure", "end"]], height_ratios=[1.15, 1])
    curves = {run: [r for r in rows if r["run"] == run] for run in _LOOKS}
    curves = {run: curve for run, curve in curves.items() if curve}
    failed_at = min((r["iterations"] for r in rows if r["event"] == "node_lost"), default=0)
    _whole(panels["whole"], curves, criterion)
    _failure(panels["failure"], curves, failed_at)
    _end(panels["end"], curves, criterion)
    panels["whole"].set_xlabel("iterations done, repeated ones counted again")
    for axes in panels.values():
        axes.set_xlabel(axes.get_xlabel() or "iterations done")
        axes.set_ylabel("loss_sum, nats")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
        axes.grid(alpha=0.25, linewidth=0.6)
    return fig


# ---------------------------------------------------------------------------------------------------------- the panels
def _whole(axes: Axes, curves: Mapping[str, Rows], criterion: float) -> None:
    axes.set_title("Loss of multinomial logistic regression on 10,000 MNIST images")
    _curves(axes, curves, with_cost=True)
    _events(axes, curves)
    axes.set_yscale("log")
    axes.set_yticks([5_000, 10_000, 20_000])
    axes.axhline(criterion, color="0.45", linewidth=0.9)
    axes.text(0.5, criterion * 0.985, f"done below {criterion:,}", color="0.35", va="top", fontsize=8)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=criterion * 0.84)
    axes.legend(frameon=False, title="until done", alignment="left", handlelength=2.6)


def _failure(axes: Axes, curves: Mapping[str, Rows], failed_at: int) -> None:
    axes.set_title("What the failure does")
    _curves(axes, curves, markers=True)
    _events(axes, curves)
    low, high = failed_at + AROUND_FAILURE[0], failed_at + AROUND_FAILURE[1]
    axes.set_xlim(low, high)
    _fit_height(axes, [r["loss_sum"] for c in curves.values() for r in c if low <= r["iterations"] <= high])
    for run, (words, x, y) in _NOTES.items():
        restored = [r for r in curves.get(run, ()) if r["event"] == "recovery_completed"]
        if restored:
            after = _next_loss(curves[run], restored[0])
            axes.annotate(
                f"{words} x({restored[0]['iteration']})",
                (after["iterations"], after["loss_sum"]),
                xytext=(x, y),
                textcoords="offset points",
                va="center",
                ha="left" if x > 0 else "right",
                color=_LOOKS[run].colour,
                arrowprops={"arrowstyle": "-", "color": _LOOKS[run].colour, "linewidth": 0.8, "shrinkB": 3},
            )


def _end(axes: Axes, curves: Mapping[str, Rows], criterion: float) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title("When each run is done")
    _curves(axes, curves, markers=True)
    ends = [c[-1]["iterations"] for c in curves.values()]
    low, high = min(ends) - 5, max(ends) + 1
    axes.set_xlim(low, high)
    _fit_height(axes, [r["loss_sum"] for c in curves.values() for r in c if low <= r["iterations"] <= high], 0.17)
    axes.axhline(criterion, color="0.45", linewidth=0.9)
    for run, curve in curves.items():
        x, y = curve[-1]["iterations"], curve[-1]["loss_sum"]
        axes.plot(x, y, "o", color=_LOOKS[run].colour, markersize=7, zorder=4)
        axes.annotate(
            str(x), (x, y), xytext=(0, -8), textcoords="offset points", ha="center", va="top", color=_LOOKS[run].colour
        )
    axes.text(low + 0.1, criterion, f"done below {criterion:,}", color="0.35", va="bottom", fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


# ----------------------------------------------------------------------------------------------------------- in common
def _curves(axes: Axes, curves: Mapping[str, Rows], *, markers: bool = False, with_cost: bool = False) -> None:
    baseline = curves["no-failure"][-1]["iterations"] if "no-failure" in curves else None
    for run, curve in curves.items():
        look, points = _LOOKS[run], [r for r in curve if not r["event"]]
        label = look.label
        if with_cost and baseline is not None:
            n = points[-1]["iterations"]
            label = f"{n} iterations: {label}" if run == "no-failure" else f"{n} (+{n - baseline}): {label}"
        axes.plot(
            [r["iterations"] for r in points],
            [r["loss_sum"] for r in points],
            color=look.colour,
            linestyle=look.line,
            linewidth=look.width,
            marker="." if markers else None,
            label=label,
            zorder=3 if run == "no-failure" else 2,
        )


def _events(axes: Axes, curves: Mapping[str, Rows]) -> None:
    """A cross where nodes or the process are lost."""
    lost = {
        (r["iterations"], r["loss_sum"]) for c in curves.values() for r in c if r["event"] in ("node_lost", "killed")
    }
    label = "failure"
    for x, y in sorted(lost):
        axes.plot(x, y, "X", color="black", markersize=9, mec="white", linestyle="", zorder=5, label=label)
        label = "_"


def _next_loss(curve: Rows, after: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first loss that was taken after a row."""
    later = curve[curve.index(after) + 1 :]
    return next((r for r in later if not r["event"]), after)


def _fit_height(axes: Axes, values: Sequence[float], margin: float = 0.09) -> None:
    margin = margin * (max(values) - min(values)) or 1.0
    axes.set_ylim(min(values) - margin, max(values) + margin)

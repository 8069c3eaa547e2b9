"""Failures that come one after another in one run: what they cost in all, the more of them there are.

In every run failures strike after geometric numbers of iterations, with 1, 2, 4 and 8 expected in as many iterations as
the baseline takes, and each loses half of all blocks, drawn anew. The four deterministic panels are run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

from scarml.experiments import strategy
from scarml.experiments.failure import FailurePlan
from scarml.experiments.panel_figure import PanelFigure
from scarml.experiments.panels import PANELS, PaperPanel
from scarml.experiments.processes import Processes
from scarml.experiments.repeated_rows import RepeatedRow, RepeatedSummary, summarise
from scarml.experiments.repeated_sweep import RepeatedSweep
from scarml.experiments.strategy import FLOOR, GENERAL, full
from scarml.experiments.summary import reduction_in_words
from scarml.experiments.sweep import Cell

__all__ = ["CELLS", "FIGURE", "LOST_FRACTION", "RATES", "RepeatedFigure"]

LOST_FRACTION = Fraction(1, 2)
"""By each failure."""
RATES = (1.0, 2.0, 4.0, 8.0)
"""Failures expected in as many iterations as the baseline takes."""
_QUICK_RATES = (2.0, 8.0)
_AT_0 = (full(), strategy.partial("full", Fraction(1)), strategy.partial("priority", Fraction(1, 8)), GENERAL)
CELLS = (*(Cell(s, 0) for s in _AT_0), Cell(full(), 1), Cell(FLOOR, 1))
"""What is compared: at lag 0, and the floor at lag 1, with full recovery at that lag."""


class RepeatedFigure(PanelFigure[RepeatedRow]):
    """The figure."""

    kind = RepeatedRow

    def cells_to_run(
        self, panel: PaperPanel, plan: FailurePlan, folder: Path, processes: Processes, *, quick: bool
    ) -> Sequence[Callable[[], object]]:
        """Each cell at all rates, or with ``quick`` at two of them."""
        sweep = RepeatedSweep(panel.panel, processes=processes)

        def run(cell: Cell, rate: float) -> None:
            of_rate = replace(plan, lost_fraction=LOST_FRACTION, rate_per_baseline=rate)
            sweep.run(cell, of_rate, folder / f"rate-{rate:g}" / f"{cell.file_name}.gz")

        rates = _QUICK_RATES if quick else RATES
        return [partial(run, cell, rate) for cell in CELLS for rate in rates]

    def summary(self, rows: Sequence[RepeatedRow]) -> list[dict[str, object]]:
        """What each cell came to."""
        return [asdict(cell) for cell in summarise(rows)]

    def words(self, rows: Sequence[RepeatedRow]) -> list[str]:
        """The same for people, a line each."""
        return [_words(cell) for cell in summarise(rows)]


def _words(cell: RepeatedSummary) -> str:
    given_up = f", at least: {cell.n_given_up} were given up" if cell.n_given_up else ""
    return (
        f"{cell.panel}, {cell.rate_per_baseline:g} failures a baseline, {cell.strategy} at lag {cell.lag_commits}: "
        f"{cell.n_trials:,} runs, {cell.failures:.1f} failures each, cost {cell.cost.value:.2f} [{cell.cost.low:.2f}, "
        f"{cell.cost.high:.2f}] iterations{given_up}{reduction_in_words(cell.reduction)}"
    )


FIGURE = RepeatedFigure(
    name="repeated-failures",
    file_name="repeated-failures",
    description="failures one after another in one run, each losing 1/2: 1, 2, 4 and 8 expected a baseline",
    known={name: PANELS[name] for name in ("mlr-mnist", "mlr-covtype", "mf-movielens", "mf-jester")},
    n_trials=50,
    quick_trials=4,
)

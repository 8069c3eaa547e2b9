"""Failures that come one after another in one run: what they cost in all, the more of them there are.

In every run failures strike after geometric numbers of iterations, with 1, 2, 4 and 8 expected in as many iterations as
the baseline takes, and each loses half of all blocks, drawn anew. The four deterministic panels are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path

from scarml.errors import UsageError
from scarml.experiments import beyond
from scarml.experiments.about import About
from scarml.experiments.failure import FailurePlan
from scarml.experiments.figures import Tell, Wanted
from scarml.experiments.panels import PANELS, QUICK, PaperPanel
from scarml.experiments.processes import Processes
from scarml.experiments.repeated_rows import RepeatedRow, RepeatedSummary, summarise
from scarml.experiments.repeated_sweep import RepeatedSweep
from scarml.experiments.results import read_folder
from scarml.experiments.strategy import FLOOR, full, partial
from scarml.experiments.sweep import Cell

__all__ = ["FIGURE", "LOST_FRACTION", "RATES", "RepeatedFigure", "cells_of"]

LOST_FRACTION = Fraction(1, 2)
"""By each failure."""
RATES = (1.0, 2.0, 4.0, 8.0)
"""Failures expected in as many iterations as the baseline takes."""
_QUICK_TRIALS, _QUICK_RATES = 4, (2.0, 8.0)


def cells_of(panel: PaperPanel) -> Sequence[Cell]:
    """What is compared: at lag 0, and the floor at lag 1, with full recovery at that lag. Loads the panel."""
    general = next(s for s in beyond.strategies(panel) if s.name == "general")
    at_0 = [full(), partial("full", Fraction(1)), partial("priority", Fraction(1, 8)), general]
    return [*(Cell(s, 0) for s in at_0), Cell(full(), 1), Cell(FLOOR, 1)]


@dataclass(frozen=True, slots=True)
class RepeatedFigure:
    """The figure.

    Args:
        name: on the command line.
        file_name: of the folder of its results, and of its pictures.
        description: in a line.
        panels: their names.
        n_trials: a cell.
    """

    name: str
    file_name: str
    description: str
    panels: tuple[str, ...]
    n_trials: int = 50

    def run(
        self,
        folder: Path,
        wanted: Wanted = Wanted(),  # noqa: B008  # frozen
        processes: Processes = Processes(),  # noqa: B008  # frozen
        tell: Tell = lambda *_: None,
    ) -> list[RepeatedRow]:
        """Run what is missing in the folder.

        Args:
            folder: gets a folder for each panel.
            wanted: how much; quick is a small panel of its own.
            processes: that runs are spread over.
            tell: is told of cells instead of trials.

        Returns:
            All rows that are in it, also of panels that were run before.

        Raises:
            UsageError: if there is no panel of a name, or its algorithm is noisy.
        """
        unknown = [name for name in wanted.panels if name not in self.panels]
        if unknown:
            raise UsageError(
                f"{self.name} has no panel {unknown[0]!r}; it has {', '.join(self.panels)}: those whose algorithm "
                "draws no random values while it trains, and whose criterion is about single losses"
            )
        names = wanted.panels or (() if wanted.quick else self.panels)
        for panel in [PANELS[name] for name in names] or [QUICK]:
            self._run_panel(panel, folder / panel.panel.name, wanted, processes, tell)
        return list(read_folder(folder, RepeatedRow))

    def _run_panel(self, panel: PaperPanel, folder: Path, wanted: Wanted, processes: Processes, tell: Tell) -> None:
        name, sweep = panel.panel.name, RepeatedSweep(panel.panel, processes=processes)
        n_trials = wanted.n_trials or (_QUICK_TRIALS if wanted.quick else self.n_trials)
        rates = _QUICK_RATES if wanted.quick else RATES
        cells = [(rate, cell) for cell in cells_of(panel) for rate in rates]
        command = replace(wanted, panels=() if panel is QUICK else (name,)).as_command(self.name)
        facts = {"backend": processes.backend, "seed": wanted.seed}
        with About(folder / "about.json", resumed=True).timing(command, processes.n, **facts):
            for done, (rate, cell) in enumerate(cells):
                tell(name, done, len(cells))
                plan = FailurePlan(wanted.seed, n_trials, LOST_FRACTION, rate_per_baseline=rate)
                sweep.run(cell, plan, folder / f"rate-{rate:g}" / f"{cell.file_name}.gz")
            tell(name, len(cells), len(cells))

    def summary(self, rows: Sequence[RepeatedRow]) -> list[dict[str, object]]:
        """What each cell came to."""
        return [asdict(cell) for cell in summarise(rows)]

    def words(self, rows: Sequence[RepeatedRow]) -> list[str]:
        """The same for people, a line each."""
        return [_words(cell) for cell in summarise(rows)]


def _words(cell: RepeatedSummary) -> str:
    given_up = f", at least: {cell.n_given_up} were given up" if cell.n_given_up else ""
    reduction = ""
    if cell.reduction is not None:
        value, low, high = (-100 * x for x in (cell.reduction.value, cell.reduction.high, cell.reduction.low))
        reduction = f", {value:+.1f} % [{low:+.1f}, {high:+.1f}] against full recovery"
    return (
        f"{cell.panel}, {cell.rate_per_baseline:g} failures a baseline, {cell.strategy} at lag {cell.lag_commits}: "
        f"{cell.n_trials:,} runs, {cell.failures:.1f} failures each, cost {cell.cost.value:.2f} [{cell.cost.low:.2f}, "
        f"{cell.cost.high:.2f}] iterations{given_up}{reduction}"
    )


FIGURE = RepeatedFigure(
    name="repeated-failures",
    file_name="repeated-failures",
    description="failures one after another in one run, each losing 1/2: 1, 2, 4 and 8 expected a baseline",
    panels=("mlr-mnist", "mlr-covtype", "mf-movielens", "mf-jester"),
)

"""Figures about what losses cost, on the paper's eight panels and more: their cells, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path

from scarml.experiments.failure import FailurePlan
from scarml.experiments.panel_figure import PanelFigure
from scarml.experiments.panels import PaperPanel
from scarml.experiments.processes import Processes
from scarml.experiments.results import TrialRow
from scarml.experiments.summary import CellSummary, reduction_in_words, summarise
from scarml.experiments.sweep import Cell, Sweep

__all__ = ["Loss", "RecoveryFigure"]

Loss = tuple[Fraction, Cell]
"""A lost fraction, and what is saved and restored."""


@dataclass(frozen=True, kw_only=True)
class RecoveryFigure(PanelFigure[TrialRow]):
    """One figure.

    Args:
        cells: of a panel, in the order in which they are run.
    """

    kind = TrialRow
    cells: Callable[[PaperPanel], Sequence[Loss]]

    def cells_to_run(
        self, panel: PaperPanel, plan: FailurePlan, folder: Path, processes: Processes, *, quick: bool
    ) -> Sequence[Callable[[], object]]:
        """All of them; the panel is trained once."""
        sweep = Sweep(panel.panel, plan, processes=processes)

        def run(lost_fraction: Fraction, cell: Cell) -> None:
            of_fraction = folder / f"lost-{lost_fraction.numerator}-{lost_fraction.denominator}"
            sweep.losing(lost_fraction).run([cell], of_fraction, compressed=True)

        return [partial(run, lost_fraction, cell) for lost_fraction, cell in self.cells(panel)]

    def summary(self, rows: Sequence[TrialRow]) -> list[dict[str, object]]:
        """What each cell came to."""
        return [asdict(cell) for cell in summarise(rows)]

    def words(self, rows: Sequence[TrialRow]) -> list[str]:
        """The same for people, a line each."""
        return [_words(cell) for cell in summarise(rows)]


def _words(cell: CellSummary) -> str:
    return (
        f"{cell.panel}, losing {cell.lost_fraction}, {cell.strategy} at lag {cell.lag_commits}: {cell.n_trials:,} "
        f"trials, cost {cell.cost.value:.2f} [{cell.cost.low:.2f}, {cell.cost.high:.2f}] iterations"
        f"{reduction_in_words(cell.reduction)}"
    )

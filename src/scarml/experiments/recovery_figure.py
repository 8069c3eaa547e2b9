"""Figures about what losses cost, on the paper's eight panels and more: their cells, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path

from scarml.experiments.about import About
from scarml.experiments.failure import FailurePlan
from scarml.experiments.figures import Tell, Wanted
from scarml.experiments.panels import PANELS, QUICK, PaperPanel, panel_named
from scarml.experiments.processes import Processes
from scarml.experiments.results import TrialRow, read_folder
from scarml.experiments.summary import CellSummary, summarise
from scarml.experiments.sweep import Cell, Sweep

__all__ = ["RecoveryFigure", "folder_of_losses"]

Loss = tuple[Fraction, Cell]
"""A lost fraction, and what is saved and restored."""
QUICK_TRIALS = 8


def folder_of_losses(folder: Path, panel: str, lost_fraction: Fraction) -> Path:
    """Where the rows of a panel are that lose this fraction."""
    return folder / panel / f"lost-{lost_fraction.numerator}-{lost_fraction.denominator}"


@dataclass(frozen=True, slots=True)
class RecoveryFigure:
    """One figure.

    Args:
        name: on the command line.
        file_name: of the folder of its results, and of its pictures.
        description: in a line.
        cells: of a panel, in the order in which they are run.
        n_trials: a cell, as in the paper.
        known: its panels by name.
    """

    name: str
    file_name: str
    description: str
    cells: Callable[[PaperPanel], Sequence[Loss]]
    n_trials: int = 100
    known: Mapping[str, PaperPanel] = field(default_factory=lambda: PANELS)

    @property
    def panels(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.known)

    def run(
        self,
        folder: Path,
        wanted: Wanted = Wanted(),  # noqa: B008  # frozen
        processes: Processes = Processes(),  # noqa: B008  # frozen
        tell: Tell = lambda *_: None,
    ) -> list[TrialRow]:
        """Run what is missing in the folder.

        Args:
            folder: gets a folder for each panel.
            wanted: how much; quick is a small panel of its own.
            processes: that trials are spread over.
            tell: is told of cells instead of trials.

        Returns:
            All rows that are in it, also of panels that were run before.

        Raises:
            UsageError: if there is no panel of a name.
        """
        names = wanted.panels or (() if wanted.quick else self.panels)
        chosen = [panel_named(name, self.known) for name in names] or [QUICK]
        for panel in chosen:
            self._run_panel(panel, folder, wanted, processes, tell)
        return list(read_folder(folder))

    def _run_panel(self, panel: PaperPanel, folder: Path, wanted: Wanted, processes: Processes, tell: Tell) -> None:
        name, cells = panel.panel.name, self.cells(panel)
        n_trials = wanted.n_trials or (QUICK_TRIALS if wanted.quick else self.n_trials)
        plan = FailurePlan(seed=wanted.seed, n_trials=n_trials)
        sweep = Sweep(panel.panel, plan, processes=processes)
        about = About(folder / name / "about.json", resumed=True)
        command = replace(wanted, panels=() if panel is QUICK else (name,)).as_command(self.name)
        facts = {"backend": processes.backend, "seed": wanted.seed}
        with about.timing(command, processes.n, **facts):
            for done, (lost_fraction, cell) in enumerate(cells):
                tell(name, done, len(cells))
                of_fraction = sweep.losing(lost_fraction)
                of_fraction.run([cell], folder_of_losses(folder, name, lost_fraction), compressed=True)
            tell(name, len(cells), len(cells))

    def summary(self, rows: Sequence[TrialRow]) -> list[dict[str, object]]:
        """What each cell came to."""
        return [asdict(cell) for cell in summarise(rows)]

    def words(self, rows: Sequence[TrialRow]) -> list[str]:
        """The same for people, a line each."""
        return [_words(cell) for cell in summarise(rows)]


def _words(cell: CellSummary) -> str:
    reduction = ""
    if cell.reduction is not None:
        value, low, high = (-100 * x for x in (cell.reduction.value, cell.reduction.high, cell.reduction.low))
        reduction = f", {value:+.1f} % [{low:+.1f}, {high:+.1f}] against full recovery"
    return (
        f"{cell.panel}, losing {cell.lost_fraction}, {cell.strategy} at lag {cell.lag_commits}: {cell.n_trials:,} "
        f"trials, cost {cell.cost.value:.2f} [{cell.cost.low:.2f}, {cell.cost.high:.2f}] iterations{reduction}"
    )

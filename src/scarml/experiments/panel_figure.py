"""What figures on panels have in common: they are run panel by panel, cell by cell; ``about.json`` says how."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from scarml.experiments.about import About
from scarml.experiments.failure import FailurePlan
from scarml.experiments.figures import Tell, Wanted
from scarml.experiments.panels import PANELS, QUICK, PaperPanel, panel_named
from scarml.experiments.processes import Processes
from scarml.experiments.results import read_folder

__all__ = ["PanelFigure"]

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True)
class PanelFigure(ABC, Generic[Row]):
    """A figure of which each panel is a problem, on which cells of strategies are run.

    Args:
        name: on the command line.
        file_name: of the folder of its results, and of its pictures.
        description: in a line.
        known: its panels by name.
        n_trials: a cell.
        quick_trials: a cell, with ``--quick``.
    """

    kind: ClassVar[type[Any]]
    """Of its rows."""
    name: str
    file_name: str
    description: str
    known: Mapping[str, PaperPanel] = field(default_factory=lambda: PANELS)
    n_trials: int = 100
    quick_trials: int = 8

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
    ) -> list[Row]:
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
        for panel in [panel_named(name, self.known) for name in names] or [QUICK]:
            name = panel.panel.name
            n_trials = wanted.n_trials or (self.quick_trials if wanted.quick else self.n_trials)
            plan = FailurePlan(wanted.seed, n_trials)
            cells = self.cells_to_run(panel, plan, folder / name, processes, quick=wanted.quick)
            command = replace(wanted, panels=() if panel is QUICK else (name,)).as_command(self.name)
            about = About(folder / name / "about.json", resumed=True)
            with about.timing(command, processes.n, backend=processes.backend, seed=wanted.seed):
                for done, run in enumerate(cells):
                    tell(name, done, len(cells))
                    run()
                tell(name, len(cells), len(cells))
        return list(read_folder(folder, self.kind))

    @abstractmethod
    def cells_to_run(
        self, panel: PaperPanel, plan: FailurePlan, folder: Path, processes: Processes, *, quick: bool
    ) -> Sequence[Callable[[], object]]:
        """The cells of a panel, in the order in which they are run.

        Args:
            panel: which.
            plan: the seed of the failures, and how many; what they lose, and how often, is the figure's.
            folder: of the panel; gets files of rows.
            processes: that trials are spread over.
            quick: fewer will do.

        Returns:
            For each what runs what is missing of it.
        """

    @abstractmethod
    def summary(self, rows: Sequence[Row]) -> list[dict[str, object]]:
        """What each cell came to."""

    @abstractmethod
    def words(self, rows: Sequence[Row]) -> list[str]:
        """The same for people, a line each."""

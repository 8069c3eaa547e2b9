"""The figures that ``scarml figure`` makes, by name. `scarml.plots.figures` draws those of the same names."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from scarml.errors import UsageError
from scarml.experiments.processes import Processes

__all__ = ["NAMES", "Figure", "Tell", "Wanted", "figure"]

NAMES = (
    "qp-bound",
    "mlr-perturbations",
    "resets",
    "partial-recovery",
    "priority-checkpoints",
    "beyond",
    "repeated-failures",
)
"""Each is the ``FIGURE`` of the module of that name."""

Tell = Callable[[str, int, int], None]
"""Is told what is being done, how many trials of it are done, and of how many."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """How much of a figure is to be run.

    Args:
        quick: a smaller experiment, to see that everything works.
        panels: names of the parts to run; without any, all.
        n_trials: of each part, instead of the figure's own number.
        seed: of the perturbations or failures.

    Raises:
        UsageError: if ``n_trials`` is below 1.
    """

    quick: bool = False
    panels: tuple[str, ...] = ()
    n_trials: int | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        if self.n_trials is not None and self.n_trials < 1:
            raise UsageError(f"--trials is {self.n_trials}; expected at least 1")

    def as_command(self, figure: str) -> str:
        """The command line that runs so much of a figure, by its name."""
        trials = [] if self.n_trials is None else [f"--trials {self.n_trials}"]
        seed = [] if self.seed == 1 else [f"--seed {self.seed}"]
        panels = [f"--panel {name}" for name in self.panels]
        return " ".join(["scarml figure", figure, *["--quick"][: self.quick], *panels, *trials, *seed])


class Figure(Protocol):
    """An experiment that a picture is drawn of. Its rows are dataclasses, one a trial, with their settings."""

    @property
    def name(self) -> str:
        """On the command line."""
        ...

    @property
    def file_name(self) -> str:
        """Of the folder of its results and of its pictures."""
        ...

    @property
    def description(self) -> str:
        """In a line."""
        ...

    @property
    def panels(self) -> tuple[str, ...]:
        """Parts that can be run by themselves."""
        ...

    def run(self, folder: Path, wanted: Wanted, processes: Processes, tell: Tell) -> Sequence[Any]:
        """Run what is missing in the folder; all rows."""
        ...

    def summary(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """What the rows come to, for programs."""
        ...

    def words(self, rows: Sequence[Any]) -> list[str]:
        """The same for people, in lines."""
        ...


def figure(name: str) -> Figure:
    """The figure of that name.

    Raises:
        UsageError: if there is none.

    Example:
        >>> figure("qp-bound").file_name
        'figure-3-qp'
    """
    if name not in NAMES:
        raise UsageError(f"there is no figure {name!r}; expected one of {', '.join(NAMES)}, or all")
    return cast(Figure, importlib.import_module(f"scarml.experiments.{name.replace('-', '_')}").FIGURE)

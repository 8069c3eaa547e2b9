"""Figures about the bound: their settings, and how they are run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scarml.errors import UsageError
from scarml.experiments.about import About
from scarml.experiments.bound_rows import BoundRow, of_setting, summarise
from scarml.experiments.bound_setting import Setting
from scarml.experiments.bound_sweep import BoundSweep
from scarml.experiments.figures import Tell, Wanted
from scarml.experiments.processes import Processes

__all__ = ["BoundFigure"]


@dataclass(frozen=True, slots=True)
class BoundFigure:
    """One figure.

    Args:
        name: on the command line.
        file_name: of its folder and pictures.
        description: in a line.
        settings: what is run, in full.
        quick: what is run with ``--quick``.
    """

    name: str
    file_name: str
    description: str
    settings: tuple[Setting, ...]
    quick: tuple[Setting, ...]

    @property
    def panels(self) -> tuple[str, ...]:
        """Names of the settings."""
        return tuple(s.name for s in self.settings)

    def run(
        self,
        folder: Path,
        wanted: Wanted = Wanted(),  # noqa: B008  # frozen
        processes: Processes = Processes(),  # noqa: B008  # frozen
        tell: Tell = lambda *_: None,
    ) -> list[BoundRow]:
        """Run what is missing in the folder.

        Args:
            folder: gets a file for each setting, and ``about.json``.
            wanted: how much.
            processes: that trials are spread over.
            tell: is told of progress.

        Returns:
            The rows of the settings that were wanted, controls first.

        Raises:
            UsageError: if there is no panel of a name.
        """
        unknown = [name for name in wanted.panels if name not in self.panels]
        if unknown:
            raise UsageError(f"{self.name} has no panel {unknown[0]!r}; it has {', '.join(self.panels)}")
        settings = self.quick if wanted.quick else self.settings
        chosen = [s for s in settings if not wanted.panels or s.name in wanted.panels]
        about = About(folder / "about.json", resumed=any(folder.glob("*.csv*")))
        facts = {"backend": processes.backend, "seed": wanted.seed}
        rows: list[BoundRow] = []
        with about.timing(wanted.as_command(self.name), processes.n, **facts):
            for some in _with_one_baseline(chosen):
                rows += BoundSweep(some, wanted.seed, processes).run(folder, wanted.n_trials, tell)
        return rows

    def summary(self, rows: Sequence[BoundRow]) -> list[dict[str, Any]]:
        """What each setting came to; controls are no setting of their own."""
        return [summarise(mine) for mine in of_setting(rows).values() if mine[0].perturbation != "none"]

    def words(self, rows: Sequence[BoundRow]) -> list[str]:
        """The same for people, a line each."""
        return [_words(setting) for setting in self.summary(rows)]


def _words(s: Mapping[str, Any]) -> str:
    low, high = s["c_interval"]
    if s["median_cost_over_bound"] is None:
        return (
            f"{s['setting']}: {s['trials']:,} trials, none of them perturbed; c = {s['c']:.4f} [{low:.4f}, {high:.4f}]"
        )
    return (
        f"{s['setting']}: {s['trials']:,} trials, mean cost {s['mean_cost']:.2f} iterations, "
        f"{s['exceedances']:,} above the bound, {100 * s['median_cost_over_bound']:.0f} % of it at the median and "
        f"{100 * s['largest_cost_over_bound']:.0f} % at most; c = {s['c']:.4f} [{low:.4f}, {high:.4f}]"
    )


def _with_one_baseline(settings: Sequence[Setting]) -> list[list[Setting]]:
    found: dict[Any, list[Setting]] = {}
    for s in settings:
        found.setdefault(s.baseline_key, []).append(s)
    return list(found.values())

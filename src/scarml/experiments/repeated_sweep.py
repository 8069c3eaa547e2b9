"""Runs with repeated failures: the same failures under several strategies, in parallel, and resumable run by run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from scarml.errors import UsageError
from scarml.experiments.failure import FailurePlan
from scarml.experiments.kept_rows import KeptRows
from scarml.experiments.problem import Panel, Trainer
from scarml.experiments.processes import Processes
from scarml.experiments.repeated_rows import RepeatedRow
from scarml.experiments.struck import draw_strikes, run_struck
from scarml.experiments.sweep import Cell, Sweep, settings_of

__all__ = ["RepeatedSweep"]


class RepeatedSweep:
    """Runs of one panel.

    Args:
        panel: what is trained; a deterministic algorithm, with a criterion about single losses.
        processes: that runs are spread over.
        trainer: instead of the panel's own, for problems that have no name; they cannot be trained elsewhere.

    Raises:
        UsageError: if the arguments do not fit together.
    """

    def __init__(
        self,
        panel: Panel,
        *,
        processes: Processes = Processes(),  # noqa: B008  # frozen
        trainer: Trainer | None = None,
    ) -> None:
        if panel.noisy or panel.smoothed_iters > 1:
            raise UsageError(
                f"{panel.name} cannot be run with repeated failures: that needs a deterministic algorithm, whose "
                "training without failure is its own control, and a criterion that is about single losses"
            )
        self.panel = panel
        self._processes = processes
        self._baseline = Sweep(panel, FailurePlan(), processes=processes, trainer=trainer)

    def run(self, cell: Cell, plan: FailurePlan, path: Path) -> list[RepeatedRow]:
        """Run what is missing of a cell.

        Args:
            cell: the strategy and its lag.
            plan: the failures, and how many runs.
            path: of the file of rows; compressed if it ends in ``.gz``.

        Returns:
            Its rows.
        """
        settings = settings_of(self.panel, self._baseline.trainer.problem, plan, cell)
        kept = KeptRows(path, RepeatedRow, settings)
        for row in self._rows(cell, plan, kept.missing(plan.n_trials)):
            kept.add(row)
        return kept.finish(plan.n_trials)

    def run_cell(self, cell: Cell, plan: FailurePlan) -> list[RepeatedRow]:
        """All runs of one cell."""
        return sorted(self._rows(cell, plan, range(plan.n_trials)), key=lambda row: row.trial)

    def _rows(self, cell: Cell, plan: FailurePlan, trials: Sequence[int]) -> Iterator[RepeatedRow]:
        """As they are done."""
        if self._processes.are_elsewhere:
            outcomes = self._processes.map(_run_elsewhere, ((self.panel, cell, plan, trial) for trial in trials))
        else:
            outcomes = self._processes.map(_run, ((self._baseline, cell, plan, trial) for trial in trials))
        for _, row in outcomes:
            yield row


@lru_cache(maxsize=1)  # a data set may fill much of the memory
def _baseline_of(panel: Panel) -> Sweep:
    return Sweep(panel, FailurePlan())


def _run_elsewhere(panel: Panel, cell: Cell, plan: FailurePlan, trial: int) -> RepeatedRow:
    return _run(_baseline_of(panel), cell, plan, trial)


def _run(baseline: Sweep, cell: Cell, plan: FailurePlan, trial: int) -> RepeatedRow:
    trainer, trajectory = baseline.trainer, baseline.trajectory
    strikes = draw_strikes(trainer, trajectory.n_iters, plan, trial)
    struck = run_struck(trainer, trajectory, cell.strategy.checkpoint, cell.lag, strikes)
    control, converged = trajectory.crossing, math.isinf(struck.given_up_at)
    return RepeatedRow(
        **settings_of(baseline.panel, trainer.problem, plan, cell),
        n_trials=plan.n_trials,
        trial=trial,
        converged=converged,
        n_failures=struck.n_failures,
        n_lost_blocks=struck.n_lost_blocks,
        perturbation=struck.perturbation,
        rework_iters=struck.rework_iters,
        repair_iters=struck.repair_iters,
        control=control.interpolated,
        control_whole=control.whole,
        cost=(struck.performed.interpolated if converged else struck.given_up_at) - control.interpolated,
        cost_whole=(struck.performed.whole if converged else struck.given_up_at) - control.whole,
    )

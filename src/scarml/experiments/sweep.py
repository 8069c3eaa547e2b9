"""Sweeps: the same failures under several strategies. Cell by cell, in parallel, and resumable.

A cell is one strategy at one lag. A finished cell is a file; it is kept when the same sweep is started again, and made
anew when any setting differs. An interrupt loses the cell under way only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from scarml.checkpoint.selection import Checkpoint
from scarml.core.sequential import State, digest
from scarml.errors import UsageError
from scarml.experiments.failure import Failure, FailurePlan, draw_failures
from scarml.experiments.problem import Panel, Trainer, trainer_for
from scarml.experiments.processes import Processes
from scarml.experiments.replay import replay
from scarml.experiments.results import SETTINGS, TrialRow, read_rows, write_rows
from scarml.experiments.trajectory import Crossing, Trajectory, record
from scarml.experiments.trial import Looking, Recovered, control, recover, train_to_criterion

__all__ = ["FLOOR", "Cell", "Strategy", "Sweep", "full", "partial", "repair"]

Tell = Callable[[str], None]
_Key = tuple[int, str]
Run = tuple[State, int, float, Looking]
"""Arguments of `train_to_criterion`."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """What is saved and how it is recovered, with a name for tables and files."""

    name: str
    checkpoint: Checkpoint


def full(interval_iters: int = 8) -> Strategy:
    """The traditional checkpoint: everything saved every C iterations, everything taken back."""
    return Strategy("full-full", Checkpoint("full", Fraction(1), interval_iters, recovery="full"))


def partial(policy: str, fraction: Fraction, interval_iters: int = 8) -> Strategy:
    """Partial recovery from checkpoints of a fraction of the state, at equal bytes per C iterations."""
    name = policy if policy == "full" else f"{policy}-{fraction.numerator}-{fraction.denominator}"
    return Strategy(f"{name}-partial", Checkpoint(policy, fraction, interval_iters))


def repair(policy: str, fraction: Fraction, interval_iters: int = 8) -> Strategy:
    """As `partial`, and then the model mends what was restored."""
    restored = partial(policy, fraction, interval_iters)
    checkpoint = replace(restored.checkpoint, recovery="repair")
    return Strategy(restored.name.removesuffix("partial") + "repair", checkpoint)


FLOOR = Strategy("floor", Checkpoint("full", Fraction(1), 1))
"""Everything saved in every iteration, lost blocks restored: no saved value can do better at the same lag."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One strategy at one lag, in commits."""

    strategy: Strategy
    lag: int

    @property
    def file_name(self) -> str:
        """Of its results."""
        return f"{self.strategy.name}.lag-{self.lag}.csv"


class Sweep:
    """The failures of one plan, on one panel.

    Args:
        panel: what is trained.
        plan: the failures.
        n_jobs: processes; more than one needs joblib.
        every_loss: evaluate every loss, to check that leaving some out changes nothing.
        trainer: instead of the panel's own, for problems that have no name; then ``n_jobs`` must be 1.

    Raises:
        UsageError: if the arguments do not fit together.
    """

    def __init__(
        self,
        panel: Panel,
        plan: FailurePlan,
        *,
        n_jobs: int = 1,
        every_loss: bool = False,
        trainer: Trainer | None = None,
    ) -> None:
        if trainer is not None and n_jobs > 1:
            raise UsageError(f"{n_jobs} processes; expected 1 for a problem without a name")
        self.panel = panel
        self.plan = plan
        self.trainer = trainer or trainer_for(panel)
        self._how = Looking(every_loss=every_loss)
        self._processes = Processes(n_jobs)
        self._trajectory: Trajectory | None = None
        self._failures: list[Failure] = []
        self._known: dict[_Key, Crossing] = {}

    @property
    def trajectory(self) -> Trajectory:
        """Training without failure; recorded when it is first needed."""
        if self._trajectory is None:
            self._trajectory = record(self.trainer)
        return self._trajectory

    @property
    def failures(self) -> list[Failure]:
        """The same for all strategies."""
        if not self._failures:
            self._failures = draw_failures(self.trainer, self.trajectory.n_iters, self.plan)
        return self._failures

    def run(self, cells: Iterable[Cell], folder: Path, tell: Tell = lambda _: None) -> list[TrialRow]:
        """Run what is not there yet.

        Args:
            cells: which strategies and lags.
            folder: gets a file for each cell.
            tell: is told of progress, in lines.

        Returns:
            The rows of all cells.
        """
        rows: list[TrialRow] = []
        for cell in cells:
            path = folder / cell.file_name
            kept = self._finished(path, cell)
            if kept is None:
                kept = self.run_cell(cell)
                write_rows(path, kept)
            tell(f"{path.parent.name}/{path.name}: mean cost {sum(r.cost for r in kept) / len(kept):.3f}")
            rows += kept
        return rows

    def run_cell(self, cell: Cell) -> list[TrialRow]:
        """All trials of one cell."""
        checkpoint, trajectory = cell.strategy.checkpoint, self.trajectory
        durable = replay(self.trainer, trajectory, checkpoint, cell.lag, [f.commit for f in self.failures])
        starts = [recover(self.trainer, trajectory, checkpoint, f, durable[f.commit]) for f in self.failures]
        controls = [control(self.trainer, trajectory, f.commit) for f in self.failures]
        if checkpoint.recovery == "full":  # repeats what the trajectory did, so there is nothing to find out
            reached = controls
        else:
            reached = self._train(starts, controls)
        outcomes = zip(self.failures, starts, controls, reached, strict=True)
        return [self._row(cell, *outcome) for outcome in outcomes]

    def _train(self, starts: Sequence[Recovered], controls: Sequence[Crossing]) -> list[Crossing]:
        """When each meets the criterion. The same state at the same commit is trained once, also over cells."""
        keys = [(s.commit, digest(s.state)) for s in starts]
        runs: dict[_Key, Run] = {}
        for key, start, zero in zip(keys, starts, controls, strict=True):
            if key == (start.commit, digest(self.trajectory.states[start.commit])):
                self._known[key] = zero
            if key not in self._known:
                runs[key] = (start.state, start.commit, zero.interpolated, self._how)
        self._known.update(zip(runs, self._run_all(list(runs.values())), strict=True))
        return [self._known[key] for key in keys]

    def _run_all(self, runs: Sequence[Run]) -> list[Crossing]:
        if self._processes.n == 1:  # of a problem that may have no name
            return [train_to_criterion(self.trainer, *run) for run in runs]
        done = dict(self._processes.map(_trial, ((self.panel, run) for run in runs)))
        return [done[i] for i in range(len(runs))]

    def _row(self, cell: Cell, failure: Failure, start: Recovered, zero: Crossing, reached: Crossing) -> TrialRow:
        spent = start.rework_iters + start.repair_iters
        return TrialRow(
            **self._settings(cell),
            trial=failure.trial,
            failed_at_iter=failure.commit / self.trainer.n_phases,
            n_lost_blocks=failure.n_lost,
            perturbation=start.perturbation,
            perturbation_repaired=start.perturbation_repaired,
            mean_age_iters=start.mean_age_iters,
            rework_iters=start.rework_iters,
            repair_iters=start.repair_iters,
            control=zero.interpolated,
            control_whole=zero.whole,
            cost=spent + reached.interpolated - zero.interpolated,
            cost_whole=spent + reached.whole - zero.whole,
        )

    def _settings(self, cell: Cell) -> dict[str, Any]:
        checkpoint, problem, plan = cell.strategy.checkpoint, self.trainer.problem, self.plan
        return {
            "panel": self.panel.name,
            "model_seed": problem.seed,
            "n_shards": problem.n_shards,
            "criterion": float(problem.criterion),
            "strategy": cell.strategy.name,
            "policy": checkpoint.policy,
            "fraction": str(checkpoint.fraction),
            "interval_iters": checkpoint.interval_iters,
            "recovery": checkpoint.recovery,
            "budget_in": checkpoint.budget_in,
            "rank_by": checkpoint.rank_by,
            "lag_commits": cell.lag,
            "after_phase": plan.after_phase,
            "lost_fraction": str(plan.lost_fraction),
            "failure_seed": plan.seed,
            "rate_per_baseline": plan.rate_per_baseline,
            "n_trials": plan.n_trials,
        }

    def _finished(self, path: Path, cell: Cell) -> list[TrialRow] | None:
        if not path.exists():
            return None
        rows = read_rows(path)
        wanted = self._settings(cell)
        same = all(getattr(row, name) == wanted[name] for row in rows for name in SETTINGS)
        return rows if same and [r.trial for r in rows] == list(range(self.plan.n_trials)) else None


def _trial(panel: Panel, run: Run) -> Crossing:
    return train_to_criterion(trainer_for(panel), *run)

"""Sweeps: the same failures under several strategies. Trial by trial, in parallel, and resumable.

A cell is one strategy at one lag, and a file of rows. What is there is kept when the same sweep is started again, also
with more trials; when a setting differs it is set aside, and the cell is made anew. An interrupt loses the trials under
way only.

Random values are keyed by iteration. So what is done again gives the same states, bit for bit: training that goes on
from a state of the trajectory follows it to the failure, and costs its rework and no more. That is every full recovery,
and no run is needed.

A noisy algorithm goes on from every failure with random values of the trial's own. Its control is the mean of
`CONTROLS` runs from the same state, the first of them with the same random values as the trial. So without a
perturbation the cost is 0, whatever happened on the trajectory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from scarml.core.sequential import State, digest
from scarml.errors import UsageError
from scarml.experiments.failure import Failure, FailurePlan, draw_failures
from scarml.experiments.kept_rows import KeptRows
from scarml.experiments.problem import Panel, Problem, Trainer, trainer_for
from scarml.experiments.processes import Processes
from scarml.experiments.replay import replay
from scarml.experiments.results import TrialRow
from scarml.experiments.strategy import Strategy
from scarml.experiments.trajectory import Crossing, Trajectory, record
from scarml.experiments.trial import Looking, Recovered, control, recover, train_to_criterion

__all__ = ["Cell", "Sweep", "settings_of"]

Tell = Callable[[str], None]
_Key = tuple[int, str, int | None]
Run = tuple[State, int, float, Looking]
"""Arguments of `train_to_criterion`."""
CONTROLS = 4
"""Runs without perturbation that a trial of a noisy algorithm is held against."""


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
        processes: that trials are spread over.
        every_loss: evaluate every loss, to check that leaving some out changes nothing.
        trainer: instead of the panel's own, for problems that have no name; they cannot be trained elsewhere.

    Raises:
        UsageError: if the arguments do not fit together.
    """

    def __init__(
        self,
        panel: Panel,
        plan: FailurePlan,
        *,
        processes: Processes = Processes(),  # noqa: B008  # frozen
        every_loss: bool = False,
        trainer: Trainer | None = None,
    ) -> None:
        if trainer is not None and processes.are_elsewhere:
            raise UsageError("a problem without a name can be trained in this process only; give its panel a name")
        self.panel = panel
        self.plan = plan
        self.trainer = trainer or trainer_for(panel)
        self._every_loss = every_loss
        self._processes = processes
        self._trajectory: Trajectory | None = None
        self._failures: list[Failure] = []
        self._known: dict[_Key, Crossing] = {}
        self._zero: dict[tuple[int, int], Crossing] = {}

    @property
    def trajectory(self) -> Trajectory:
        """Training without failure; recorded when it is first needed."""
        if self._trajectory is None:
            self._trajectory = record(self.trainer, phases=(self.plan.after_phase,))
        return self._trajectory

    @property
    def failures(self) -> list[Failure]:
        """The same for all strategies."""
        if not self._failures:
            self._failures = draw_failures(self.trainer, self.trajectory.n_iters, self.plan)
        return self._failures

    def losing(self, lost_fraction: Fraction) -> Sweep:
        """The same failures with another part of the blocks lost."""
        _ = self.trajectory
        other = copy(self)
        other.plan, other._failures = replace(self.plan, lost_fraction=lost_fraction), []
        return other

    def run(
        self, cells: Iterable[Cell], folder: Path, tell: Tell = lambda _: None, *, compressed: bool = False
    ) -> list[TrialRow]:
        """Run what is not there yet.

        Args:
            cells: which strategies and lags.
            folder: gets a file for each cell.
            tell: is told of progress, in lines.
            compressed: write files with gzip.

        Returns:
            The rows of all cells.

        Raises:
            UsageError: if different strategies have one name.
        """
        rows: list[TrialRow] = []
        for cell in _differently_named(cells):
            path, n_trials = folder / (cell.file_name + ".gz" * compressed), self.plan.n_trials
            kept = KeptRows(path, TrialRow, self._settings(cell))
            self._take_controls(kept.rows)
            for row in self._rows(cell, kept.missing(n_trials)):
                kept.add(row)
            done = kept.finish(n_trials)
            tell(f"{path.parent.name}/{path.name}: mean cost {sum(r.cost for r in done) / len(done):.3f}")
            rows += done
        return rows

    def run_cell(self, cell: Cell) -> list[TrialRow]:
        """All trials of one cell."""
        return sorted(self._rows(cell, range(self.plan.n_trials)), key=lambda row: row.trial)

    def _rows(self, cell: Cell, trials: Sequence[int]) -> Iterator[TrialRow]:
        """As they are done. The same state at the same commit is trained once, also over cells."""
        failures, checkpoint = [self.failures[trial] for trial in trials], cell.strategy.checkpoint
        durable = replay(self.trainer, self.trajectory, checkpoint, cell.lag, [f.commit for f in failures])
        controls, before = self._controls(failures), self.trajectory.states
        waiting: dict[_Key, list[tuple[Failure, Recovered, Crossing]]] = {}
        runs: list[Run] = []
        for failure, zero in zip(failures, controls, strict=True):
            start = recover(self.trainer, before[failure.commit], checkpoint, failure, durable[failure.commit])
            how = self._how(failure, start.commit)
            key = (start.commit, digest(start.state), how.key)
            # From the trajectory it is led to the state that the failure hit, as after any full recovery.
            known = zero if self.trajectory.passes(start.state, start.commit) else self._known.get(key)
            if known is not None:
                yield self._row(cell, failure, start, zero, known)
                continue
            if key not in waiting:
                runs.append((start.state, start.commit, zero.interpolated, how))
            waiting.setdefault(key, []).append((failure, start, zero))
        keys = list(waiting)
        for number, crossing in self._outcomes(runs):
            self._known[keys[number]] = crossing
            for failure, start, zero in waiting[keys[number]]:
                yield self._row(cell, failure, start, zero, crossing)

    def _controls(self, failures: Sequence[Failure]) -> list[Crossing]:
        """When each would meet the criterion with δ = 0."""
        if not self.panel.noisy:
            return [control(self.trainer, self.trajectory, f.commit) for f in failures]
        expected = self.trajectory.crossing.interpolated
        missing = [f for f in failures if (f.trial, f.commit) not in self._zero]
        runs = [
            (self.trajectory.states[f.commit], f.commit, expected, self._how(f, f.commit, again))
            for f in missing
            for again in range(CONTROLS)
        ]
        met: dict[int, list[Crossing]] = {}
        for number, crossing in sorted(self._outcomes(runs), key=lambda outcome: outcome[0]):
            met.setdefault(number // CONTROLS, []).append(crossing)
        for position, failure in enumerate(missing):
            mean = Crossing(*np.mean([(c.interpolated, c.whole) for c in met[position]], axis=0).tolist())
            self._zero[failure.trial, failure.commit] = mean
        return [self._zero[f.trial, f.commit] for f in failures]

    def _take_controls(self, rows: Iterable[TrialRow]) -> None:
        """From rows that are there: they are the same for every strategy."""
        if self.panel.noisy:
            for r in rows:
                commit = round(r.failed_at_iter * self.trainer.n_phases)
                self._zero[r.trial, commit] = Crossing(r.control, r.control_whole)

    def _how(self, failure: Failure, commit: int, again: int = 0) -> Looking:
        """How a run that goes on after ``commit`` is watched."""
        n_smoothed = self.trainer.problem.smoothed_iters
        start = commit // self.trainer.n_phases
        return Looking(
            every_loss=self._every_loss or self.panel.noisy,
            key=failure.trial * CONTROLS + again if self.panel.noisy else None,
            before=tuple(self.trajectory.losses[max(start - n_smoothed + 1, 0) : start].tolist()),
        )

    def _outcomes(self, runs: Sequence[Run]) -> Iterator[tuple[int, Crossing]]:
        """Number and outcome of each run, as they are done."""
        if self._processes.are_elsewhere:
            return self._processes.map(_trial, ((self.panel, run) for run in runs))
        return self._processes.map(train_to_criterion, ((self.trainer, *run) for run in runs))

    def _row(self, cell: Cell, failure: Failure, start: Recovered, zero: Crossing, reached: Crossing) -> TrialRow:
        spent = start.rework_iters + start.repair_iters
        return TrialRow(
            **self._settings(cell),
            n_trials=self.plan.n_trials,
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
            cost=spent + (reached.interpolated - zero.interpolated),
            cost_whole=spent + (reached.whole - zero.whole),
        )

    def _settings(self, cell: Cell) -> dict[str, Any]:
        return settings_of(self.panel, self.trainer.problem, self.plan, cell)


def _differently_named(cells: Iterable[Cell]) -> list[Cell]:
    """These cells; one of two with the same name would take the other's file, and be summarised with it."""
    named: dict[str, Cell] = {}
    found = list(cells)
    for cell in found:
        if named.setdefault(cell.file_name, cell) != cell:
            raise UsageError(
                f"two strategies are called {cell.strategy.name!r}, and differ; give each Strategy, or the policy's "
                "class, a name of its own"
            )
    return found


def settings_of(panel: Panel, problem: Problem, plan: FailurePlan, cell: Cell) -> dict[str, Any]:
    """The columns of `CellSettings` that all rows of a cell share, whenever they were run: all but ``n_trials``."""
    checkpoint = cell.strategy.checkpoint
    return {
        "panel": panel.name,
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
        "encode": checkpoint.encode if isinstance(checkpoint.encode, str) else json.dumps(checkpoint.encode),
        "phase_aware": checkpoint.phase_aware,
        "lag_commits": cell.lag,
        "after_phase": plan.after_phase,
        "lost_fraction": str(plan.lost_fraction),
        "failure_seed": plan.seed,
        "rate_per_baseline": plan.rate_per_baseline,
    }


def _trial(panel: Panel, run: Run) -> Crossing:
    return train_to_criterion(trainer_for(panel), *run)

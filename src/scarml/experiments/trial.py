"""Trials: a failure, a recovery, and training from there to the criterion.

Iteration cost = iterations to the criterion − the control's. The control is the same state with δ = 0, which for a
deterministic algorithm is the trajectory itself. Costs may be negative, and are kept.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scarml.checkpoint.selection import Checkpoint
from scarml.core.block import Ids
from scarml.core.sequential import State
from scarml.errors import UsageError
from scarml.experiments.failure import Failure
from scarml.experiments.problem import Told, Trainer, nobody
from scarml.experiments.replay import Durable
from scarml.experiments.trajectory import Crossing, Trajectory
from scarml.theory.iteration_cost import interpolated_crossing
from scarml.theory.perturbation import perturbation_norm

__all__ = ["LONGEST", "PLAIN", "Looking", "Recovered", "control", "recover", "train_to_criterion"]

WINDOW_ITERS = 4
"""Losses are evaluated for so many iterations after the start, and from so many before the control's crossing."""
LONGEST = 10.0
"""A run that has not met the criterion after so many lengths of the baseline counts as one that never does."""


@dataclass(frozen=True, slots=True)
class Looking:
    """How a run is watched.

    Args:
        every_loss: evaluate every loss: for noisy algorithms, and to check that leaving some out changes nothing.
        stride: later than `WINDOW_ITERS` after the expected crossing, evaluate one loss in so many; not for smoothed
            losses.
        key: of the random values, see `Trainer.start`.
        until: give up after this iteration, and leave the trainer there.
        before: the losses of the iterations before the start, for a criterion about smoothed ones.
        window_iters: how long losses are evaluated after the start.
    """

    every_loss: bool = False
    stride: int = 1
    key: int | None = None
    until: float = math.inf
    before: tuple[float, ...] = ()
    window_iters: int = WINDOW_ITERS


PLAIN = Looking()


@dataclass(frozen=True, slots=True, eq=False)
class Recovered:
    """What training goes on from after a recovery.

    Args:
        state: all blocks.
        commit: training goes on after it; smaller than the failure's after a full recovery.
        rework_iters: iterations that were done and are done again.
        repair_iters: work of the repair, in iterations; 0 without one.
        perturbation: ‖δ‖ = ‖restored − lost‖ on the blocks that were restored.
        perturbation_repaired: the same after the repair.
        mean_age_iters: mean over the lost blocks of how many iterations old the restored value is.
        restored: per table the ids of the blocks that were restored: the lost ones, or all.
    """

    state: State
    commit: int
    rework_iters: float
    repair_iters: float
    perturbation: float
    perturbation_repaired: float
    mean_age_iters: float
    restored: Mapping[str, Ids]


def recover(trainer: Trainer, before: State, checkpoint: Checkpoint, failure: Failure, durable: Durable) -> Recovered:
    """Restore from the durable state: what was lost, or with full recovery everything; and let the model mend it.

    Args:
        trainer: of the problem.
        before: the state that the failure hits.
        checkpoint: says how to recover.
        failure: what is lost, after which commit.
        durable: what the store has.
    """
    full = checkpoint.recovery == "full"
    lost = {t.name: t.all_ids for t in trainer.tables} if full else failure.lost
    state = {name: blocks.copy() for name, blocks in before.items()}
    ages = []
    for name, ids in lost.items():
        ages.append(failure.commit / trainer.n_phases - durable.iterations[name][ids])
        state[name].put(durable.blocks[name].take(ids))
    perturbation = repaired = _moved(trainer, lost, before, state)
    repair_iters = 0.0
    if checkpoint.recovery == "repair":
        trainer.start(state, failure.commit)
        repair_iters = trainer.repair(lost)
        state = trainer.state()
        repaired = _moved(trainer, lost, before, state)
    back_to = min(int(i.min()) for i in durable.iterations.values()) * trainer.n_phases if full else failure.commit
    return Recovered(
        state,
        back_to,
        (failure.commit - back_to) / trainer.n_phases,
        repair_iters,
        perturbation,
        repaired,
        float(np.concatenate(ages).mean()),
        lost,
    )


def _moved(trainer: Trainer, lost: Mapping[str, Ids], before: State, after: State) -> float:
    """‖after − before‖ over the lost blocks."""
    pairs = [(after[name].take(ids), before[name].take(ids)) for name, ids in lost.items()]
    return perturbation_norm(pairs, trainer.problem.model.distance)


def control(trainer: Trainer, trajectory: Trajectory, commit: int) -> Crossing:
    """When the criterion is met from the state after ``commit`` with δ = 0.

    The trajectory's own crossing, except where it falls into an iteration that ``commit`` is in the middle of: then it
    is interpolated from there, as the trials are.
    """
    start = commit / trajectory.n_phases
    if start <= trajectory.n_iters - 1:
        return trajectory.crossing
    trainer.start(trajectory.states[commit], commit)
    at, losses = [start, float(trajectory.n_iters)], [trainer.loss_sum(), float(trajectory.losses[-1])]
    return Crossing(interpolated_crossing(at, losses, trainer.problem.criterion), trajectory.crossing.whole)


def train_to_criterion(
    trainer: Trainer, state: State, commit: int, expected: float, how: Looking = PLAIN, told: Told = nobody
) -> Crossing:
    """Train from the state after ``commit`` until the criterion is met.

    A loss may cost more than an iteration. So it is evaluated for ``how.window_iters`` after the start, where a
    perturbed run may meet the criterion by luck, and again from `WINDOW_ITERS` before ``expected``; where losses are
    smoothed, from so many more that each mean there has all of its losses. Where a loss after a gap turns out to be
    below the criterion, the run goes back to the one before the gap and evaluates them all. So nothing is missed but a
    loss that dips below the criterion within a gap only.

    Args:
        trainer: of the problem.
        state: of which a copy is taken.
        commit: where to go on.
        expected: the control's crossing, in iterations from x(0).
        how: which losses are evaluated, with what random values, and until when.
        told: is called after every commit; again, where the run goes back to look at losses that were left out. A
            run that does ends by meeting the criterion.

    Raises:
        UsageError: if losses are smoothed, and the start is within an iteration or a stride was given.
    """
    n_smoothed = trainer.problem.smoothed_iters
    if n_smoothed > 1 and (how.stride > 1 or commit % trainer.n_phases):
        raise UsageError("a criterion about smoothed losses needs successive ones, from a whole iteration on")
    recent = deque(how.before, maxlen=n_smoothed)  # the losses up to now, without a gap
    criterion, last = trainer.problem.criterion, min(how.until, LONGEST * max(expected, 1.0))
    gaps = _Gaps(commit / trainer.n_phases, expected, how, n_smoothed)
    trainer.start(state, commit, how.key)
    before: tuple[float, float] | None = None  # the last evaluation
    kept: tuple[State, int, deque[float]] | None = None  # what it was of, while losses are left out
    while True:
        if not gaps.leave_out(trainer.iterations):
            recent.append(trainer.loss_sum())
            if len(recent) >= min(n_smoothed, math.floor(trainer.iterations) + 1):
                loss = math.fsum(recent) / len(recent)
                if loss < criterion and trainer.at_boundary:  # only whole iterations meet the criterion
                    if kept is None:
                        return _crossing(before, (trainer.iterations, loss), criterion)
                    gaps.look_until(trainer.iterations)
                    at, its_commit, recent = kept
                    trainer.start(at, its_commit, how.key)
                else:
                    before = (trainer.iterations, loss)
                kept = None
        following = math.floor(trainer.iterations) + 1
        if following > last:
            return Crossing(math.inf, math.inf)
        if gaps.leave_out(following):
            kept = kept or (trainer.state(), trainer.commit, recent.copy())
            recent.clear()
        trainer.next_iteration(told)


@dataclass(slots=True)
class _Gaps:
    """Which losses are left out."""

    start: float
    expected: float
    how: Looking
    n_smoothed: int
    looked_until: float = -1.0

    def look_until(self, iteration: float) -> None:
        """From now on leave out nothing up to there."""
        self.looked_until = iteration

    def leave_out(self, iteration: float) -> bool:
        """Whether the loss of x(iteration) is not evaluated."""
        if self.how.every_loss or iteration <= max(self.start + self.how.window_iters, self.looked_until):
            return False
        if iteration + 1 > self.how.until:  # what is met in the last gap counts, too
            return False
        if iteration < math.ceil(self.expected) - WINDOW_ITERS - (self.n_smoothed - 1):
            return True
        beyond = iteration - (math.ceil(self.expected) + WINDOW_ITERS)
        return beyond > 0 and beyond % self.how.stride != 0


def _crossing(before: tuple[float, float] | None, now: tuple[float, float], criterion: float) -> Crossing:
    """Between the last two evaluations."""
    at, losses = zip(*([before, now] if before else [now]), strict=True)
    return Crossing(interpolated_crossing(at, losses, criterion), now[0])

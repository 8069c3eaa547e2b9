"""Trials: a failure, a recovery, and training from there to the criterion.

Iteration cost = iterations to the criterion − the control's. The control is the same state with δ = 0, which for a
deterministic algorithm is the trajectory itself. Costs may be negative, and are kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scarml.checkpoint.selection import Checkpoint
from scarml.core.block import Ids
from scarml.core.sequential import State
from scarml.experiments.failure import Failure
from scarml.experiments.problem import Trainer
from scarml.experiments.replay import Durable
from scarml.experiments.trajectory import Crossing, Trajectory
from scarml.theory.iteration_cost import interpolated_crossing
from scarml.theory.perturbation import perturbation_norm

__all__ = ["Recovered", "control", "recover", "train_to_criterion"]

WINDOW_ITERS = 4
"""Losses are evaluated for so many iterations after the start, and from so many before the control's crossing."""
LONGEST = 10.0
"""A run that has not met the criterion after so many lengths of the baseline counts as one that never does."""


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
    """

    state: State
    commit: int
    rework_iters: float
    repair_iters: float
    perturbation: float
    perturbation_repaired: float
    mean_age_iters: float


def recover(
    trainer: Trainer, trajectory: Trajectory, checkpoint: Checkpoint, failure: Failure, durable: Durable
) -> Recovered:
    """Restore from the durable state: what was lost, or with full recovery everything; and let the model mend it."""
    before = trajectory.states[failure.commit]
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
    trainer: Trainer, state: State, commit: int, expected: float, every_loss: bool = False
) -> Crossing:
    """Train from the state after ``commit`` until the criterion is met.

    A loss may cost more than an iteration. So it is evaluated for `WINDOW_ITERS` after the start, where a perturbed run
    may meet the criterion by luck, and again from as many iterations before ``expected``. If it is below the criterion
    at the beginning of the second window already, the run is repeated with every loss evaluated. So nothing is missed
    but a loss that dips below the criterion between the windows only.

    Args:
        trainer: of the problem.
        state: of which a copy is taken.
        commit: where to go on.
        expected: the control's crossing, in iterations from x(0).
        every_loss: evaluate every loss.
    """
    found = None if every_loss else _search(trainer, state, commit, expected, math.ceil(expected) - WINDOW_ITERS)
    if found is None:
        found = _search(trainer, state, commit, expected, 0)
    assert found is not None  # every loss was evaluated
    return found


def _search(trainer: Trainer, state: State, commit: int, expected: float, look_from: float) -> Crossing | None:
    """None if the loss is below the criterion, and it is not known since when.

    Only whole iterations meet the criterion. A start between phases serves to interpolate the iteration it is in.
    """
    criterion, last = trainer.problem.criterion, LONGEST * max(expected, 1.0)
    first_window_ends = commit / trainer.n_phases + WINDOW_ITERS
    trainer.start(state, commit)
    at: list[float] = []
    losses: list[float] = []
    skipped = False
    while trainer.iterations <= last:
        if first_window_ends < trainer.iterations < look_from:
            skipped, at, losses = True, [], []
        else:
            at = [*at[-1:], trainer.iterations]
            losses = [*losses[-1:], trainer.loss_sum()]
            if losses[-1] < criterion and trainer.at_boundary:
                if skipped and len(losses) == 1:
                    return None
                return Crossing(interpolated_crossing(at, losses, criterion), trainer.iterations)
        trainer.next_iteration()
    return Crossing(math.inf, math.inf)

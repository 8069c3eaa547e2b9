"""Trajectories: training without failure, recorded once, for all trials and strategies to start from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Blocks
from scarml.core.sequential import State
from scarml.errors import UsageError
from scarml.experiments.problem import Trainer
from scarml.theory.iteration_cost import interpolated_crossing, iterations_to_criterion

__all__ = ["Crossing", "Trajectory", "record"]


@dataclass(frozen=True, slots=True)
class Crossing:
    """When a run met the criterion, in iterations from x(0); infinite if it did not.

    Args:
        interpolated: between two evaluations; see `scarml.theory.iteration_cost.interpolated_crossing`.
        whole: the first whole iteration whose loss is below.
    """

    interpolated: float
    whole: float


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """x(0), x(1), … up to the first state that meets the criterion.

    Args:
        states: one for each commit, so also between the phases of an iteration. A table that a commit does not change
            is not stored again. Do not write into them.
        losses: one for each whole iteration, shape (n_iters + 1,).
        crossing: when the criterion was met.
        n_phases: commits an iteration.
    """

    states: tuple[State, ...]
    losses: NDArray[np.float64]
    crossing: Crossing
    n_phases: int

    @property
    def n_iters(self) -> int:
        """The baseline's length: whole iterations to the criterion."""
        return len(self.losses) - 1


def record(trainer: Trainer, max_iters: int = 10_000) -> Trajectory:
    """Train from x(0) to the criterion.

    Raises:
        UsageError: if the criterion is not met within ``max_iters`` iterations, or x(0) meets it already.
    """
    criterion = trainer.problem.criterion
    trainer.start(trainer.initial, 0)
    states, losses = [trainer.state()], [trainer.loss_sum()]
    while not losses[-1] < criterion:
        if len(losses) > max_iters:
            raise UsageError(f"the loss is {losses[-1]:,.6g} after {max_iters} iterations, not below {criterion:,.6g}")
        for _ in range(trainer.n_phases):
            trainer.next_commit()
            states.append(_shared(states[-1], trainer.state()))
        losses.append(trainer.loss_sum())
    if len(losses) == 1:
        raise UsageError(f"the loss at the start, {losses[0]:,.6g}, is below the criterion of {criterion:,.6g} already")
    crossing = Crossing(
        interpolated_crossing(np.arange(len(losses)), losses, criterion), iterations_to_criterion(losses, criterion)
    )
    return Trajectory(tuple(states), np.array(losses), crossing, trainer.n_phases)


def _shared(before: State, after: State) -> State:
    def kept(old: Blocks, new: Blocks) -> Blocks:
        return new if old.differs_from(new).any() else old

    return {name: kept(before[name], new) for name, new in after.items()}

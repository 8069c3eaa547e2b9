"""Trajectories: training without failure, recorded once, for all trials and strategies to start from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
        states: by commit: all whole iterations, and between their phases what `record` was asked to keep. A table
            that a commit does not change is not stored again. Do not write into them.
        losses: one for each whole iteration, shape (n_iters + 1,), not smoothed.
        crossing: when the criterion was met.
        n_phases: commits an iteration.
    """

    states: Mapping[int, State]
    losses: NDArray[np.float64]
    crossing: Crossing
    n_phases: int

    @property
    def n_iters(self) -> int:
        """The baseline's length: whole iterations to the criterion."""
        return len(self.losses) - 1


def record(trainer: Trainer, max_iters: int = 10_000, phases: Collection[int] | None = None) -> Trajectory:
    """Train from x(0) to the criterion.

    Args:
        trainer: of the problem.
        max_iters: give up after so many iterations.
        phases: after which phases of an iteration failures will strike: between phases only those states are kept.
            None for all, which takes much memory where an iteration has many phases.

    Raises:
        UsageError: if the criterion is not met within ``max_iters`` iterations, or x(0) meets it already.
    """
    criterion = trainer.problem.criterion
    trainer.start(trainer.initial, 0)
    last = trainer.state()
    states, losses = {0: last}, [trainer.loss_sum()]
    smoothed = [losses[0]]
    while not smoothed[-1] < criterion:
        if len(losses) > max_iters:
            raise UsageError(
                f"the loss is {smoothed[-1]:,.6g} after {max_iters} iterations, not below {criterion:,.6g}"
            )
        for _ in range(trainer.n_phases):
            trainer.next_commit()
            if trainer.at_boundary or phases is None or trainer.commit % trainer.n_phases in phases:
                last = states[trainer.commit] = _shared(last, trainer.state())
        losses.append(trainer.loss_sum())
        smoothed.append(float(np.mean(losses[-trainer.problem.smoothed_iters :])))
    if len(losses) == 1:
        raise UsageError(f"the loss at the start, {losses[0]:,.6g}, is below the criterion of {criterion:,.6g} already")
    crossing = Crossing(
        interpolated_crossing(np.arange(len(losses)), smoothed, criterion), iterations_to_criterion(smoothed, criterion)
    )
    return Trajectory(states, np.array(losses), crossing, trainer.n_phases)


def _shared(before: State, after: State) -> State:
    def kept(old: Blocks, new: Blocks) -> Blocks:
        return new if old.differs_from(new).any() else old

    return {name: kept(before[name], new) for name, new in after.items()}

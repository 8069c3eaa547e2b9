"""Baselines of a chosen length: how training goes without perturbations, and how fast it converges.

The criterion is set by the number of iterations that it shall take, midway between two losses. What Theorem 3.2 needs
besides is an optimum x*, the distances from it, and the rate c at which they fall.

Few models know their optimum. Then the state after training for longer stands in for it. With a state that is too near
the distances fall too fast at the end, c comes out too small, and so does the bound; the further on it is, the larger
the distance and the nearer c to 1. For a loss without curvature in some direction no state is far enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scarml.core.sequential import State
from scarml.errors import UsageError
from scarml.experiments.perturbations import distance_between
from scarml.experiments.problem import Trainer
from scarml.experiments.trajectory import Crossing, Trajectory
from scarml.theory.convergence_rate import RateEstimate, rate_from_distances
from scarml.theory.iteration_cost import interpolated_crossing

__all__ = ["Baseline", "record_baseline"]


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """Training without perturbations.

    Args:
        trajectory: up to the criterion.
        criterion: midway between the last loss and the lowest before it.
        optimum: x*, or the state that stands in for it.
        distances: ‖x(k) − x*‖ for k = 0 … n_iters, shape (n_iters + 1,).
    """

    trajectory: Trajectory
    criterion: float
    optimum: State
    distances: NDArray[np.float64]

    def rate(self, from_iter: int | None = None) -> RateEstimate:
        """The rate of convergence up to the criterion.

        Args:
            from_iter: the rate from x(from_iter) on, and the distance of that state as ``start``: what the theorem
                needs when it is applied from there on. None: from x(0) on, leaving out what comes before the rate
                has settled.
        """
        if from_iter is None:
            return rate_from_distances(self.distances)
        return rate_from_distances(self.distances[from_iter:], from_iter=0)


def record_baseline(trainer: Trainer, n_iters: int, reference_iters: int) -> Baseline:
    """Train from x(0) to a criterion, and on to what stands in for the optimum if it is not known.

    Args:
        trainer: of the problem; what its own criterion is does not matter.
        n_iters: how many iterations the criterion shall take; more where the loss goes up and down and x(n_iters) is
            not the lowest so far: up to the first that is.
        reference_iters: x* is the state after so many; without effect where the model knows its optimum.

    Raises:
        UsageError: if no loss in twice as many iterations is the lowest, or the reference comes before the criterion.
    """
    trainer.start(trainer.initial, 0)
    states, losses = [trainer.state()], [trainer.loss_sum()]
    while len(losses) <= n_iters or not losses[-1] < min(losses[:-1]):
        if len(losses) > 2 * n_iters:
            raise UsageError(
                f"no loss from iteration {n_iters} to {2 * n_iters} is the lowest so far; it has converged"
            )
        for _ in range(trainer.n_phases):
            trainer.next_commit()
            states.append(trainer.state())
        losses.append(trainer.loss_sum())
    criterion, n_iters = (losses[-1] + min(losses[:-1])) / 2, len(losses) - 1
    optimum = trainer.problem.optimum
    if optimum is None:
        if reference_iters <= n_iters:
            raise UsageError(f"x({reference_iters}) stands in for the optimum; the criterion alone takes {n_iters}")
        while trainer.iterations < reference_iters:
            trainer.next_iteration()
        optimum = trainer.state()
    crossing = Crossing(interpolated_crossing(np.arange(n_iters + 1), losses, criterion), float(n_iters))
    distances = np.array([distance_between(trainer, x, optimum) for x in states[:: trainer.n_phases]])
    return Baseline(
        Trajectory(dict(enumerate(states)), np.array(losses), crossing, trainer.n_phases), criterion, optimum, distances
    )

"""Trials that are perturbed: at their start, and on the way."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scarml.core.rng import stream
from scarml.core.sequential import State
from scarml.experiments.perturbations import normal
from scarml.experiments.problem import Trainer
from scarml.experiments.trajectory import Crossing
from scarml.experiments.trial import Looking, train_to_criterion

__all__ = ["Later", "Perturbed", "run_perturbed"]


@dataclass(frozen=True, slots=True, eq=False)
class Later:
    """A perturbation that strikes while a trial runs: what it moves every table's values by, on x(at_iter)."""

    at_iter: int
    norm: float
    trial: int


@dataclass(frozen=True, slots=True, eq=False)
class Perturbed:
    """A trial as it is given to a process.

    Args:
        state: what training goes on from.
        commit: after which.
        expected: the control's crossing.
        how: which losses are evaluated, with what random values.
        later: random perturbations that follow, by ascending iteration.
        seed: of those.
        lost_fraction: of the groups, which were reset.
    """

    state: State
    commit: int
    expected: float
    how: Looking
    later: tuple[Later, ...] = ()
    seed: int = 0
    lost_fraction: float = 0.0


def run_perturbed(trainer: Trainer, trial: Perturbed) -> tuple[Crossing, int]:
    """Train to the criterion, perturbed on the way.

    Returns:
        When the criterion was met, and how many of the later perturbations struck before that.
    """
    state, commit = trial.state, trial.commit
    for struck, later in enumerate(trial.later):
        until = replace(trial.how, until=later.at_iter)
        crossing = train_to_criterion(trainer, state, commit, trial.expected, until)
        if np.isfinite(crossing.whole):
            return crossing, struck
        state, commit = _struck(trainer.state(), trial.seed, later), trainer.commit
    return train_to_criterion(trainer, state, commit, trial.expected, trial.how), len(trial.later)


def _struck(state: State, seed: int, later: Later) -> State:
    return normal(state, later.norm, stream(seed, "direction", later.trial, later.at_iter))

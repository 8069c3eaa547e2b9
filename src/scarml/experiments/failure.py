"""Failures to try: on which state, and which blocks are lost. The same for all strategies.

The failure iteration is geometric (section 5.3 of the paper), truncated to the baseline's length: a failure after
convergence costs nothing. Lost are whole groups, uniformly at random over all tables together, which is what Theorem
4.2 assumes. A larger lost fraction loses the blocks of a smaller one, and more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from scarml.core.block import Ids
from scarml.core.rng import stream
from scarml.errors import UsageError
from scarml.experiments.problem import Trainer

__all__ = ["Failure", "FailurePlan", "draw_failures", "groups_of", "lose_groups", "truncated_geometric_mean"]


@dataclass(frozen=True, slots=True)
class FailurePlan:
    """Which failures to draw.

    Args:
        seed: of the failures; the training has its own.
        n_trials: how many.
        lost_fraction: p, of the groups.
        rate_per_baseline: failures that the geometric distribution expects over the baseline's length: its probability
            per iteration is this divided by the length.
        after_phase: strike after so many phases of the next iteration; 0 strikes at iteration boundaries, on x(T).

    Raises:
        UsageError: if an argument is out of range.
    """

    seed: int = 1
    n_trials: int = 30
    lost_fraction: Fraction = Fraction(1, 2)
    rate_per_baseline: float = 2.0
    after_phase: int = 0

    def __post_init__(self) -> None:
        if self.n_trials < 1:
            raise UsageError(f"--trials is {self.n_trials}; expected at least 1")
        if not 0 < self.lost_fraction <= 1:
            raise UsageError(f"the lost fraction is {self.lost_fraction}; expected above 0 and at most 1")
        if not self.rate_per_baseline > 0:
            raise UsageError(f"rate_per_baseline is {self.rate_per_baseline}; expected above 0")
        if self.after_phase < 0:
            raise UsageError(f"after_phase is {self.after_phase}; expected at least 0")

    def probability(self, n_iters: int) -> float:
        """Of a failure in an iteration, for a baseline of ``n_iters``."""
        return min(self.rate_per_baseline / n_iters, 0.999)


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """One loss.

    Args:
        trial: its number.
        commit: the state that is hit, as a commit of the trajectory.
        lost: per table the ids of the lost blocks, ascending; tables that lose nothing are left out.
    """

    trial: int
    commit: int
    lost: Mapping[str, Ids]

    @property
    def n_lost(self) -> int:
        """Lost blocks."""
        return sum(len(ids) for ids in self.lost.values())


def draw_failures(trainer: Trainer, n_iters: int, plan: FailurePlan) -> list[Failure]:
    """The failures of a plan, for a baseline of ``n_iters`` iterations.

    Raises:
        UsageError: if the baseline has no iteration to fail in, or fewer phases than the plan asks for.
    """
    if n_iters < 2 or plan.after_phase >= trainer.n_phases:
        raise UsageError(
            f"no failure after phase {plan.after_phase} fits into {n_iters} iterations of {trainer.n_phases} phase(s)"
        )
    groups = groups_of(trainer)
    failures = []
    for trial in range(plan.n_trials):
        commit = _truncated_geometric(plan, trial, n_iters) * trainer.n_phases + plan.after_phase
        lost = lose_groups(groups, float(plan.lost_fraction), stream(plan.seed, "lost-groups", trial))
        failures.append(Failure(trial, commit, lost))
    return failures


def groups_of(trainer: Trainer) -> dict[str, Ids]:
    """Per table the group of each block, numbered from 0 without gaps."""
    return {t.name: np.unique(trainer.problem.model.groups(t), return_inverse=True)[1] for t in trainer.tables}


def lose_groups(groups: Mapping[str, Ids], fraction: float, rng: np.random.Generator) -> dict[str, Ids]:
    """The blocks of a fraction of all groups, but at least of one, drawn uniformly over all tables together.

    Args:
        groups: as `groups_of` gives them.
        fraction: above 0 and at most 1. With the same random numbers a larger one loses what a smaller one does.
        rng: draws the order in which groups are lost.

    Returns:
        Per table the ids of the lost blocks, ascending; tables that lose nothing are left out.
    """
    sizes = [int(g.max()) + 1 for g in groups.values()]
    n_lost = max(1, round(fraction * sum(sizes)))
    hit = np.zeros(sum(sizes), bool)
    hit[rng.permutation(len(hit))[:n_lost]] = True
    lost = {
        name: np.flatnonzero(mine[groups[name]])
        for name, mine in zip(groups, np.split(hit, np.cumsum(sizes)[:-1]), strict=True)
    }
    return {name: ids for name, ids in lost.items() if len(ids)}


def truncated_geometric_mean(probability: float, last: int) -> float:
    """Mean of a geometric distribution on 1 … ``last``.

    Example:
        >>> truncated_geometric_mean(0.5, 2)
        1.3333333333333333
    """
    k = np.arange(1, last + 1)
    weights = (1 - probability) ** (k - 1.0)
    return float((k * weights).sum() / weights.sum())


def _truncated_geometric(plan: FailurePlan, trial: int, n_iters: int) -> int:
    """On 1 … n_iters − 1, by inverting the distribution function."""
    p, last = plan.probability(n_iters), n_iters - 1
    u = stream(plan.seed, "failure-iteration", trial).random()
    k = math.ceil(math.log1p(-u * -math.expm1(last * math.log1p(-p))) / math.log1p(-p))
    return min(max(k, 1), last)

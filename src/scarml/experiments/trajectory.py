"""Trajectories: training without failure, recorded once, for all trials and strategies to start from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Blocks, Ids
from scarml.core.model import ALL, WholeTable
from scarml.core.sequential import State
from scarml.errors import UsageError
from scarml.experiments.problem import Trainer
from scarml.theory.iteration_cost import interpolated_crossing, iterations_to_criterion

__all__ = ["Crossing", "Trajectory", "Used", "record"]


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
class Used:
    """How often blocks of one table were used: ``n`` in all, one number for all ``ids`` where it is the same."""

    ids: Ids | WholeTable
    n: Ids | int

    @classmethod
    def of(cls, n_uses: Ids, before: Used | None = None) -> Used:
        """From a number for each block; the same object as ``before`` if nothing differs, as is usual."""
        at = np.flatnonzero(n_uses)
        ids = ALL if len(at) == len(n_uses) else at
        n = n_uses[at]
        used = cls(ids, int(n[0]) if len(n) and bool((n == n[0]).all()) else n)
        return before if before is not None and before._is(used) else used

    def _is(self, other: Used) -> bool:
        if isinstance(self.ids, WholeTable) or isinstance(other.ids, WholeTable):
            return self.ids is other.ids and np.array_equal(self.n, other.n)
        return np.array_equal(self.ids, other.ids) and np.array_equal(self.n, other.n)


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """x(0), x(1), … up to the first state that meets the criterion.

    Args:
        states: by commit: all whole iterations, and between their phases what `record` was asked to keep. A table
            that a commit does not change is not stored again. Do not write into them.
        losses: one for each whole iteration, shape (n_iters + 1,), not smoothed.
        crossing: when the criterion was met.
        n_phases: commits an iteration.
        uses: by commit, as the states, and table: how often blocks were used since the commit before that is kept.
            What was used by `BlockCache.use`. Empty where no checkpoint is replayed.
    """

    states: Mapping[int, State]
    losses: NDArray[np.float64]
    crossing: Crossing
    n_phases: int
    uses: Mapping[int, Mapping[str, Used]] = field(default_factory=dict)

    def passes(self, state: State, commit: int) -> bool:
        """Whether training without failure has this state after this commit, bit for bit."""
        there = self.states.get(commit)
        return there is not None and not any(there[name].differs_from(state[name]).any() for name in state)

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
    uses, used = _Uses(), {}
    while not smoothed[-1] < criterion:
        if len(losses) > max_iters:
            raise UsageError(
                f"the loss is {smoothed[-1]:,.6g} after {max_iters} iterations, not below {criterion:,.6g}"
            )
        for _ in range(trainer.n_phases):
            trainer.next_commit()
            uses.add(trainer.uses)
            if trainer.at_boundary or phases is None or trainer.commit % trainer.n_phases in phases:
                last = states[trainer.commit] = _shared(last, trainer.state())
                used[trainer.commit] = uses.taken()
        losses.append(trainer.loss_sum())
        smoothed.append(float(np.mean(losses[-trainer.problem.smoothed_iters :])))
    if len(losses) == 1:
        raise UsageError(f"the loss at the start, {losses[0]:,.6g}, is below the criterion of {criterion:,.6g} already")
    crossing = Crossing(
        interpolated_crossing(np.arange(len(losses)), smoothed, criterion), iterations_to_criterion(smoothed, criterion)
    )
    return Trajectory(states, np.array(losses), crossing, trainer.n_phases, used)


class _Uses:
    """Adds up what commits use, and keeps it small: iteration after iteration it is usually the same."""

    def __init__(self) -> None:
        self._n_uses: dict[str, Ids] = {}
        self._known: dict[tuple[str, int], Used] = {}

    def add(self, of_a_commit: Mapping[str, Ids]) -> None:
        """One more commit."""
        for name, n in of_a_commit.items():
            self._n_uses[name] = self._n_uses[name] + n if name in self._n_uses else n

    def taken(self) -> dict[str, Used]:
        """All since it was last taken."""
        taken = {}
        for name, n in self._n_uses.items():
            key = (name, int(n.sum()))
            taken[name] = self._known[key] = Used.of(n, self._known.get(key))
        self._n_uses = {}
        return taken


def _shared(before: State, after: State) -> State:
    def kept(old: Blocks, new: Blocks) -> Blocks:
        return new if old.differs_from(new).any() else old

    return {name: kept(before[name], new) for name, new in after.items()}

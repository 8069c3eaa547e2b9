"""Runs that are struck again and again, by one failure after the other.

After the first failure training is no longer on the trajectory, so the running checkpoint is replayed live: it is told
of every commit as it is done, and of every recovery. Failures strike at the boundaries of iterations, after
geometric numbers of *performed* iterations: time goes on while lost work is done again, and a run that makes little
progress is struck more often.

A deterministic algorithm whose state is one of the trajectory's goes on along the trajectory, so nothing is trained
before the first failure, nor after full recoveries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, takewhile

from scarml.checkpoint.selection import Checkpoint
from scarml.core.block import Ids
from scarml.core.rng import stream
from scarml.errors import UsageError
from scarml.experiments.failure import Failure, FailurePlan, groups_of, lose_groups
from scarml.experiments.problem import Trainer
from scarml.experiments.replay import ReplayedCheckpoint
from scarml.experiments.trajectory import Crossing, Trajectory, Used
from scarml.experiments.trial import LONGEST, Looking, recover, train_to_criterion

__all__ = ["Strike", "Struck", "draw_strikes", "run_struck"]

_NOT_MET = Crossing(math.inf, math.inf)


@dataclass(frozen=True, slots=True, eq=False)
class Strike:
    """One failure of a run.

    Args:
        at_iter: strikes after so many performed iterations; those done again count again, the work of repairs does
            not.
        lost: per table the ids of the lost blocks, ascending; tables that lose nothing are left out.
    """

    at_iter: int
    lost: Mapping[str, Ids]


@dataclass(frozen=True, slots=True)
class Struck:
    """How a run ended.

    Args:
        performed: iterations until the criterion was met, lost work and repairs included; infinite if the run was given
            up.
        n_failures: that struck before.
        n_lost_blocks: by all of them.
        perturbation: the sum of their ‖δ‖, after repairs.
        rework_iters: performed again after full recoveries.
        repair_iters: work of the repairs.
        given_up_at: the same when it was given up; infinite if it was not.
    """

    performed: Crossing
    n_failures: int
    n_lost_blocks: int
    perturbation: float
    rework_iters: float
    repair_iters: float
    given_up_at: float


def draw_strikes(trainer: Trainer, n_iters: int, plan: FailurePlan, trial: int) -> Iterator[Strike]:
    """The failures of a run, without end.

    Gaps are geometric and at least 1. With the same seed and trial the n-th failure loses the same blocks whatever the
    rate, and strikes the earlier the higher the rate is.

    Args:
        trainer: of the problem.
        n_iters: the baseline's length.
        plan: the seed, how many failures a baseline, and what each loses.
        trial: number of the run.

    Raises:
        UsageError: if the plan strikes between the phases of iterations.
    """
    if plan.after_phase:
        raise UsageError(f"after_phase is {plan.after_phase}; repeated failures strike at boundaries of iterations: 0")
    groups, survives, at_iter = groups_of(trainer), math.log1p(-plan.probability(n_iters)), 0
    for number in count():
        u = stream(plan.seed, "gap-between-failures", trial, number).random()
        at_iter += max(1, math.ceil(math.log1p(-u) / survives))
        rng = stream(plan.seed, "lost-groups", trial, number)
        yield Strike(at_iter, lose_groups(groups, float(plan.lost_fraction), rng))


def run_struck(
    trainer: Trainer, trajectory: Trajectory, checkpoint: Checkpoint, lag: int, strikes: Iterable[Strike]
) -> Struck:
    """Train from x(0) until the criterion is met, struck on the way, or for ten lengths of the baseline.

    Args:
        trainer: of a deterministic problem.
        trajectory: its training without failure, with the states at all boundaries.
        checkpoint: what is saved, and how it recovers.
        lag: commits until a save is durable.
        strikes: by ascending iteration.
    """
    run, longest = _Run(trainer, trajectory, checkpoint, lag), LONGEST * max(trajectory.crossing.interpolated, 1.0)
    for strike in takewhile(lambda s: s.at_iter < longest, strikes):
        if run.trains_until(strike.at_iter):
            return run.outcome()
        run.suffer(strike.lost)
    run.trains_until(longest)
    return run.outcome()


class _Run:
    def __init__(self, trainer: Trainer, trajectory: Trajectory, checkpoint: Checkpoint, lag: int) -> None:
        self._trainer, self._trajectory, self._checkpoint = trainer, trajectory, checkpoint
        self._running = ReplayedCheckpoint(trainer, checkpoint, lag)
        self._state, self._commit = trajectory.states[0], 0
        self._follows = True  # the trajectory
        self._reached = _NOT_MET  # in iterations of x(iteration), which full recoveries take back
        self._rework_iters = self._repair_iters = self._perturbation = 0.0
        self._n_failures = self._n_lost = 0

    @property
    def _spent(self) -> float:
        """Iterations that have brought x(iteration) no further."""
        return self._rework_iters + self._repair_iters

    def trains_until(self, performed: float) -> bool:
        """Until so many iterations have been performed in all. Returns whether the criterion was met before."""
        until = performed - self._rework_iters
        if self._follows:
            self._follow(until)
        else:
            expected, how = self._trajectory.crossing.interpolated, Looking(until=until, window_iters=0)
            given = self._trainer, self._state, self._commit, expected, how
            self._reached = train_to_criterion(*given, told=self._tell)
            self._state, self._commit = self._trainer.state(), self._trainer.commit
        return math.isfinite(self._reached.whole)

    def _follow(self, until: float) -> None:
        states, last = self._trajectory.states, min(math.floor(until), self._trajectory.n_iters)
        for commit in range(self._commit + 1, last * self._trainer.n_phases + 1):
            if commit in states:
                self._running.commit(commit, states[commit], self._trajectory.uses[commit])
                self._state, self._commit = states[commit], commit
        if last == self._trajectory.n_iters:
            self._reached = self._trajectory.crossing

    def _tell(self, trainer: Trainer) -> None:
        uses = {name: Used.of(n_uses) for name, n_uses in trainer.uses.items()}
        self._running.commit(trainer.commit, trainer.state(), uses)

    def suffer(self, lost: Mapping[str, Ids]) -> None:
        """A failure, and the recovery from it."""
        failure = Failure(0, self._commit, lost)
        start = recover(self._trainer, self._state, self._checkpoint, failure, self._running.durable())
        self._running.restored(start.restored)
        self._state, self._commit = start.state, start.commit
        self._follows = self._trajectory.passes(start.state, start.commit)
        self._rework_iters += start.rework_iters
        self._repair_iters += start.repair_iters
        self._perturbation += start.perturbation_repaired
        self._n_failures += 1
        self._n_lost += failure.n_lost

    def outcome(self) -> Struck:
        reached, at = self._reached, self._commit / self._trainer.n_phases
        return Struck(
            Crossing(self._spent + reached.interpolated, self._spent + reached.whole),
            self._n_failures,
            self._n_lost,
            self._perturbation,
            self._rework_iters,
            self._repair_iters,
            math.inf if math.isfinite(reached.whole) else self._spent + at,
        )

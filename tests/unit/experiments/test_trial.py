"""Planted checks: losses whose cost is known beforehand."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.unit.experiments.samples import recorded, trainer_of

from scarml.checkpoint.selection import Checkpoint
from scarml.core.sequential import Sequential
from scarml.errors import UsageError
from scarml.experiments.failure import Failure, FailurePlan, draw_failures
from scarml.experiments.problem import Panel, Trainer
from scarml.experiments.replay import replay
from scarml.experiments.trajectory import Trajectory, record
from scarml.experiments.trial import Looking, Recovered, control, recover, train_to_criterion
from scarml.theory.iteration_cost import full_recovery_cost

FULL = Checkpoint("full", 1, 8, recovery="full")
FULL_PARTIAL = Checkpoint("full", 1, 8)
EXACT = Checkpoint("full", 1, 1)


def everything(trainer: Trainer, commit: int) -> Failure:
    return Failure(0, commit, {t.name: t.all_ids for t in trainer.tables})


def recovered(
    trainer: Trainer, trajectory: Trajectory, checkpoint: Checkpoint, failure: Failure, lag: int
) -> Recovered:
    durable = replay(trainer, trajectory, checkpoint, lag, [failure.commit])[failure.commit]
    return recover(trainer, trajectory.states[failure.commit], checkpoint, failure, durable)


@pytest.mark.parametrize("name", ["qp", "mlr", "mf", "adam"])
def test_trajectory_is_sequential_training(name: str) -> None:
    trainer, trajectory = recorded(name, 12)
    problem = trainer.problem
    plain = Sequential(problem.model, problem.data, seed=problem.seed, n_shards=problem.n_shards)
    for k in range(trajectory.n_iters + 1):
        assert plain.loss_sum() == trajectory.losses[k]
        for table, blocks in trajectory.states[k * trajectory.n_phases].items():
            assert not blocks.differs_from(plain.state[table]).any()
        plain.step()
    assert trajectory.losses[-1] < problem.criterion <= trajectory.losses[:-1].min()
    assert trajectory.n_iters - 1 < trajectory.crossing.interpolated < trajectory.n_iters == trajectory.crossing.whole


def test_trajectory_stores_a_table_once_while_it_does_not_change() -> None:
    trajectory = record(trainer_of("mf", 6))
    assert trajectory.states[3]["R"] is trajectory.states[2]["R"]
    assert trajectory.states[4]["L"] is trajectory.states[3]["L"]
    assert trajectory.states[4]["R"] is not trajectory.states[3]["R"]


@pytest.mark.parametrize("commit", [5, 8, 17, 23])
@pytest.mark.parametrize("name", ["mlr", "mf"])
def test_no_perturbation_no_cost(name: str, commit: int) -> None:
    trainer, trajectory = recorded(name, 20)
    commit = min(commit, max(trajectory.states) - 1)
    if commit % trainer.n_phases == 0:  # everything is lost, and everything was just saved
        start = recovered(trainer, trajectory, EXACT, everything(trainer, commit), 0)
        assert start.perturbation == 0
        assert not any(start.state[n].differs_from(b).any() for n, b in trajectory.states[commit].items())
    zero = control(trainer, trajectory, commit)
    assert train_to_criterion(trainer, trajectory.states[commit], commit, zero.interpolated) == zero


def test_between_phases_of_the_last_iteration_control_and_trial_agree() -> None:
    trainer, trajectory = recorded("mf", 20)
    commit = max(trajectory.states) - 1
    zero = control(trainer, trajectory, commit)
    assert zero.whole == trajectory.n_iters
    assert train_to_criterion(trainer, trajectory.states[commit], commit, zero.interpolated) == zero


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("T", [3, 8, 9, 16, 19])
@pytest.mark.parametrize("name", ["qp", "mlr", "mf"])
def test_full_recovery_costs_exactly_the_rework(name: str, T: int, lag: int) -> None:
    trainer, trajectory = recorded(name, 24)
    T = min(T, trajectory.n_iters - 1)
    failure = Failure(0, T * trainer.n_phases, {trainer.tables[0].name: np.array([0])})
    start = recovered(trainer, trajectory, FULL, failure, lag)
    reached = train_to_criterion(trainer, start.state, start.commit, trajectory.crossing.interpolated)
    assert reached == trajectory.crossing
    assert start.rework_iters == full_recovery_cost(T, 8, lag)


@pytest.mark.parametrize("name", ["qp", "mf"])  # their iterations are all alike; MLR's depend on the batch
def test_losing_everything_with_partial_recovery_is_full_recovery(name: str) -> None:
    trainer, trajectory = recorded(name, 24)
    failure = everything(trainer, 13 * trainer.n_phases)
    whole = recovered(trainer, trajectory, FULL, failure, 0)
    part = recovered(trainer, trajectory, FULL_PARTIAL, failure, 0)
    assert part.perturbation == whole.perturbation > 0
    assert (part.commit, whole.commit) == (13 * trainer.n_phases, 8 * trainer.n_phases)
    reached = train_to_criterion(trainer, part.state, part.commit, trajectory.crossing.interpolated)
    assert reached.whole - trajectory.crossing.whole == 5
    assert reached.interpolated - trajectory.crossing.interpolated == pytest.approx(5, abs=1e-9)


def test_survivors_keep_what_they_have() -> None:
    trainer, trajectory = recorded("mlr", 20)
    lost = np.array([1, 4, 7])
    start = recovered(trainer, trajectory, FULL_PARTIAL, Failure(0, 13, {"W": lost}), 0)
    before, saved = trajectory.states[13]["W"], trajectory.states[8]["W"]
    kept = np.setdiff1d(before.ids, lost)
    assert not start.state["W"].take(kept).differs_from(before.take(kept)).any()
    assert not start.state["W"].take(lost).differs_from(saved.take(lost)).any()
    assert start.perturbation == pytest.approx(np.linalg.norm(before.value[lost] - saved.value[lost]))
    assert start.mean_age_iters == 5


@pytest.mark.parametrize("p", [Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)])
def test_mean_squared_perturbation_is_p_times_that_of_full_recovery(p: Fraction) -> None:
    """Theorem 4.2, over random losses, within four standard errors."""
    trainer, trajectory = recorded("mlr", 20)
    durable = replay(trainer, trajectory, FULL_PARTIAL, 0, [13])[13]
    failures = draw_failures(trainer, 20, FailurePlan(n_trials=600, lost_fraction=p))
    squares = [
        recover(trainer, trajectory.states[13], FULL_PARTIAL, replace(f, commit=13), durable).perturbation ** 2
        for f in failures
    ]
    whole = recover(trainer, trajectory.states[13], FULL_PARTIAL, everything(trainer, 13), durable).perturbation ** 2
    assert np.mean(squares) == pytest.approx(float(p) * whole, abs=4 * np.std(squares) / math.sqrt(len(squares)))


@pytest.mark.parametrize("n_trials", [4, pytest.param(24, marks=pytest.mark.ci)])
@pytest.mark.parametrize("name", ["qp", "mlr", "mf"])
def test_leaving_losses_out_changes_nothing(name: str, n_trials: int) -> None:
    trainer, trajectory = recorded(name, 30)
    for failure in draw_failures(trainer, trajectory.n_iters, FailurePlan(n_trials=n_trials)):
        start = recovered(trainer, trajectory, FULL_PARTIAL, failure, 1)
        run = (trainer, start.state, start.commit, trajectory.crossing.interpolated)
        assert train_to_criterion(*run) == train_to_criterion(*run, Looking(every_loss=True))


def test_criterion_met_before_the_second_window_is_found() -> None:
    trainer, trajectory = recorded("qp", 40)
    ahead = trajectory.states[20]  # as if the perturbation had moved x(2) this far on
    found = train_to_criterion(trainer, ahead, 2, trajectory.crossing.interpolated)
    assert found.whole == trajectory.crossing.whole - 18


def test_run_that_never_meets_the_criterion_has_infinite_cost() -> None:
    trainer = trainer_of("mlr", 20)
    hopeless = Trainer(replace(trainer.problem, criterion=-1.0))
    found = train_to_criterion(hopeless, trainer.initial, 0, 5.0)
    assert (found.interpolated, found.whole) == (math.inf, math.inf)


def test_record_refuses_a_criterion_out_of_reach() -> None:
    trainer = trainer_of("mlr", 20)
    with pytest.raises(UsageError, match="not below"):
        record(Trainer(replace(trainer.problem, criterion=-1.0)), max_iters=5)
    with pytest.raises(UsageError, match="already"):
        record(Trainer(replace(trainer.problem, criterion=1e9)))


def test_panel_knows_the_models_criterion() -> None:
    assert Panel("qp").load().criterion == 0.0017737
    assert Panel("qp", criterion=0.5).load().criterion == 0.5


def smoothed(name: str, n_iters: int, width: int) -> tuple[Trainer, Trajectory]:
    problem = trainer_of(name, n_iters).problem
    trainer = Trainer(replace(problem, smoothed_iters=width))
    return trainer, record(trainer)


def test_a_smoothed_criterion_is_about_the_mean_of_the_last_losses() -> None:
    trainer, trajectory = smoothed("mlr", 20, 4)
    means = [np.mean(trajectory.losses[max(k - 3, 0) : k + 1]) for k in range(trajectory.n_iters + 1)]
    assert means[-1] < trainer.problem.criterion <= min(means[:-1])
    assert trajectory.n_iters > recorded("mlr", 20)[1].n_iters
    start = 10
    how = Looking(every_loss=True, before=tuple(trajectory.losses[start - 3 : start]))
    found = train_to_criterion(trainer, trajectory.states[start], start, trajectory.crossing.interpolated, how)
    assert found.whole == trajectory.crossing.whole
    assert found.interpolated == pytest.approx(trajectory.crossing.interpolated, abs=1e-9)


@pytest.mark.parametrize("n_trials", [4, pytest.param(24, marks=pytest.mark.ci)])
@pytest.mark.parametrize("name", ["qp", "mlr"])
def test_leaving_losses_out_changes_nothing_where_they_are_smoothed(
    name: str, n_trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, trajectory = smoothed(name, 30, 4)
    looked = {True: 0, False: 0}
    every_loss, loss_sum = False, Trainer.loss_sum

    def counted(self: Trainer) -> float:
        looked[every_loss] += 1
        return loss_sum(self)

    monkeypatch.setattr(Trainer, "loss_sum", counted)
    for failure in draw_failures(trainer, trajectory.n_iters, FailurePlan(n_trials=n_trials)):
        start = recovered(trainer, trajectory, FULL_PARTIAL, failure, 1)
        at = start.commit // trainer.n_phases
        before = tuple(trajectory.losses[max(at - 3, 0) : at])
        found = []
        for every_loss in (False, True):
            how = Looking(every_loss=every_loss, before=before)
            run = (trainer, start.state, start.commit, trajectory.crossing.interpolated)
            found.append(train_to_criterion(*run, how))
        assert found[0] == found[1]
    assert looked[False] < looked[True]


def test_smoothed_criterion_met_before_the_second_window_is_found() -> None:
    trainer, trajectory = smoothed("qp", 40, 4)
    ahead, how = trajectory.states[20], Looking(before=tuple(trajectory.losses[:2]))
    run = (trainer, ahead, 2, trajectory.crossing.interpolated)
    assert train_to_criterion(*run, how) == train_to_criterion(*run, replace(how, every_loss=True))


def test_smoothed_losses_must_follow_each_other() -> None:
    trainer, trajectory = smoothed("mlr", 20, 4)
    with pytest.raises(UsageError, match="smoothed"):
        train_to_criterion(trainer, trajectory.states[5], 5, trajectory.crossing.interpolated, Looking(stride=2))

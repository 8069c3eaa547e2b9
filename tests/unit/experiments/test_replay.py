"""The replayed running checkpoint against computations by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.experiments.samples import trainer_of

from scarml.checkpoint.selection import Checkpoint
from scarml.errors import UsageError
from scarml.experiments.problem import Trainer
from scarml.experiments.replay import Durable, replay
from scarml.experiments.trajectory import Trajectory, record


def holds_what_training_had(durable: Durable, trajectory: Trajectory) -> bool:
    """Every durable block is the value of the iteration that it is said to be of."""
    for name, blocks in durable.blocks.items():
        for i in np.unique(durable.iterations[name]):
            ids = np.flatnonzero(durable.iterations[name] == i)
            had = trajectory.states[i * trajectory.n_phases][name].take(ids)
            if blocks.take(ids).differs_from(had).any():
                return False
    return True


@pytest.fixture(scope="module")
def mlr() -> tuple[Trainer, Trajectory]:
    trainer = trainer_of("mlr", 20)  # one table of 12 blocks
    return trainer, record(trainer)


@pytest.mark.parametrize(
    ("lag", "expected"),
    [(0, [5, 5, 5, 2, 2, 2, 3, 3, 3, 4, 4, 4]), (1, [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4])],
)
def test_round_by_hand(mlr: tuple[Trainer, Trajectory], lag: int, expected: list[int]) -> None:
    trainer, trajectory = mlr
    durable = replay(trainer, trajectory, Checkpoint("round", "1/4", 4), lag, [5])[5]
    assert durable.iterations["W"].tolist() == expected
    assert holds_what_training_had(durable, trajectory)


@pytest.mark.parametrize(("lag", "at", "saved"), [(0, 8, 8), (1, 8, 4), (0, 9, 8), (1, 9, 8), (0, 3, 0), (1, 4, 0)])
def test_full_by_hand(mlr: tuple[Trainer, Trajectory], lag: int, at: int, saved: int) -> None:
    trainer, trajectory = mlr
    durable = replay(trainer, trajectory, Checkpoint("full", 1, 4), lag, [at])[at]
    assert set(durable.iterations["W"]) == {saved}
    assert holds_what_training_had(durable, trajectory)


@pytest.mark.parametrize("lag", [0, 1])
def test_priority_by_hand(mlr: tuple[Trainer, Trajectory], lag: int) -> None:
    trainer, trajectory = mlr
    saved = trajectory.states[0]["W"].value.astype(float)
    iteration = np.zeros(12, int)
    last = 7
    for k in range(1, last + 1 - lag):
        now = trajectory.states[k]["W"].value.astype(float)
        moved = np.argsort(-np.linalg.norm(now - saved, axis=1))[:3]
        saved[moved], iteration[moved] = now[moved], k
    durable = replay(trainer, trajectory, Checkpoint("priority", "1/4", 4), lag, [last])[last]
    assert durable.iterations["W"].tolist() == iteration.tolist()
    np.testing.assert_array_equal(durable.blocks["W"].value, saved.astype(np.float32))


def test_between_phases_lag_0_and_1_are_the_same() -> None:
    trainer = trainer_of("mf", 20)
    trajectory = record(trainer)
    checkpoint, at = Checkpoint("full", 1, 1), 2 * 6 + 1
    saved = [replay(trainer, trajectory, checkpoint, lag, [at])[at].iterations["R"][0] for lag in (0, 1, 2)]
    assert saved == [6, 6, 5]


def test_save_that_comes_due_while_one_is_in_flight_is_skipped_and_its_budget_spent_later(
    mlr: tuple[Trainer, Trajectory],
) -> None:
    trainer, trajectory = mlr
    found = replay(trainer, trajectory, Checkpoint("round", "1/4", 4), 3, [3, 4, 7])
    assert found[3].iterations["W"].tolist() == [0] * 12
    assert found[4].iterations["W"].tolist() == [1] * 3 + [0] * 9
    assert found[7].iterations["W"].tolist() == [1] * 3 + [4] * 6 + [0] * 3  # two shares at most


def test_before_the_first_save_there_is_x0(mlr: tuple[Trainer, Trajectory]) -> None:
    trainer, trajectory = mlr
    durable = replay(trainer, trajectory, Checkpoint(), 0, [0])[0]
    assert not durable.blocks["W"].differs_from(trainer.initial["W"]).any()


def test_negative_lag_is_refused(mlr: tuple[Trainer, Trajectory]) -> None:
    with pytest.raises(UsageError, match="lag"):
        replay(*mlr, Checkpoint(), -1, [3])


def test_uses_are_those_of_all_commits_whichever_states_are_kept() -> None:
    trainer = trainer_of("mf", 10)
    every, whole = record(trainer), record(trainer, phases=())
    assert set(every.uses) == set(every.states) - {0}
    assert set(whole.uses) == set(whole.states) - {0} == set(range(2, 2 * whole.n_iters + 1, 2))
    for commit, uses in whole.uses.items():
        assert set(uses) == {"L", "R"}
        assert uses["L"] is whole.uses[2]["L"], "what is the same is kept once"
        assert set(every.uses[commit - 1]) == {"L"}
        for name, kept in (("L", commit - 1), ("R", commit)):
            assert uses[name].ids.tolist() == every.uses[kept][name].ids.tolist()
            assert uses[name].n == every.uses[kept][name].n == 1


def test_uses_of_different_frequencies_by_hand() -> None:
    trainer = trainer_of("sparse", 10)
    trajectory = record(trainer)
    expected = np.zeros(40)
    trainer.start(trainer.initial, 0)
    for commit in range(1, 5):
        trainer.next_commit()
        expected += trainer.uses["E"]
        saved = replay(trainer, trajectory, Checkpoint("mfu", "1/8", 8), 0, [commit])[commit].iterations["E"] == commit
        assert saved.sum() == 5
        assert expected[saved].min() >= expected[~saved].max()
        expected[saved] = 0

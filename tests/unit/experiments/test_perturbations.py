"""Perturbations are of the size and the direction that was asked for, and leave the state as it was."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.experiments.samples import recorded, trainer_of

from scarml.core.rng import stream
from scarml.core.sequential import State
from scarml.errors import UsageError
from scarml.experiments.failure import groups_of, lose_groups
from scarml.experiments.perturbations import away_from, distance_between, normal, reset, rounded, stale_step
from scarml.experiments.problem import Trainer


def mlr() -> tuple[Trainer, State, State]:
    """A trainer, a state half-way, and the last one."""
    trainer, trajectory = recorded("mlr", 20)
    return trainer, trajectory.states[10], trajectory.states[max(trajectory.states)]


def test_normal_has_the_norm_and_no_preferred_direction() -> None:
    trainer, x, _ = mlr()
    before = x["W"].value.copy()
    deltas = []
    for trial in range(200):
        moved = normal(x, 2.5, stream(0, trial))
        assert distance_between(trainer, moved, x) == pytest.approx(2.5, rel=1e-6)
        deltas.append((moved["W"].value - before).ravel())
    assert (x["W"].value == before).all()
    mean = np.mean(deltas, axis=0)  # of unit vectors times 2.5 in d dimensions: 2.5 / sqrt(200) on average
    assert np.linalg.norm(mean) == pytest.approx(2.5 / np.sqrt(200), rel=0.4)
    again = normal(x, 2.5, stream(0, 7))
    assert (again["W"].value.ravel() - before.ravel() == deltas[7]).all()


def test_away_from_the_optimum_adds_its_norm_to_the_distance() -> None:
    trainer, x, goal = mlr()
    moved = away_from(x, goal, 0.75)
    assert distance_between(trainer, moved, x) == pytest.approx(0.75, rel=1e-6)
    assert distance_between(trainer, moved, goal) == pytest.approx(distance_between(trainer, x, goal) + 0.75, rel=1e-6)


def test_reset_sets_back_the_lost_blocks_only() -> None:
    trainer, x, _ = mlr()
    lost = lose_groups(groups_of(trainer), 0.25, stream(0))
    new = reset(x, trainer.initial, lost)
    assert len(lost["W"]) == 3
    kept = np.setdiff1d(x["W"].ids, lost["W"])
    assert (new["W"].value[lost["W"]] == trainer.initial["W"].value[lost["W"]]).all()
    assert (new["W"].value[kept] == x["W"].value[kept]).all()


def test_a_larger_reset_loses_what_a_smaller_one_does() -> None:
    groups = groups_of(trainer_of("mf", 4))
    small, large = (lose_groups(groups, p, stream(0)) for p in (0.3, 0.8))
    assert all(np.isin(ids, large[name]).all() for name, ids in small.items())
    everything = lose_groups(groups, 1.0, stream(0))
    assert sum(map(len, everything.values())) == sum(map(len, groups.values()))
    assert sum(map(len, lose_groups(groups, 1e-9, stream(0)).values())) == 1


@pytest.mark.parametrize("bits", [1, 4, 11, 24])
def test_rounding_is_within_half_a_unit_in_the_last_place(bits: int) -> None:
    _, x, _ = mlr()
    new = rounded(x, bits)["W"].value
    old = x["W"].value
    assert (np.abs(new - old) <= 2.0**-bits * np.abs(old)).all()
    mantissas = np.ldexp(np.frexp(new)[0], bits)
    assert (mantissas == np.rint(mantissas)).all()
    assert (new == old).all() == (bits == 24)  # all that a float32 has


def test_a_step_from_the_present_parameters_is_not_stale() -> None:
    trainer, x, _ = mlr()
    _, trajectory = recorded("mlr", 20)
    np.testing.assert_allclose(
        stale_step(trainer, x, x, 10)["W"].value, trajectory.states[11]["W"].value, rtol=1e-5, atol=1e-6
    )


def test_a_stale_step_takes_the_update_from_the_older_parameters() -> None:
    trainer, x, _ = mlr()
    _, trajectory = recorded("mlr", 20)
    older = trajectory.states[7]
    trainer.start(older, 10)
    trainer.next_iteration()
    update = trainer.state()["W"].value - older["W"].value
    np.testing.assert_allclose(stale_step(trainer, x, older, 10)["W"].value, x["W"].value + update, rtol=1e-6)
    fresh = trajectory.states[11]
    assert distance_between(trainer, stale_step(trainer, x, older, 10), fresh) > 0.001


def test_what_cannot_be_moved_by_a_little_is_refused() -> None:
    trainer = trainer_of("lda", 3)
    topics = {name: trainer.initial[name] for name in ("assignments",)}
    for call in (lambda: normal(topics, 1.0, stream(0)), lambda: rounded(topics, 3)):
        with pytest.raises(UsageError, match="uint8"):
            call()
    _, x, _ = mlr()
    with pytest.raises(UsageError, match="no direction"):
        away_from(x, x, 1.0)
    with pytest.raises(UsageError, match="norm"):
        normal(x, -1.0, stream(0))
    with pytest.raises(UsageError, match="mantissa_bits"):
        rounded(x, 0)
    mf = trainer_of("mf", 3)
    with pytest.raises(UsageError, match="not added"):
        stale_step(mf, mf.initial, mf.initial, 0)

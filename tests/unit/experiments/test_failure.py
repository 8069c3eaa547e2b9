"""Failures drawn from a plan: distribution, uniformity, common random numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.unit.experiments.samples import trainer_of

from scarml.errors import UsageError
from scarml.experiments.failure import FailurePlan, draw_failures, truncated_geometric_mean


def test_iterations_are_geometric_and_truncated_to_the_baseline() -> None:
    trainer, plan = trainer_of("mlr", 5), FailurePlan(n_trials=1500)
    at = np.array([f.commit for f in draw_failures(trainer, 20, plan)])
    assert (at.min(), at.max()) == (1, 19)
    p = plan.probability(20)
    mean = truncated_geometric_mean(p, 19)
    assert at.mean() == pytest.approx(mean, abs=4 * at.std() / np.sqrt(len(at)))
    ones, twos = (at == 1).mean(), (at == 2).mean()
    assert twos / ones == pytest.approx(1 - p, abs=0.3)


def test_every_block_is_lost_equally_often_and_always_the_same_number() -> None:
    trainer = trainer_of("mf", 5)  # 17 + 13 blocks
    failures = draw_failures(trainer, 20, FailurePlan(n_trials=800, lost_fraction=Fraction(1, 2)))
    assert {f.n_lost for f in failures} == {15}
    for table, n in (("L", 17), ("R", 13)):
        share = np.bincount(np.concatenate([f.lost[table] for f in failures]), minlength=n) / 800
        np.testing.assert_allclose(share, 0.5, atol=4 * 0.5 / np.sqrt(800))


def test_groups_are_lost_whole() -> None:
    trainer = trainer_of("adam", 5)
    (table,) = trainer.tables
    groups = trainer.problem.model.groups(table)
    for f in draw_failures(trainer, 5, FailurePlan(n_trials=20)):
        lost = np.isin(table.all_ids, f.lost[table.name])
        assert all(lost[groups == g].all() or not lost[groups == g].any() for g in groups)


def test_larger_fractions_lose_the_same_and_more_at_the_same_iteration() -> None:
    trainer = trainer_of("mlr", 5)
    few, more = (draw_failures(trainer, 20, FailurePlan(lost_fraction=Fraction(n, 4))) for n in (1, 3))
    for a, b in zip(few, more, strict=True):
        assert a.commit == b.commit
        assert np.isin(a.lost["W"], b.lost["W"]).all()


def test_between_phases_is_one_commit_later() -> None:
    trainer = trainer_of("mf", 5)
    at, between = (draw_failures(trainer, 20, FailurePlan(after_phase=k)) for k in (0, 1))
    assert [b.commit - a.commit for a, b in zip(at, between, strict=True)] == [1] * 30


def test_same_seed_same_failures_and_another_seed_others() -> None:
    trainer = trainer_of("mlr", 5)
    a, b, c = (draw_failures(trainer, 20, FailurePlan(seed=s)) for s in (1, 1, 2))
    assert [f.commit for f in a] == [f.commit for f in b] != [f.commit for f in c]
    assert all((x.lost["W"] == y.lost["W"]).all() for x, y in zip(a, b, strict=True))


def test_bad_plans_are_refused() -> None:
    for bad in ({"n_trials": 0}, {"lost_fraction": Fraction(0)}, {"rate_per_baseline": 0.0}, {"after_phase": -1}):
        with pytest.raises(UsageError):
            FailurePlan(**bad)  # type: ignore[arg-type]  # one at a time
    with pytest.raises(UsageError, match="phase"):
        draw_failures(trainer_of("mlr", 5), 20, FailurePlan(after_phase=1))
    with pytest.raises(UsageError, match="1 iterations"):
        draw_failures(trainer_of("mlr", 5), 1, FailurePlan())

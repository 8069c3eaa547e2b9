"""The policy of the how-to: found by import, trained with, measured in the same sweep as SCAR's own, and registered."""

from __future__ import annotations

import importlib
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.unit.experiments.samples import trainer_of

import scarml as scar
from scarml.checkpoint import policy as module
from scarml.checkpoint.policy import Candidates, policy_named
from scarml.errors import UsageError
from scarml.experiments import Cell, FailurePlan, Panel, Sweep, full, partial, summarise
from scarml.testing.tiny_problems import tiny_problem

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "write-your-own-policy.md"
COIN = "my_policies:Coin"


@pytest.fixture(autouse=True)
def _module_of_the_how_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_policies.py").write_text(HOW_TO.read_text().split("```python\n")[1].split("```")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(module, "POLICIES", dict(module.POLICIES))
    monkeypatch.delitem(sys.modules, "my_policies", raising=False)


def test_it_scores() -> None:
    moved = Candidates(np.full(100, 4), np.arange(1.0, 101.0), np.ones(100), np.zeros(100))
    scores = policy_named(COIN).scores(moved, 0, 0, seed=1)
    assert 30 < np.count_nonzero(scores) < 70
    assert set(scores) - {0.0} <= set(np.arange(1.0, 101.0))


def test_it_is_in_the_same_sweep(tmp_path: Path) -> None:
    sweep = Sweep(Panel("tiny-mlr"), FailurePlan(n_trials=6), trainer=trainer_of("mlr", 20))
    cells = [Cell(s, 0) for s in (full(), *(partial(p, Fraction(1, 4), 4) for p in ("priority", COIN)))]
    assert cells[-1].file_name == "coin-1-4-partial.lag-0.csv"
    rows = sweep.run(cells, tmp_path / "results")
    assert {r.policy for r in rows} == {"full", "priority", COIN}
    norm = {c.strategy: c.perturbation for c in summarise(rows)}
    assert norm["priority-1-4-partial"] < norm["coin-1-4-partial"]
    assert sweep.run(cells, tmp_path / "results") == rows


def test_a_job_trains_with_it() -> None:
    result = scar.Job(
        *tiny_problem("mlr"),
        checkpoint=scar.Checkpoint(policy=COIN, fraction="1/4", interval_iters=4),
        stop=scar.Stop(max_iters=8),
        kills=[scar.Kill.parse("servers:1@6")],
        servers=2,
        workers=1,
    ).run()
    assert result.iterations == 8
    (recovery,) = result.recoveries
    assert recovery["perturbation"] > 0


class NoScores:
    name, needs_distances = "x", True


class Taken:
    name, needs_distances, scores = "round", False, None


class NoName:
    name, needs_distances, scores = ("a", "b"), False, None


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (NoScores, "no 'scores'"),
        (Taken, "calls itself 'round'"),
        (NoName, r"has the name \('a', 'b'\); expected text"),
    ],
)
def test_what_is_wrong_with_a_class_is_said(policy: type, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        module.register(policy)


def test_a_class_that_cannot_be_made_is_said() -> None:
    class WithArguments:
        name, needs_distances, scores = "with-arguments", True, None

        def __init__(self, share: float) -> None:
            self.share = share

    module.register(WithArguments)  # type: ignore[type-var]
    with pytest.raises(UsageError, match="'with-arguments' is made without arguments, and making it raised TypeError"):
        scar.Checkpoint(policy="with-arguments")


class Writing:
    name, needs_distances = "writing", True

    def scores(self, candidates: Candidates, n_saves: int, cursor: int, seed: int) -> np.ndarray:
        candidates.distance[:] = 0.0
        return candidates.size_bytes


def test_a_policy_cannot_change_what_it_is_shown() -> None:
    distance = np.arange(3.0)
    candidates = Candidates(np.full(3, 4), distance, np.ones(3), np.zeros(3))
    with pytest.raises(UsageError, match=r"Writing raised ValueError in scores.*read-only"):
        module.scores_of(Writing(), candidates, 0, 0, seed=1)
    distance[0] = 5.0
    assert candidates.distance.tolist() == [5.0, 1.0, 2.0], "of the caller's array, which stays as it was"


def test_names_that_are_known_are_listed() -> None:
    module.register(importlib.import_module("my_policies").Coin)
    with pytest.raises(UsageError, match="choose one of priority, round, random, mfu, ssu, full, coin"):
        scar.Checkpoint(policy="dice")


def test_the_same_class_may_be_registered_again() -> None:
    for _ in range(2):
        module.register(type(policy_named(COIN)))
    assert policy_named("coin").name == "coin"
    assert type(policy_named("coin")) is type(policy_named(COIN))

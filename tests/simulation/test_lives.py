"""Seeded lives of whole clusters: anything fails at any time, and every invariant holds.

See `scarml.engine.simulation`. A failure names its seed; the same seed gives the same life.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from scarml.control.early_stopping import BestSoFar
from scarml.engine.simulation import InvariantError, Life, live
from scarml.testing import tiny_problem

PROBLEMS = ("mlr", "mf", "lda", "adam", "qp")


def lives(seeds: range) -> list[Life]:
    """Live them all; a broken invariant says which seed it was."""
    lived = []
    for seed in seeds:
        problem = PROBLEMS[seed % len(PROBLEMS)]
        try:
            lived.append(live(seed, tiny_problem(problem)))
        except Exception as error:
            raise AssertionError(f"seed {seed}, problem {problem!r}: {error}") from error
    return lived


FAST = [*range(0, 120, 20), *(pytest.param(start, marks=pytest.mark.ci) for start in range(120, 200, 20))]


@pytest.mark.parametrize("start", FAST)
def test_lives(start: int) -> None:
    lived = lives(range(start, start + 20))
    assert all(life.outcome in ("max-iters", "converged") for life in lived)


def test_lives_in_which_blocks_are_used_by_different_frequencies() -> None:
    lived = [live(seed, tiny_problem("sparse")) for seed in range(10)]
    assert sum(life.checks["invariant 6"] for life in lived) > 100


@pytest.mark.ci
@pytest.mark.parametrize("start", range(1_000, 3_000, 250))
def test_more_lives(start: int) -> None:
    lived = lives(range(start, start + 250))
    faults = sum((life.faults for life in lived), Counter())
    checks = sum((life.checks for life in lived), Counter())
    assert len(faults) >= 12, "every kind of fault has struck"
    assert all(checks[f"invariant {i}"] for i in (1, 2, 3, 4, 5)), "every invariant was checked"


def test_the_same_seed_gives_the_same_life() -> None:
    first, second = live(7, tiny_problem("lda")), live(7, tiny_problem("lda"))
    other = live(8, tiny_problem("lda"))
    assert first.trace == second.trace
    assert first.faults == second.faults
    assert first.trace != other.trace


def lives_with_metrics(seeds: range) -> Counter[str]:
    """Lives in which held-out metrics are evaluated and early stopping keeps count; how often that was checked."""
    checks: Counter[str] = Counter()
    for seed in seeds:
        problem = tiny_problem(("mlr", "mf", "lda")[seed % 3])
        checks += live(seed, problem, held_out=problem[1]).checks
    return checks


def test_metrics_are_those_of_a_sequential_run_and_early_stopping_never_loses_count() -> None:
    assert lives_with_metrics(range(9))["invariant 9"] > 25


@pytest.mark.ci
@pytest.mark.parametrize("start", range(1_000, 1_090, 45))
def test_metrics_in_more_lives(start: int) -> None:
    assert lives_with_metrics(range(start, start + 45))["invariant 9"] > 150


@pytest.mark.parametrize(
    ("broken", "seeds"),
    [
        (lambda stored: None, range(40, 60)),
        (lambda stored: stored and BestSoFar(stored["metric"], n_since=stored["n_since"] + 1), range(40, 60)),
    ],
)
def test_a_count_that_a_start_gets_wrong_is_noticed(broken: Any, seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BestSoFar, "from_json", broken)
    with pytest.raises(InvariantError, match="early stopping knows"):
        lives_with_metrics(seeds)

"""Early stopping: a pure rule, and its state through saves, resumes, losses and full recoveries."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.control.early_stopping import BestSoFar, EarlyStopping
from scarml.core.metric import Metric

RMSE = Metric("rmse", of_mean="root")
VALUES = st.lists(st.floats(allow_nan=True, allow_infinity=True, width=16), max_size=12)


def after(values: list[float], rule: EarlyStopping) -> EarlyStopping:
    for iteration, value in enumerate(values):
        rule.observe(iteration, value)
    return rule


def test_patience_counts_evaluations_without_a_better_value() -> None:
    rule = after([3.0, 2.0, 2.0, 2.5], EarlyStopping(RMSE, patience=3))
    assert [rule.known_at(k).n_since for k in range(4)] == [0, 0, 1, 2]
    assert rule.verdict(3) is None
    rule.observe(4, 2.0)
    assert rule.verdict(4) == "rmse was no better in 3 evaluations: the best was 2 on x(1)"
    rule.observe(5, 1.0)
    assert rule.known_at(5) == BestSoFar("rmse", 5, 1.0, 5, 0)
    assert rule.verdict(5) is None


def test_higher_may_be_better() -> None:
    rule = after([0.5, 0.6, 0.4], EarlyStopping(Metric("accuracy", higher_is_better=True), patience=1))
    assert rule.known_at(2) == BestSoFar("accuracy", 2, 0.6, 1, 1)
    assert rule.verdict(2) == "accuracy was no better in 1 evaluation: the best was 0.6 on x(1)"


def test_small_steps_do_not_count_but_add_up() -> None:
    rule = after([1.0, 0.95, 0.9, 0.85], EarlyStopping(RMSE, patience=9, min_delta=0.1))
    assert [rule.known_at(k).best for k in range(4)] == [1.0, 1.0, 1.0, 0.85]
    assert [rule.known_at(k).n_since for k in range(4)] == [0, 1, 2, 0]


def test_what_is_not_finite_is_never_better() -> None:
    rule = after([math.nan, math.inf, 5.0, math.nan, -math.inf], EarlyStopping(RMSE, patience=2))
    assert [rule.known_at(k).n_since for k in range(5)] == [1, 2, 0, 1, 2]
    assert rule.verdict(1) == "rmse was no better in 2 evaluations: none was finite"
    assert rule.known_at(4).best == 5.0


@given(VALUES, st.data())
def test_stopping_and_going_on_from_any_save_changes_nothing(values: list[float], data: st.DataObject) -> None:
    """The state goes on from what a save of x(k) took with it; x(k) itself is evaluated again."""
    straight = after(values, EarlyStopping(RMSE, patience=3, min_delta=0.5))
    at = data.draw(st.integers(0, len(values)))
    stored = json.dumps(straight.known_before(at).to_extra(), allow_nan=False)
    resumed = EarlyStopping(RMSE, patience=3, min_delta=0.5)
    resumed.resume(BestSoFar.from_extra(json.loads(stored)))
    for iteration in range(at, len(values)):
        resumed.observe(iteration, values[iteration])
        assert resumed.known_at(iteration) == straight.known_at(iteration)
        assert resumed.verdict(iteration) == straight.verdict(iteration)


@given(VALUES, st.data())
def test_going_back_forgets_what_was_given_up(values: list[float], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(values)))
    rule = after([*values[:at], *([-1e3] * 3)], EarlyStopping(RMSE, patience=3))
    for iteration in range(at, len(values)):
        rule.observe(iteration, values[iteration])
        assert rule.known_at(iteration) == after(values[: iteration + 1], EarlyStopping(RMSE, 3)).known_at(iteration)


def test_what_another_metric_knew_is_nothing() -> None:
    rule = EarlyStopping(RMSE, patience=1)
    rule.resume(BestSoFar("accuracy", 4, 0.9, 0, 4))
    assert rule.known_before(5) == BestSoFar("rmse")
    rule.resume(None)
    assert rule.verdict(9) is None


@pytest.mark.parametrize(
    "stored",
    [
        None,
        [],
        {},
        {"metric": "rmse", "iteration": 1, "best": "1", "best_iteration": 0, "n_since": 1},
        {"metric": "rmse", "iteration": 1, "best": math.nan, "best_iteration": 0, "n_since": 1},
        {"metric": "rmse", "iteration": 1, "best": 1.0, "best_iteration": 0, "n_since": -1},
    ],
)
def test_what_is_none_of_ours_is_not_taken(stored: object) -> None:
    assert BestSoFar.from_json(stored) is None

"""Iteration cost by hand, and its bound where it is met with equality."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.errors import UsageError
from scarml.theory.iteration_cost import (
    discounted_sum,
    full_recovery_cost,
    interpolated_crossing,
    iteration_cost_bound,
    iterations_to_criterion,
    perturbation_cost_bound,
)


def test_first_loss_below_counts_and_an_equal_one_does_not() -> None:
    assert iterations_to_criterion([5, 4, 3, 4, 2], 3.5) == 2
    assert iterations_to_criterion([5, 4, 3], 3.0) == math.inf
    assert iterations_to_criterion([1.0], 3.0) == 0
    assert iterations_to_criterion([math.nan, math.inf, 1.0], 3.0) == 2


def test_crossing_by_hand() -> None:
    assert interpolated_crossing([0, 1, 2], [10, 6, 2], 3.0) == 1.75
    assert interpolated_crossing([7.5, 8, 9], [10, 6, 2], 8.0) == 7.75
    assert interpolated_crossing([3, 4], [2, 1], 5.0) == 3
    assert interpolated_crossing([0, 1], [5, 4], 3.0) == math.inf
    assert interpolated_crossing([0, 1, 2], [5, math.inf, 1], 3.0) == 2


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=12), st.floats(-40, 40), st.floats(0.1, 10), st.floats(-9, 9))
def test_crossing_does_not_depend_on_the_unit_of_the_loss(
    losses: list[float], criterion: float, scale: float, shift: float
) -> None:
    at, y = np.arange(len(losses)), np.round(losses, 3)
    level = round(criterion, 3) + 0.0005  # no loss meets it exactly
    here = interpolated_crossing(at, y, level)
    there = interpolated_crossing(at, scale * y + shift, scale * level + shift)
    assert here == there or here == pytest.approx(there, abs=1e-6)
    whole = iterations_to_criterion(y, level)
    assert here <= whole
    assert whole == 0 or math.isinf(whole) or whole - 1 <= here


def test_crossing_refuses_what_is_no_curve() -> None:
    for at, losses in (([0, 1], [1.0]), ([1, 0], [2.0, 1.0])):
        with pytest.raises(UsageError, match="ascending"):
            interpolated_crossing(at, losses, 0.5)


def test_full_recovery_goes_back_to_the_last_complete_save() -> None:
    T = np.arange(1, 18)
    assert full_recovery_cost(T, 8).tolist() == [*range(1, 8), *range(8), 0, 1]
    assert full_recovery_cost(T, 8, lag=1).tolist() == [*range(1, 9), *range(1, 9), 1]


@pytest.mark.parametrize(("T", "C", "lag"), [(0, 8, 0), (1.5, 8, 0), (3, 0, 0), (3, 8, 2)])
def test_full_recovery_cost_refuses(T: float, C: int, lag: int) -> None:
    with pytest.raises(UsageError):
        full_recovery_cost(T, C, lag)


@given(st.floats(0.05, 0.95), st.floats(0.1, 100), st.integers(0, 30), st.floats(0, 50), st.floats(1e-6, 1e-3))
def test_bound_is_met_with_equality_by_a_push_straight_away_from_the_optimum(
    c: float, start: float, T: int, size: float, eps: float
) -> None:
    def crossing(distance: float, k: int) -> float:  # cʲ distance = eps, for real j
        return k + math.log(distance / eps) / math.log(1 / c)

    at_T = start * c**T
    cost = crossing(at_T + size, T) - crossing(at_T, T)
    assert iteration_cost_bound(size * c**-T, start, c) == pytest.approx(cost, rel=1e-6, abs=1e-9)


def test_bound_is_array_friendly_and_zero_without_perturbation() -> None:
    bound = iteration_cost_bound(np.array([0.0, 1.0, 3.0]), 1.0, 0.5)
    assert bound.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("delta_sum", "start", "c", "named"),
    [
        (-1, 1, 0.5, "delta_sum"),
        (math.nan, 1, 0.5, "delta_sum"),
        (1, 0, 0.5, "x0_distance"),
        (1, 1, 1, "c must"),
        (1, 1, 0, "c must"),
    ],
)
def test_bound_names_the_assumption_that_fails(delta_sum: float, start: float, c: float, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        iteration_cost_bound(delta_sum, start, c)


def test_discounted_sum_by_hand_and_along_the_last_axis() -> None:
    assert discounted_sum([2.0, 1.0], [0, 3], 0.5) == pytest.approx(2 + 8)
    sums = discounted_sum(np.ones((2, 3)), [0, 1, 2], [0.5, 0.1])
    assert sums == pytest.approx([7, 111])
    assert discounted_sum([], [], 0.5) == 0
    assert discounted_sum([1.0], [5000], 0.5) == math.inf


def test_bound_of_perturbations_is_the_bound_of_their_sum_and_survives_late_ones() -> None:
    norms, at = np.array([2.0, 0.0, 0.1]), np.array([3, 5, 40])
    expected = iteration_cost_bound(discounted_sum(norms, at, 0.9), 7.0, 0.9)
    assert perturbation_cost_bound(norms, at, 7.0, 0.9) == pytest.approx(expected)
    assert perturbation_cost_bound([0.0], [3], 1.0, 0.9) == 0
    assert perturbation_cost_bound([1.0], [10**6], 1.0, 0.5) == pytest.approx(10**6)
    assert perturbation_cost_bound([[1.0], [3.0]], [0], [1.0, 1.0], 0.5) == pytest.approx([1.0, 2.0])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (([-1.0], [0], 1.0, 0.5), "norms"),
        (([1.0], [-1], 1.0, 0.5), "at_iters"),
        (([1.0], [0], 0.0, 0.5), "x0_distance"),
    ],
)
def test_bound_of_perturbations_names_what_is_wrong(arguments: tuple[Any, ...], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        perturbation_cost_bound(*arguments)


def test_a_run_that_begins_faster_exceeds_the_bound_from_its_start_and_not_the_one_from_x_of_t() -> None:
    """Of two directions one dies out at once; from T on the run is as if it had started at 1/√2 of its distance."""
    c, T, size = 0.9, 30, 0.5
    start, slow = 1.0, math.sqrt(0.5)
    at_T = slow * c**T
    cost = math.log((at_T + size) / at_T) / math.log(1 / c)  # δ along the slow direction
    assert cost - iteration_cost_bound(size * c**-T, start, c) == pytest.approx(
        math.log(2) / 2 / math.log(1 / c), rel=0.1
    )
    assert cost == pytest.approx(float(perturbation_cost_bound([size], [0], at_T, c)))
    assert cost == pytest.approx(float(perturbation_cost_bound([size], [T], slow, c)))

"""Perturbations in every iteration, where the bound is met with equality; and rounding, as it really happens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from scarml.errors import UsageError
from scarml.theory.every_iteration import (
    every_iteration_cost_bound,
    every_iteration_distance_bound,
    irreducible_error,
)
from scarml.theory.precision import MANTISSA_BITS, precision_cost_bound, precision_error, rounding_unit


def test_equal_pushes_away_from_the_optimum_meet_the_bound_and_leave_the_irreducible_error() -> None:
    c, delta, y = 0.8, 0.3, 5.0
    distances = [y]
    for _ in range(200):
        y = c * (y + delta)
        distances.append(y)
    assert every_iteration_distance_bound(np.arange(201), delta, 5.0, c) == pytest.approx(np.array(distances))
    assert y == pytest.approx(float(irreducible_error(delta, c)))


def test_cost_is_met_with_equality_between_whole_iterations() -> None:
    c, delta, start, eps = 0.8, 0.3, 5.0, 1.5
    e = float(irreducible_error(delta, c))
    perturbed = math.log((start - e) / (eps - e)) / math.log(1 / c)
    assert every_iteration_distance_bound(perturbed, delta, start, c) == pytest.approx(eps)
    cost = every_iteration_cost_bound(delta, eps, start, c)
    assert cost == pytest.approx(perturbed - math.log(start / eps) / math.log(1 / c))


def test_cost_vanishes_with_the_perturbation_and_has_no_limit_at_the_irreducible_error() -> None:
    assert every_iteration_cost_bound(0.0, 0.1, 1.0, 0.9) == 0
    e = float(irreducible_error(0.01, 0.9))
    costs = every_iteration_cost_bound(0.01, e * np.array([4, 2, 1.1, 1.001, 1 + 1e-9]), 1.0, 0.9)
    assert (np.diff(costs) > 0).all()
    assert costs[-1] > 150


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0.1, 0.9, 10.0, 0.9), "irreducible"),
        ((0.1, 11.0, 10.0, 0.9), "nothing to train"),
        ((-0.1, 1.0, 10.0, 0.9), "delta is a norm"),
        ((0.1, 1.0, 10.0, 1.0), "c must"),
        ((0.1, 1.0, 0.0, 0.5), "x0_distance"),
    ],
)
def test_domain_of_validity(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        every_iteration_cost_bound(*arguments)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rounding_stays_within_the_bound_and_the_cost_too(dtype: str) -> None:
    c = 0.9
    rng = np.random.default_rng(7)
    optimum = rng.normal(0, 1, 50)
    start = optimum + rng.normal(0, 3, 50)
    x0, optimum_norm = float(np.linalg.norm(start - optimum)), float(np.linalg.norm(optimum))
    y, distances = start, []
    for _ in range(300):
        distances.append(float(np.linalg.norm(y - optimum)))
        rounded = y.astype(dtype).astype(float)
        assert np.linalg.norm(rounded - y) <= rounding_unit(MANTISSA_BITS[dtype]) * np.linalg.norm(y)
        y = optimum + c * (rounded - optimum)
    assert distances[-1] <= precision_error(MANTISSA_BITS[dtype], optimum_norm, c) * 1.001
    eps = 2 * float(precision_error(MANTISSA_BITS[dtype], optimum_norm, c))
    whole = next(k for k, d in enumerate(distances) if d < eps)
    cost = precision_cost_bound(MANTISSA_BITS[dtype], optimum_norm, eps, x0, c)
    assert whole - math.ceil(math.log(x0 / eps) / math.log(1 / c)) <= cost + 1


def test_chopping_is_twice_as_coarse_and_more_bits_cost_less() -> None:
    assert rounding_unit(11, "chop") == 2 * rounding_unit(11)
    costs = precision_cost_bound(np.array([11, 24, 53]), 1.0, 0.01, 10.0, 0.9)
    assert (np.diff(costs) < 0).all()
    assert costs[-1] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((1, 1.0, 0.9), "more bits"), ((0, 1.0, 0.5), "mantissa_bits"), ((8, -1.0, 0.5), "optimum_norm")],
)
def test_too_few_bits_are_refused(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        precision_error(*arguments)


def test_unknown_rounding_is_refused() -> None:
    with pytest.raises(UsageError, match="nearest"):
        rounding_unit(8, "up")  # type: ignore[arg-type]

"""c and ‖x(0) − x*‖ from runs whose true values are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from scarml.errors import UsageError
from scarml.models.qp import QP
from scarml.theory.convergence_rate import (
    RateEstimate,
    rate_from_distances,
    rate_from_losses,
    rate_from_steps,
    start_distance,
)


def qp_run(model: QP, n_iters: int) -> NDArray[np.float64]:
    """x(0), x(1), …, less x*, shape (n_iters + 1, 4)."""
    errors = [model.init(model.tables(None)[0], np.arange(4), 3)["value"] - model.optimum]
    for _ in range(n_iters):
        errors.append(errors[-1] - model.step_size * (model.hessian @ errors[-1]))
    return np.array(errors)


def correlated(rng: np.random.Generator, n: int, rho: float, size: float) -> NDArray[np.float64]:
    noise = rng.normal(0, size, n)
    for i in range(1, n):
        noise[i] = rho * noise[i - 1] + math.sqrt(1 - rho**2) * noise[i]
    return noise


@pytest.mark.parametrize("condition", [5.0, 20.0, 100.0])
def test_rate_of_gradient_descent_on_a_quadratic_is_found_in_all_three_ways(condition: float) -> None:
    model = QP(condition=condition)
    n = round(12 / math.log(1 / model.rate))
    errors = qp_run(model, n)
    distances = np.linalg.norm(errors, axis=1)
    losses = 7 + 0.5 * np.einsum("ki,ij,kj->k", errors, model.hessian, errors)
    found = [
        rate_from_distances(distances),
        rate_from_steps(np.linalg.norm(np.diff(errors, axis=0), axis=1)),
        rate_from_losses(losses),
    ]
    for estimate in found:
        assert estimate.is_linear, estimate
        assert math.log(estimate.c) == pytest.approx(math.log(model.rate), rel=0.01)
        assert estimate.c_low <= estimate.c <= estimate.c_high < 1
    assert found[2].limit == pytest.approx(7, abs=0.01)
    # In its two slowest directions, half of its squared distance, the run goes on as if it had started at 10/√2.
    for estimate in found[:2]:
        assert estimate.start_low * 0.99 <= 10 / math.sqrt(2) <= estimate.start_high * 1.01


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_sublinear_convergence_is_called_what_it_is(power: float) -> None:
    k = np.arange(1.0, 301.0)
    for found in (rate_from_distances(k**-power), rate_from_losses(2 + k**-power), rate_from_steps(k ** -(power + 1))):
        assert not found.is_linear
        assert "slower" in str(found.problem)


def test_what_speeds_up_is_not_linear_either() -> None:
    k = np.arange(60.0)
    assert "faster" in str(rate_from_distances(np.exp(-0.002 * k**2)).problem)
    assert "faster and faster" in str(rate_from_losses(100 - 0.01 * k**3).problem)


def test_a_loss_on_a_straight_line_does_not_say_where_it_ends() -> None:
    assert "straight line" in str(rate_from_losses(100.0 - np.arange(30)).problem)


@pytest.mark.ci
@pytest.mark.parametrize(("n", "rho", "least"), [(60, 0.0, 0.88), (200, 0.0, 0.85), (200, 0.9, 0.75)])
def test_intervals_hold_the_true_rate_about_as_often_as_they_say(n: int, rho: float, least: float) -> None:
    rng, c, k = np.random.default_rng(5), 0.96, np.arange(n)
    held, linear = np.zeros(2), np.zeros(2)
    for _ in range(100):
        estimates = (
            rate_from_distances(3 * c**k * np.exp(correlated(rng, n, rho, 0.1))),
            rate_from_losses(1 + c ** (2 * k) + correlated(rng, n, rho, 0.01)),
        )
        held += [e.c_low <= c <= e.c_high for e in estimates]
        linear += [e.is_linear for e in estimates]
    assert (held / 100 >= least).all(), held / 100
    assert (linear / 100 >= 0.95).all(), linear / 100


def test_wider_confidence_is_a_wider_interval_around_the_same_estimate() -> None:
    rng = np.random.default_rng(1)
    distances = 0.9 ** np.arange(40) * np.exp(rng.normal(0, 0.1, 40))
    narrow, wide = (rate_from_distances(distances, confidence=q) for q in (0.5, 0.99))
    assert narrow.c == wide.c
    assert wide.c_low < narrow.c_low < narrow.c_high < wide.c_high
    assert wide.start_low < narrow.start_low < narrow.start < narrow.start_high < wide.start_high


def test_units_and_sparse_evaluations_change_nothing_but_the_unit() -> None:
    rng = np.random.default_rng(2)
    at = np.arange(0, 120, 3)
    losses = 0.95 ** (2 * at) + rng.normal(0, 0.005, len(at))
    here, there = rate_from_losses(losses, at), rate_from_losses(1e4 * losses - 77, at)
    assert here.c == pytest.approx(there.c, rel=1e-6)
    assert there.start == pytest.approx(1e4 * here.start, rel=1e-5)
    assert here.c_low < 0.95 < here.c_high


def test_a_start_can_be_given() -> None:
    distances = np.concatenate([np.full(20, 50.0), 50 * 0.8 ** np.arange(1, 31)])
    found = rate_from_distances(distances, from_iter=20)
    assert (found.from_iter, found.c) == (20, pytest.approx(0.8))


def test_what_is_only_rounding_is_left_out() -> None:
    floor = 1e-15 * np.random.default_rng(0).uniform(1, 2, 200)
    found = rate_from_distances(np.maximum(0.5 ** np.arange(200), floor))
    assert found.c == pytest.approx(0.5)
    assert found.to_iter < 45


def test_a_loss_that_has_reached_its_noise_still_shows_how_it_got_there() -> None:
    rng = np.random.default_rng(4)
    found: RateEstimate = rate_from_losses(5 + 0.81 ** np.arange(400) + rng.normal(0, 1e-3, 400))
    assert found.c_low <= 0.9 <= found.c_high
    assert found.c_high - found.c_low < 0.02


def test_the_start_lies_in_its_interval() -> None:
    errors = qp_run(QP(), 40)
    moved, last = np.linalg.norm(errors[-1] - errors[0]), np.linalg.norm(errors[-1] - errors[-2])
    low, high = start_distance(moved, last, QP().rate)
    assert low <= 10 <= high
    assert high - low < 4


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: rate_from_distances([3.0, 2.0, 1.0]), "at least 8"),
        (lambda: rate_from_distances([*range(20, 0, -1), math.nan]), "finite"),
        (lambda: rate_from_distances([-1.0] * 9), "at least 0"),
        (lambda: rate_from_distances(np.arange(1.0, 20.0)), "no nearer"),
        (lambda: rate_from_distances([1.0, *[0.0] * 9]), "rounding"),
        (lambda: rate_from_distances(np.ones(9), np.zeros(9)), "ascending"),
        (lambda: rate_from_distances(0.5 ** np.arange(9), from_iter=5), "4 values"),
        (lambda: rate_from_steps(0.5 ** np.arange(9), confidence=95), "0.95"),
        (lambda: rate_from_losses(np.arange(9.0)), "do not fall"),
        (lambda: rate_from_losses(-np.arange(9.0), power=0), "power"),
        (lambda: start_distance(1, -1, 0.5), "last_step is a norm"),
        (lambda: start_distance(1, 1, 1), "c must"),
    ],
)
def test_what_cannot_be_estimated_is_refused(call: object, said: str) -> None:
    assert callable(call)
    with pytest.raises(UsageError, match=said):
        call()

"""The bound for SGD: against Theorem 3.2 in its limit, and against SGD whose moments are known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from scarml.errors import UsageError
from scarml.theory.iteration_cost import perturbation_cost_bound
from scarml.theory.sgd import contraction, harmonic_steps, sgd_cost_bound, sgd_distances


def constant(alpha: float) -> Any:
    return lambda k: np.full(k.shape, alpha)


@pytest.mark.parametrize("eps", [1e-3, 1e-6])
def test_constant_steps_without_noise_are_theorem_3_2(eps: float) -> None:
    c, norms, at = 0.9, [2.0, 0.5, 1.0], [0, 7, 30]
    found = sgd_cost_bound(constant(1 - c**2), norms, at, eps=eps, x0_distance=10.0, gradient_norm=0.0)
    assert found == pytest.approx(float(perturbation_cost_bound(norms, at, 10.0, c)))


def test_no_perturbation_costs_nothing_and_more_costs_more() -> None:
    settings: dict[str, Any] = {"eps": 0.05, "x0_distance": 5.0, "gradient_norm": 1.0}
    costs = [sgd_cost_bound(harmonic_steps(2.0), [d], [50], **settings) for d in (0.0, 0.5, 1.0, 4.0)]
    assert costs[0] == 0
    assert (np.diff(costs) > 0).all()


def test_perturbations_of_one_iteration_add_up() -> None:
    settings: dict[str, Any] = {"eps": 0.1, "x0_distance": 5.0, "gradient_norm": 1.0}
    both = sgd_cost_bound(harmonic_steps(2.0), [1.0, 2.0], [9, 9], **settings)
    assert both == sgd_cost_bound(harmonic_steps(2.0), [3.0], [9], **settings)
    assert sgd_cost_bound(harmonic_steps(2.0), [], [], **settings) == 0


def test_search_goes_on_over_many_chunks() -> None:
    # α_k = 2/(k+1), G = 1: D falls as 4/k, so ε = 0.004 is reached after about 250,000 iterations, several chunks.
    settings: dict[str, Any] = {"eps": 0.004, "x0_distance": 5.0, "gradient_norm": 1.0}
    cost = sgd_cost_bound(harmonic_steps(2.0), [0.1], [200_000], **settings)
    assert cost > 1000
    distances = sgd_distances(harmonic_steps(2.0)(np.arange(260_000.0)), 5.0, 1.0)
    assert np.flatnonzero(distances >= 0.004)[-1] == pytest.approx(250_000, rel=0.01)


def test_exact_moments_of_sgd_on_a_quadratic_stay_below_the_bound() -> None:
    # x ← x − η (λ x + noise of variance σ²): E x² ← (1 − λη)² E x² + η² σ², and a perturbation of mean 0 adds s².
    lam, sigma, n = 0.5, 2.0, 400
    eta = 1 / (lam * (np.arange(n) + 4))
    rms = np.where(np.arange(n) % 50 == 20, 1.5, 0.0)
    exact, gradients = [36.0], []
    for step, s in zip(eta, rms, strict=True):
        here = exact[-1] + s**2
        gradients.append(lam**2 * here + sigma**2)  # E of the squared stochastic gradient
        exact.append((1 - lam * step) ** 2 * here + step**2 * sigma**2)
    G = math.sqrt(max(gradients)) / (2 * lam)
    bound = sgd_distances(2 * lam * eta, 6.0, G, rms)
    assert (np.sqrt(exact) <= bound + 1e-12).all()


def test_squared_distances_shrink_by_the_product_of_the_steps() -> None:
    alphas = harmonic_steps(1.0, offset=2.0)(np.arange(50.0))  # α_k = 1/(k + 2): the product is 1/(k + 1)
    assert contraction(alphas) == pytest.approx(1 / np.arange(1.0, 52.0))
    assert sgd_distances(alphas, 3.0, 0.0) == pytest.approx(3 * np.sqrt(contraction(alphas)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"eps": 6.0}, "below x0_distance"),
        ({"eps": 0.0}, "above 0"),
        ({"gradient_norm": -1.0}, "gradient_norm"),
        ({"norms": [1.0, 2.0]}, "one length"),
        ({"at_iters": [0.5]}, "whole"),
        ({"steps": lambda k: k * 1e-7}, "never grow"),
        ({"steps": lambda k: k + 2}, "between 0 and 1"),
        ({"steps": lambda k: 0.5 ** (k + 3), "max_iters": 1000}, "sum of the steps"),
        ({"steps": constant(0.5), "max_iters": 1000}, "too large for eps"),
    ],
)
def test_what_breaks_an_assumption_is_refused(change: dict[str, Any], said: str) -> None:
    arguments: dict[str, Any] = {
        "steps": harmonic_steps(2.0), "norms": [1.0], "at_iters": [3], "eps": 0.1, "x0_distance": 5.0,
        "gradient_norm": 1.0,
    }  # fmt: skip
    with pytest.raises(UsageError, match=said):
        sgd_cost_bound(**{**arguments, **change})


def test_harmonic_steps_refuse_what_is_no_step() -> None:
    with pytest.raises(UsageError, match="theta"):
        harmonic_steps(0.0)

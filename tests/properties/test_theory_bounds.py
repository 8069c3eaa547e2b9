"""The theorems, on random contractions, random perturbations and random losses."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scarml.theory.every_iteration import every_iteration_distance_bound
from scarml.theory.iteration_cost import discounted_sum, iteration_cost_bound, perturbation_cost_bound
from scarml.theory.partial_recovery import effective_age, expected_partial_norm, partial_norm, stale_cost_bound

rates = st.floats(0.3, 0.98)
seeds = st.integers(0, 2**32 - 1)
sizes = st.lists(st.floats(0, 20), min_size=1, max_size=8)


def crossing(distances: NDArray[np.float64], eps: float) -> float:
    """When the distance falls below ε for good, between iterations on a logarithmic scale."""
    k = int(np.flatnonzero(distances >= eps)[-1])
    return k + math.log(distances[k] / eps) / math.log(distances[k] / distances[k + 1])


@given(rates, sizes, seeds, st.integers(1, 5))
def test_bound_holds_on_random_contractions(c: float, norms: list[float], seed: int, dim: int) -> None:
    """x(k) turns around x* and comes nearer by exactly c; from perturbed states f may do better, never worse."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    start = rng.normal(size=dim) + 0.1
    x0 = float(np.linalg.norm(start))
    last = len(norms) - 1
    directions = rng.normal(size=(len(norms), dim))
    eps = x0 * c ** (last + 2) / 100
    y, distances = start, [x0]
    while distances[-1] >= eps or len(distances) <= last + 2:
        k = len(distances) - 1
        push = norms[k] * directions[k] / np.linalg.norm(directions[k]) if k <= last else np.zeros(dim)
        better = rng.uniform(0.7, 1.0) if k <= last + 3 else 1.0
        y = better * c * (turn @ (y + push))
        distances.append(max(float(np.linalg.norm(y)), 1e-300))
    cost = crossing(np.array(distances), eps) - math.log(x0 / eps) / math.log(1 / c)
    bound = float(perturbation_cost_bound(norms, range(len(norms)), x0, c))
    assert cost <= bound + 1e-6


@given(rates, sizes, st.floats(0.1, 100))
def test_bound_is_met_with_equality_when_every_push_points_away(c: float, norms: list[float], x0: float) -> None:
    distances = [x0]
    for size in norms:
        distances.append(c * (distances[-1] + size))
    eps = distances[-1] / 3
    while distances[-1] >= eps:
        distances.append(c * distances[-1])
    cost = crossing(np.array(distances), eps) - math.log(x0 / eps) / math.log(1 / c)
    delta_sum = discounted_sum(norms, range(len(norms)), c)
    assert cost == pytest.approx(float(iteration_cost_bound(delta_sum, x0, c)), abs=1e-6)
    assert cost == pytest.approx(float(perturbation_cost_bound(norms, range(len(norms)), x0, c)), abs=1e-6)


@given(rates, st.floats(0, 50), st.floats(0.1, 100), st.integers(0, 40), st.floats(1.01, 3))
def test_bound_grows_with_the_perturbation_with_its_lateness_and_with_c(
    c: float, size: float, x0: float, at: int, factor: float
) -> None:
    def bound(size: float, at: int, x0: float, c: float) -> float:
        return float(perturbation_cost_bound([size], [at], x0, c))

    here = bound(size, at, x0, c)
    slack = 1e-9 * (1 + here)
    assert bound(size * factor, at, x0, c) >= here - slack
    assert bound(size, at + 1, x0, c) >= here - slack
    assert bound(size, at, x0 * factor, c) <= here + slack
    assert here <= at + bound(size, 0, x0, c) + slack  # a late one costs at most its lateness more
    assert bound(size, 0, x0, min(c * 1.01, 0.99)) >= bound(size, 0, x0, c) - slack


@given(rates, st.lists(st.floats(0, 2), min_size=1, max_size=30), st.floats(0.1, 50), seeds)
def test_distance_bound_holds_when_every_iteration_is_perturbed(
    c: float, norms: list[float], x0: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    y = np.array([x0, 0.0])
    for k, size in enumerate(norms):
        assert np.linalg.norm(y) <= every_iteration_distance_bound(k, max(norms), x0, c) * (1 + 1e-9)
        angle = rng.uniform(0, 2 * math.pi)
        y = c * (y + size * np.array([math.cos(angle), math.sin(angle)]))


@given(st.lists(st.floats(0, 10), min_size=1, max_size=7), st.data())
def test_mean_squared_perturbation_over_all_losses_is_p_times_the_full_one(
    norms: list[float], data: st.DataObject
) -> None:
    n = len(norms)
    n_lost = data.draw(st.integers(0, n))
    full = partial_norm(norms, np.ones(n, bool))
    partial = []
    for lost in itertools.combinations(range(n), n_lost):
        partial.append(float(partial_norm(norms, np.isin(np.arange(n), lost))))
    assert np.mean(np.square(partial)) == pytest.approx(float(expected_partial_norm(full, n_lost / n)) ** 2, abs=1e-9)
    assert max(partial) <= full + 1e-12  # Theorem 4.1
    assert np.mean(partial) <= expected_partial_norm(full, n_lost / n) + 1e-9  # Jensen


@given(st.lists(st.floats(0, 10), min_size=6, max_size=6))
def test_it_holds_for_whole_partitions_too(norms: list[float]) -> None:
    """Blocks of a partition are lost together; each is still lost with probability p."""
    partitions = np.array([0, 0, 0, 1, 1, 2])
    squares = [float(partial_norm(norms, partitions == lost)) ** 2 for lost in range(3)]
    full = partial_norm(norms, np.ones(6, bool))
    assert np.mean(squares) == pytest.approx(float(expected_partial_norm(full, 1 / 3)) ** 2, abs=1e-9)


@given(rates, st.lists(st.floats(0, 60), min_size=1, max_size=9), st.floats(0, 1), st.floats(0, 1))
def test_stale_bound_grows_with_age_and_loss_up_to_the_age(c: float, ages: list[float], p: float, q: float) -> None:
    age = float(effective_age(ages, c))
    low, high = sorted((p, q))
    assert -1e-9 <= stale_cost_bound(age, low, c) <= stale_cost_bound(age, high, c) + 1e-9
    assert stale_cost_bound(age, high, c) <= age + 1e-9
    assert stale_cost_bound(age, p, c) <= stale_cost_bound(age + 1, p, c) + 1e-9
    assert stale_cost_bound(age, p, c) <= stale_cost_bound(age, p, c, "any") + 1e-9
    assert np.mean(ages) - 1e-6 <= age <= max(ages) + 1e-6

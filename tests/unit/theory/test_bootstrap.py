"""Statistics: a planted effect is found, no effect is none, intervals cover about as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from scarml.core.rng import stream
from scarml.errors import UsageError
from scarml.theory.bootstrap import mean_interval, paired_reduction


def test_reduction_is_the_ratio_of_means() -> None:
    found = paired_reduction([0.0, 2.0, 4.0], [0.0, 0.0, 1.5])
    assert found.value == 0.75
    assert found.low <= found.value <= found.high


def test_the_same_costs_are_no_reduction_at_all() -> None:
    costs = np.arange(1.0, 9.0)
    assert paired_reduction(costs, costs).low == paired_reduction(costs, costs).high == 0


def test_pairing_makes_a_constant_ratio_exact() -> None:
    reference = stream(0, "reference").random(30) * 8
    found = paired_reduction(reference, 0.2 * reference)
    assert (found.low, found.high) == pytest.approx((0.8, 0.8))


def test_intervals_cover_the_planted_reduction() -> None:
    rng, hits, n = stream(0, "coverage"), 0, 300
    for _ in range(n):
        reference = rng.integers(0, 8, 30).astype(float)  # like T mod 8
        costs = 0.25 * reference + 0.3 * rng.standard_normal(30)
        found = paired_reduction(reference, costs, n_resamples=1000)
        hits += found.low <= 0.75 <= found.high
    assert 0.88 <= hits / n <= 0.99


def costs_of(rng: np.random.Generator, n: int, factor: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """What full recovery costs, like T mod 8 that is geometric, and what another strategy costs after it."""
    reference = np.minimum(rng.geometric(0.05, n), 59) % 8.0
    return reference, factor * reference + noise * rng.standard_normal(n)


def test_no_effect_is_reported_as_one_only_as_often_as_intervals_miss() -> None:
    rng, found, n = stream(0, "no effect"), 0, 300
    for _ in range(n):
        reference, costs = costs_of(rng, 50, factor=1.0, noise=1.5)
        interval = paired_reduction(reference, costs, n_resamples=1000)
        found += not interval.low <= 0 <= interval.high
    assert 0.01 <= found / n <= 0.11


def test_a_planted_effect_is_found() -> None:
    rng, found, n = stream(0, "an effect"), 0, 100
    for _ in range(n):
        reference, costs = costs_of(rng, 100, factor=0.6, noise=1.5)
        found += paired_reduction(reference, costs, n_resamples=1000).low > 0
    assert found / n >= 0.95


def test_intervals_of_means_cover_the_mean() -> None:
    rng, hits, n = stream(0, "means"), 0, 300
    for _ in range(n):
        interval = mean_interval(rng.exponential(2.0, 60), n_resamples=1000)  # skewed, as costs are
        hits += interval.low <= 2.0 <= interval.high
    assert 0.89 <= hits / n <= 0.99


def test_a_mean_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="one for each trial"):
        mean_interval([])


def test_seed_decides_the_interval() -> None:
    a, b = stream(0, "a").random(20) + 1, stream(0, "b").random(20)
    assert paired_reduction(a, b) == paired_reduction(a, b)
    assert paired_reduction(a, b, seed=1) != paired_reduction(a, b)


@pytest.mark.parametrize(("reference", "costs"), [([], []), ([1.0], [1.0, 2.0]), ([0.0, 0.0], [1.0, 1.0])])
def test_what_has_no_ratio_is_refused(reference: list[float], costs: list[float]) -> None:
    with pytest.raises(UsageError):
        paired_reduction(reference, costs)

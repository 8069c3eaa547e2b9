"""The time of a run against Daly's closed forms, and against runs that are played through."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import lambertw

from scarml.errors import UsageError
from scarml.theory.run_time import RunTimeModel, rework_ratio, young_interval_s

FULL = RunTimeModel(solve_s=100_000, dump_s=30, mtbf_s=4000, restart_s=120)


def test_full_recovery_is_dalys_model() -> None:
    interval = np.array([50.0, 400.0, 3000.0, 20_000.0])
    daly = 4000 * math.exp(120 / 4000) * np.expm1((interval + 30) / 4000) * 100_000 / interval
    found = FULL.expected(interval)
    assert found.total_s == pytest.approx(daly)
    assert found.dump_s == pytest.approx(30 * 100_000 / interval)
    assert found.n_failures == pytest.approx(daly / 4000)


@pytest.mark.parametrize("dump_s", [0.01, 30.0, 2000.0, 50_000.0])
def test_optimum_of_full_recovery_is_the_exact_one_and_dalys_series(dump_s: float) -> None:
    found = replace(FULL, dump_s=dump_s).optimum_interval_s()
    assert found == pytest.approx(4000 * (1 + lambertw(-math.exp(-1 - dump_s / 4000)).real))
    x = dump_s / 8000
    if x < 0.01:  # Daly's equation 37, to third order
        assert found == pytest.approx(math.sqrt(2 * dump_s * 4000) * (1 + math.sqrt(x) / 3 + x / 9) - dump_s, rel=1e-3)


@pytest.mark.parametrize("ratio", [1.0, 0.5, 0.1, 0.01])
def test_optimum_is_one_and_near_youngs_when_saves_are_short(ratio: float) -> None:
    model = replace(FULL, dump_s=0.5, rework_ratio=ratio)
    best = model.optimum_interval_s()
    assert best == pytest.approx(float(young_interval_s(0.5, 4000, ratio)), rel=0.05)
    around = model.expected(best * np.array([0.5, 0.99, 1.0, 1.01, 2.0])).total_s
    assert around.argmin() == 2


def test_partial_recovery_takes_less_time_and_wants_fewer_saves() -> None:
    models = [replace(FULL, rework_ratio=r) for r in (1.0, 0.6, 0.3, 0.1)]
    intervals = [m.optimum_interval_s() for m in models]
    totals = [float(m.expected(i).total_s) for m, i in zip(models, intervals, strict=True)]
    assert (np.diff(intervals) > 0).all()
    assert (np.diff(totals) < 0).all()
    assert totals[-1] > 100_000


@pytest.mark.ci
@pytest.mark.parametrize("ratio", [1.0, 0.3])
def test_expectation_is_what_runs_take_that_are_played_through(ratio: float) -> None:
    rng, M, D, R, tau, n_segments = np.random.default_rng(3), 100.0, 5.0, 8.0, 60.0, 20_000
    model = RunTimeModel(solve_s=tau * n_segments, dump_s=D, mtbf_s=M, restart_s=R, rework_ratio=ratio)
    total, failures = 0.0, 0
    for _ in range(n_segments):
        progress = 0.0
        while progress < tau + D:
            until_failure = rng.exponential(M)
            if until_failure >= tau + D - progress:
                total += tau + D - progress
                break
            total, failures = total + until_failure, failures + 1
            progress = (1 - ratio) * (progress + until_failure)
            while (strikes := rng.exponential(M)) < R:  # during the restart, which begins again
                total, failures = total + strikes, failures + 1
            total += R
    expected = model.expected(tau)
    assert float(expected.total_s) == pytest.approx(total, rel=0.02)
    assert float(expected.n_failures) == pytest.approx(failures, rel=0.02)


def test_rework_ratio_is_between_the_root_of_p_and_1() -> None:
    assert rework_ratio(1.0, 8, 0.9) == pytest.approx(1)
    assert rework_ratio(0.0, 8, 0.9) == pytest.approx(0, abs=1e-12)
    assert rework_ratio(0.25, 8, 1 - 1e-8) == pytest.approx(0.5)
    ratios = [rework_ratio(0.25, 8, c) for c in (0.99, 0.9, 0.5, 0.1)]
    assert (np.diff(ratios) > 0).all()
    assert ratios[-1] < 1


@pytest.mark.parametrize(
    ("name", "value"), [("solve_s", 0), ("dump_s", 0), ("mtbf_s", -1), ("restart_s", -1), ("rework_ratio", 0)]
)
def test_a_model_names_what_is_out_of_range(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=name):
        replace(FULL, **{name: value})


def test_other_arguments_out_of_range() -> None:
    with pytest.raises(UsageError, match="interval_s"):
        FULL.expected(0)
    with pytest.raises(UsageError, match="dump_s"):
        young_interval_s(0, 1)
    with pytest.raises(UsageError, match="interval_iters"):
        rework_ratio(0.5, 0, 0.9)

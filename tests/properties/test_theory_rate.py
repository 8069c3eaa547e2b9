"""Whatever a curve looks like, there is an estimate in its interval, or a reason why not; units change nothing."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.errors import UsageError
from scarml.theory.convergence_rate import rate_from_distances, rate_from_losses, rate_from_steps

curves = st.lists(st.floats(-1e6, 1e6) | st.integers(0, 3).map(float), min_size=8, max_size=40)


@given(curves, st.integers(1, 5))
def test_any_curve_gives_an_estimate_in_its_interval_or_a_reason(curve: list[float], stride: int) -> None:
    at = stride * np.arange(len(curve))
    for estimate, values in (
        (rate_from_losses, curve),
        (rate_from_distances, np.abs(curve)),
        (rate_from_steps, np.abs(curve)),
    ):
        with contextlib.suppress(UsageError):
            found = estimate(values, at)
            assert 0 <= found.c_low <= found.c <= found.c_high
            assert found.c <= 1
            assert np.isnan(found.start) or 0 <= found.start_low <= found.start <= found.start_high
            assert at[0] <= found.from_iter < found.to_iter <= at[-1]


@given(st.floats(0.5, 0.98), st.floats(0.01, 100), st.floats(-50, 50), st.integers(20, 60))
def test_an_exact_curve_gives_its_rate_whatever_the_unit(c: float, scale: float, limit: float, n: int) -> None:
    fallen = c ** np.arange(n)
    assert rate_from_distances(scale * fallen).c == pytest.approx(c, rel=1e-6)
    assert rate_from_steps(scale * fallen).c == pytest.approx(c, rel=1e-6)
    found = rate_from_losses(limit + scale * fallen, power=1)
    assert found.c == pytest.approx(c, rel=1e-3)
    assert found.limit == pytest.approx(limit, abs=0.01 * scale)

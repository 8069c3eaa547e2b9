"""The rate of gradient descent against what gradient descent does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.errors import UsageError
from scarml.models.qp import QP
from scarml.theory.gradient_descent import gradient_descent_rate


@given(st.floats(0.01, 1), st.floats(1, 100), st.floats(0.01, 0.99), st.lists(st.floats(-5, 5), min_size=3, max_size=3))
def test_no_step_on_a_quadratic_shrinks_less_and_one_shrinks_just_so(
    low: float, high: float, part: float, error: list[float]
) -> None:
    curvatures, step = np.array([low, (low + high) / 2, high]), part * 2 / high
    c = float(gradient_descent_rate(low, high, step))
    after = (1 - step * curvatures) * np.array(error)
    assert np.linalg.norm(after) <= c * np.linalg.norm(error) + 1e-12
    assert np.abs(1 - step * curvatures).max() == pytest.approx(c)


def test_best_step_is_the_best_and_that_of_the_model() -> None:
    best = gradient_descent_rate(1.0, 20.0)
    assert best == pytest.approx(QP(condition=20.0).rate)
    assert (gradient_descent_rate(1.0, 20.0, np.linspace(0.01, 0.099, 50)) >= best).all()
    assert gradient_descent_rate(2.0, 2.0) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0.0, 1.0), "strong_convexity"),
        ((2.0, 1.0), "smoothness"),
        ((1.0, np.inf), "smoothness"),
        ((1.0, 4.0, 0.5), "step_size"),
        ((1.0, 4.0, 0.0), "step_size"),
    ],
)
def test_what_does_not_converge_is_refused(arguments: tuple[float, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        gradient_descent_rate(*arguments)

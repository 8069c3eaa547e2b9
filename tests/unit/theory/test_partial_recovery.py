"""Partial recovery: Theorems 4.1 and 4.2, and what they say of saved values of a known age."""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from scarml.errors import UsageError
from scarml.models.qp import QP
from scarml.theory.iteration_cost import iteration_cost_bound
from scarml.theory.partial_recovery import effective_age, expected_partial_norm, partial_norm, stale_cost_bound


def test_losing_all_is_full_recovery_and_losing_nothing_is_nothing() -> None:
    norms = np.array([3.0, 4.0])
    assert partial_norm(norms, [True, True]) == 5
    assert partial_norm(norms, [False, False]) == 0
    assert partial_norm([0.0, 4.0], [False, True]) == 4  # not below the full one, as the paper's < would have it


@pytest.mark.parametrize("direction", ["straight", "any"])
def test_stale_bound_is_the_theorem_from_now_on(direction: str) -> None:
    c, age, p = 0.93, 12.0, 0.4
    delta = c**-age - 1 if direction == "straight" else c**-age + 1
    expected = iteration_cost_bound(expected_partial_norm(delta, p), 1.0, c)
    assert stale_cost_bound(age, p, c, direction) == pytest.approx(expected)  # type: ignore[arg-type]


def test_stale_bound_at_its_ends() -> None:
    assert stale_cost_bound([0.0, 8.0], 1.0, 0.9) == pytest.approx([0, 8])
    assert stale_cost_bound(8.0, 0.0, 0.9) == pytest.approx(0)
    assert stale_cost_bound(8.0, 0.25, 1 - 1e-9) == pytest.approx(4)  # √p a
    assert stale_cost_bound(1e5, 0.0, 0.9) == 0  # however old what is saved is, nothing of it is needed
    far = stale_cost_bound(1e5, 0.25, 0.9)  # c⁻ᵃ is too large for a float
    assert far == pytest.approx(1e5 - math.log(2) / math.log(1 / 0.9))


def test_stale_bound_holds_on_average_over_all_losses_of_a_straight_run() -> None:
    c, age, n = 0.9, 6, 6
    error = np.random.default_rng(0).normal(0, 1, n)  # x(T) − x*
    saved = error * c**-age
    for n_lost in range(1, n + 1):
        costs = []
        for lost in itertools.combinations(range(n), n_lost):
            y = error.copy()
            y[list(lost)] = saved[list(lost)]
            costs.append(math.log(np.linalg.norm(y) / np.linalg.norm(error)) / math.log(1 / c))
        assert np.mean(costs) <= stale_cost_bound(age, n_lost / n, c) + 1e-9
    assert costs == pytest.approx([age])  # all is lost: met with equality


def test_effective_age_lies_between_the_mean_and_the_oldest() -> None:
    ages = np.array([[0.0, 0, 8, 3], [40, 2, 2, 2]])
    found = effective_age(ages, 0.9)
    assert (ages.mean(axis=1) <= found).all()
    assert (found <= ages.max(axis=1)).all()
    assert effective_age([0, 0], 0.9) == 0
    assert effective_age([10_000, 0], 0.5) == pytest.approx(10_000, abs=1)


def test_effective_age_perturbs_as_much_as_the_blocks_do() -> None:
    c, ages = 0.9, np.array([0, 1, 4, 7, 2])
    rms = math.sqrt(np.mean((c**-ages - 1.0) ** 2))
    assert c ** -effective_age(ages, c) - 1 == pytest.approx(rms)


def test_what_is_out_of_range_is_refused() -> None:
    for call, said in (
        (lambda: partial_norm([1.0], [1]), "boolean"),
        (lambda: partial_norm([-1.0], [True]), "block_norms"),
        (lambda: expected_partial_norm(1.0, 30), "between 0"),
        (lambda: stale_cost_bound(-1, 0.5, 0.9), "ages"),
        (lambda: stale_cost_bound(1, 0.5, 1.0), "c must"),
        (lambda: stale_cost_bound(1, 0.5, 0.9, "sideways"), "direction"),  # type: ignore[arg-type]
        (lambda: effective_age([], 0.9), "each block"),
        (lambda: effective_age(3.0, 0.9), "each block"),
    ):
        with pytest.raises(UsageError, match=said):
            call()


@pytest.mark.parametrize("age", [1, 2, 5, 8])
def test_stale_bound_holds_on_the_quadratic_program_whose_steps_go_to_and_fro(age: int) -> None:
    """With the best step half of the slow part changes sides in every iteration: no straight way."""
    model, T = QP(), 60
    errors = [model.init(model.tables(None)[0], np.arange(4), 0)["value"] - model.optimum]
    step = np.eye(4) - model.step_size * model.hessian
    for _ in range(T):
        errors.append(step @ errors[-1])
    means = []
    for n_lost in (1, 2, 3, 4):
        costs = []
        for lost in itertools.combinations(range(4), n_lost):
            y = errors[T].copy()
            y[list(lost)] = errors[T - age][list(lost)]
            later = np.linalg.norm(np.linalg.matrix_power(step, 60) @ y)
            control = np.linalg.norm(np.linalg.matrix_power(step, 60) @ errors[T])
            costs.append(math.log(later / control) / math.log(1 / model.rate))
        means.append(np.mean(costs))
        assert means[-1] <= stale_cost_bound(age, n_lost / 4, model.rate, "any") + 1e-6
    assert means[-1] == pytest.approx(age, abs=1e-3)


@pytest.mark.parametrize("c", [0.95, 0.98, 0.99])
def test_recorded_trials_of_mlr_lie_under_the_bound(c: float) -> None:
    """Full checkpoints and partial recovery after losing half of the rows, from the first table of the docs."""
    recorded = Path(__file__).parents[3] / "docs/results/first-table/mlr-mnist/full-partial.lag-0.csv"
    with recorded.open() as file:
        rows = list(csv.DictReader(file))
    ages, costs = (np.array([float(row[name]) for row in rows]) for name in ("mean_age_iters", "cost"))
    assert len(rows) >= 30
    assert (costs <= stale_cost_bound(ages, 0.5, c) + 1e-9).all()
    assert costs.mean() > 0.5 * stale_cost_bound(ages, 0.5, c).mean()  # and not far below

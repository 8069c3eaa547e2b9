from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.core.sequential import Sequential
from scarml.errors import ModelError, UsageError
from scarml.models.qp import QP


def error(run: Sequential) -> float:
    return float(np.linalg.norm(run.state["x"].value - QP().optimum))


@given(condition=st.floats(1, 1000), seed=st.integers(0, 99))
def test_no_step_is_slower_than_the_known_rate(condition: float, seed: int) -> None:
    run = Sequential(QP(condition), None, seed=seed, n_shards=2)
    rate = QP(condition).rate
    before = error(run)
    assert before == pytest.approx(10.0)
    for _ in range(20):
        run.step()
        after = error(run)
        assert after <= rate * before + 1e-12
        before = after


def test_the_rate_is_met_in_the_worst_directions() -> None:
    run = Sequential(QP(condition=20.0), None, n_shards=1)
    for _ in range(60):
        run.step()
    before = error(run)
    run.step()
    assert error(run) / before == pytest.approx(QP(condition=20.0).rate, rel=1e-6)


def test_hessian_has_the_condition_number() -> None:
    eigenvalues = np.linalg.eigvalsh(QP(condition=50.0).hessian)
    assert eigenvalues[[0, -1]] == pytest.approx([1, 50])
    assert np.abs(QP(condition=50.0).hessian).min() > 0.1  # no parameter stands alone


@pytest.mark.parametrize("n_shards", [1, 2, 7])
def test_only_one_shard_works(n_shards: int) -> None:
    run = Sequential(QP(), None, n_shards=n_shards)
    run.step()
    alone = Sequential(QP(), None, n_shards=1)
    alone.step()
    assert run.state["x"].value.tolist() == alone.state["x"].value.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_baseline_takes_as_long_as_declared(seed: int) -> None:
    declared = QP.defaults[None]
    run = Sequential(QP(), None, seed=seed, n_shards=16)
    assert iterations_until(run, declared.stop_loss_sum) == declared.baseline_iters


def iterations_until(run: Sequential, loss_sum: float | None) -> int:
    assert loss_sum is not None
    while run.loss_sum() >= loss_sum:
        run.step()
    return run.iteration


@pytest.mark.parametrize(
    "arguments", [{"condition": 0.5}, {"condition": float("nan")}, {"start_distance": 0.0}, {"start_distance": -1.0}]
)
def test_wrong_argument_is_named(arguments: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=rf"{next(iter(arguments))} is .*; expected"):
        QP(**arguments)


def test_data_is_refused() -> None:
    with pytest.raises(ModelError, match="QP takes no data"):
        QP().tables([1, 2, 3])  # type: ignore[arg-type]

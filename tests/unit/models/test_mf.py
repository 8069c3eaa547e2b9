from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.core.model import Context
from scarml.core.rng import stream
from scarml.core.sequential import Sequential
from scarml.data.held_out import load_with_held_out
from scarml.data.ratings import Ratings
from scarml.data.registry import load
from scarml.errors import ModelError, UsageError
from scarml.models.least_squares import solve_rows, solve_rows_reference
from scarml.models.mf import MF, squared_error, squared_error_reference


def problem(seed: int, n_users: int = 30, n_items: int = 20, density: float = 0.3) -> Ratings:
    rng = stream(seed, "mf test")
    user, item = np.nonzero(rng.random((n_users, n_items)) < density)
    rating = rng.integers(1, 11, len(user)) / 2
    return Ratings(user, item, rating.astype(np.float32), n_users, n_items)


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    factors=st.sampled_from([1, 2, 3, 4, 5, 8, 9, 17]),
    regularization=st.sampled_from([0.05, 1.0]),
    seed=st.integers(0, 2**32),
)
def test_rows_are_solved_as_by_the_reference(
    lengths: list[int], factors: int, regularization: float, seed: int
) -> None:
    rng = stream(seed, "rows")
    starts = np.concatenate(([0], np.cumsum(lengths)))
    others = rng.random((15, factors)).astype(np.float32)
    index = rng.integers(0, 15, starts[-1])
    targets = rng.random(starts[-1]).astype(np.float32)
    fast = solve_rows(others, starts, index, targets, regularization)
    plain = solve_rows_reference(others, starts, index, targets, regularization)
    np.testing.assert_allclose(fast, plain, atol=2e-3)
    for i, (begin, end) in enumerate(itertools.pairwise(starts)):
        objectives = [
            objective(x[i], others[index[begin:end]], targets[begin:end], regularization) for x in (fast, plain)
        ]
        assert objectives[0] == pytest.approx(objectives[1], rel=1e-5, abs=1e-6)


def objective(row: np.ndarray, others: np.ndarray, targets: np.ndarray, regularization: float) -> float:
    return float(((targets - others @ row.astype(np.float64)) ** 2).sum() + regularization * (row**2).sum())


def test_kernel_leaves_its_inputs_writable() -> None:
    others = np.ones((2, 3), np.float32)
    solve_rows(others, np.array([0, 2]), np.array([0, 1]), np.ones(2, np.float32), 0.1)
    assert others.flags.writeable


@pytest.mark.parametrize("n_shards", [1, 4, 50])
def test_one_iteration_is_that_of_textbook_als(n_shards: int) -> None:
    data = problem(1)
    run = Sequential(MF(factors=4, regularization=0.3), data, n_shards=n_shards)
    left, right = (run.state[name].value.astype(np.float64) for name in "LR")
    run.step()
    dense, known = np.zeros((30, 20)), np.zeros((30, 20), bool)
    dense[data.user, data.item], known[data.user, data.item] = data.rating, True
    for u in range(30):
        g = right[known[u]]
        left[u] = np.linalg.solve(g.T @ g + 0.3 * np.eye(4), g.T @ dense[u, known[u]])
    for i in range(20):
        g = left[known[:, i]]
        right[i] = np.linalg.solve(g.T @ g + 0.3 * np.eye(4), g.T @ dense[known[:, i], i])
    np.testing.assert_allclose(run.state["L"].value, left, atol=1e-3)
    np.testing.assert_allclose(run.state["R"].value, right, atol=1e-3)
    assert run.loss_sum() == pytest.approx((((dense - left @ right.T) ** 2)[known]).sum(), rel=1e-3)


@given(seed=st.integers(0, 99))
def test_squared_error_is_that_of_the_reference(seed: int) -> None:
    data = problem(seed)
    for side in (shard.data[0] for shard in MF().shards(data, 3)):
        rng = stream(seed, "factors")
        rows, others = rng.random((len(side.ids), 5)), rng.random((len(side.others), 5))
        case = (rows.astype(np.float32), others.astype(np.float32), side.starts, side.index, side.ratings)
        assert squared_error(*case) == pytest.approx(squared_error_reference(*case), rel=1e-12)


@given(seed=st.integers(0, 99), n_shards=st.integers(1, 40), density=st.sampled_from([0.0, 0.02, 0.3, 1.0]))
def test_shards_hold_every_rating_once_on_each_side(seed: int, n_shards: int, density: float) -> None:
    data = problem(seed, density=density)
    shards = MF().shards(data, n_shards)
    expected = sorted(zip(data.user.tolist(), data.item.tolist(), data.rating.tolist(), strict=True))
    for side in (0, 1):
        found = []
        for piece in (s.data[side] for s in shards):
            row = np.repeat(piece.ids, np.diff(piece.starts)).tolist()
            other = piece.others[piece.index].tolist()
            user, item = (row, other) if side == 0 else (other, row)
            found += list(zip(user, item, piece.ratings.tolist(), strict=True))
        assert sorted(found) == expected
    longest = max(np.bincount(data.user).max(), np.bincount(data.item).max()) if data.n_ratings else 0
    assert all(len(s.data[side].ratings) <= data.n_ratings / n_shards + 2 * longest for s in shards for side in (0, 1))


def test_a_row_weighs_as_the_root_of_its_ratings() -> None:
    data = Ratings(np.array([0, 2, 2, 2, 2]), np.array([1, 0, 1, 2, 3]), np.ones(5, np.float32), n_users=3, n_items=4)
    users, items = MF(2).tables(data)
    assert users.weights is not None
    assert items.weights is not None
    assert users.weights.tolist() == [1, 1, 2]  # one where there are none
    assert items.weights.tolist() == [1, np.sqrt(2), 1, 1]


def test_rows_without_ratings_keep_their_start() -> None:
    data = Ratings(np.array([0, 2]), np.array([1, 1]), np.array([4.0, 2.0]), n_users=4, n_items=3)
    run = Sequential(MF(factors=2), data, n_shards=2)
    before = {name: blocks.copy() for name, blocks in run.state.items()}
    run.step()
    changed = {name: np.flatnonzero(blocks.differs_from(before[name])).tolist() for name, blocks in run.state.items()}
    assert changed == {"L": [0, 2], "R": [1]}


def test_start_is_uniform() -> None:
    state = Sequential(MF(), problem(0, n_users=300), n_shards=1).state
    assert state["L"].value.min() >= 0
    assert state["L"].value.max() < 1
    assert abs(state["L"].value.mean() - 0.5) < 0.02


@pytest.mark.parametrize(
    "arguments", [{"factors": 0}, {"regularization": 0.0}, {"regularization": float("inf")}, {"regularization": -1.0}]
)
def test_wrong_argument_is_named(arguments: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=rf"{next(iter(arguments))} is .*; expected"):
        MF(**arguments)  # type: ignore[arg-type]


def test_data_of_another_kind_is_refused() -> None:
    with pytest.raises(ModelError, match="MF takes Ratings; got list"):
        MF().tables([1])  # type: ignore[arg-type]


def test_the_items_with_the_highest_predictions_are_recommended() -> None:
    rng = stream(0, "recommend")
    tables = {"L": {"value": rng.random((5, 3))}, "R": {"value": rng.random((9, 3))}}
    predicted = tables["R"]["value"] @ tables["L"]["value"][2]
    order = np.argsort(-predicted)
    items, ratings = MF.recommend(tables, user=2, n=4)
    assert items.tolist() == order[:4].tolist()
    assert ratings.tolist() == predicted[order[:4]].tolist()
    seen = np.array([order[1], order[0], order[1]])
    assert MF.recommend(tables, 2, n=99, seen=seen)[0].tolist() == order[2:].tolist()
    assert MF.recommend(tables, 2, seen=np.arange(9))[0].tolist() == []


@pytest.mark.parametrize(
    ("changed", "arguments", "message"),
    [
        ({"L": {}}, {}, "expected L and R with as many factors each"),
        ({"R": {"value": np.zeros((4, 2))}}, {}, "expected L and R with as many factors each"),
        ({}, {"user": 2}, "user is 2; expected a whole number from 0 to 1"),
        ({}, {"user": -1}, "user is -1; expected a whole number from 0 to 1"),
        ({}, {"user": 0.5}, "user is 0.5; expected a whole number from 0 to 1"),
        ({}, {"n": 0}, "n is 0; expected at least 1"),
        ({}, {"seen": np.array([4])}, "seen has items other than whole numbers from 0 to 3"),
        ({}, {"seen": np.array([0.5])}, "seen has items other than"),
    ],
)
def test_wrong_question_is_refused(changed: dict[str, Any], arguments: dict[str, Any], message: str) -> None:
    tables = {"L": {"value": np.zeros((2, 3))}, "R": {"value": np.zeros((4, 3))}, **changed}
    with pytest.raises(UsageError, match=message):
        MF.recommend(tables, **{"user": 0, **arguments})


@pytest.mark.ci
@pytest.mark.parametrize("name", ["movielens", "jester"])
@pytest.mark.usefixtures("data_dir")
def test_data_sets_converge_as_declared(name: str) -> None:
    declared = MF.defaults[name]
    run = Sequential(MF(**declared.hyper_parameters), load(name), n_shards=16)
    losses = [run.loss_sum()]
    while run.iteration < 60:
        run.step()
        losses.append(run.loss_sum())
    assert declared.baseline_iters == 60
    assert declared.stop_loss_sum == pytest.approx((losses[59] + losses[60]) / 2, abs=0.5)
    assert (np.diff(losses) < 0).all()


@pytest.mark.parametrize(("lost_table", "phases"), [("R", 2), ("L", 1)])
def test_lost_rows_with_the_whole_other_side_are_solved_as_they_were(lost_table: str, phases: int) -> None:
    """Rows of R at an iteration boundary, of L between the phases: each was just solved from the other side."""
    run = Sequential(MF(factors=4), problem(1), seed=2, n_shards=5)
    for _ in range(3):
        run.step()
    for phase in range(phases % 2):
        run.run_phase(Context(2, 4, phase))
    table = run.tables[lost_table]
    lost = {lost_table: table.all_ids[1::3]}
    before = {name: blocks.copy() for name, blocks in run.state.items()}
    run.state[lost_table].put(
        Sequential(MF(factors=4), problem(1), seed=5, n_shards=5).state[lost_table].take(lost[lost_table])
    )
    work = run.repair(lost, Context(2, 4, phases % 2))
    for name, blocks in before.items():
        assert not run.state[name].differs_from(blocks).any()
    assert 0 < work < 0.5


def test_the_work_of_mending_rows_is_that_of_their_ratings() -> None:
    data = problem(1)
    run = Sequential(MF(factors=4), data, n_shards=5)
    lost = {"L": np.array([3, 8]), "R": np.array([0, 7, 11])}
    n_ratings = np.isin(data.user, lost["L"]).sum() + np.isin(data.item, lost["R"]).sum()
    assert run.repair(lost) == n_ratings / (2 * len(data.rating))


@pytest.mark.parametrize("n_shards", [1, 7])
def test_the_held_out_rmse_is_that_of_numpy(n_shards: int) -> None:
    train, held_out = load_with_held_out(problem(2), 0.2)
    run = Sequential(MF(factors=3), train, n_shards=n_shards)
    run.step()
    left, right = (run.state[name].value.astype(np.float64) for name in "LR")
    errors = held_out.rating - (left[held_out.user] * right[held_out.item]).sum(axis=1)
    found = run.metrics(run.model.held_out_shards(held_out, n_shards))
    assert found == {"rmse": pytest.approx(np.sqrt((errors**2).mean()), rel=1e-6)}

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.data.classification import Classification
from scarml.data.held_out import hold_out
from scarml.data.ratings import Ratings
from scarml.errors import UsageError


@given(st.integers(0, 99), st.floats(0, 1), st.integers(0, 9))
def test_every_one_is_in_one_part(n: int, fraction: float, seed: int) -> None:
    train, held_out = hold_out(n, fraction, seed)
    assert len(held_out) == round(fraction * n)
    assert sorted([*train.tolist(), *held_out.tolist()]) == list(range(n))
    assert (np.diff(train) > 0).all()
    assert (np.diff(held_out) > 0).all()


def test_the_choice_is_by_seed_alone() -> None:
    assert hold_out(100, 0.1, 5)[1].tolist() == hold_out(100, 0.1, 5)[1].tolist()
    assert hold_out(100, 0.1, 5)[1].tolist() != hold_out(100, 0.1, 6)[1].tolist()
    assert hold_out(12, 0.25)[1].tolist() == [2, 9, 11]  # on every machine, with every version of NumPy


@pytest.mark.parametrize(("n", "fraction"), [(-1, 0.5), (3, -0.1), (3, 1.1), (3, float("nan"))])
def test_wrong_argument_is_refused(n: int, fraction: float) -> None:
    with pytest.raises(UsageError, match="expected at least 0, and 0 to 1"):
        hold_out(n, fraction)


def test_examples_are_taken() -> None:
    data = Classification(np.arange(6).reshape(3, 2), np.array([0, 1, 1]), 2, np.array(["a", "b"]))
    some = data.take(np.array([2, 0]))
    assert (some.features.tolist(), some.labels.tolist(), some.n_classes) == ([[4, 5], [0, 1]], [1, 0], 2)
    assert some.classes is data.classes


def test_ratings_are_taken_and_nobody_loses_a_row() -> None:
    data = Ratings(np.array([0, 1, 1]), np.array([2, 0, 1]), np.array([1.0, 2, 3]), 2, 3, np.array([5, 6]))
    some = data.take(np.array([1]))
    assert (some.user.tolist(), some.item.tolist(), some.rating.tolist()) == ([1], [0], [2.0])
    assert (some.n_users, some.n_items, some.user_ids) == (2, 3, data.user_ids)

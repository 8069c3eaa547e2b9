from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.data.classification import Classification
from scarml.data.corpus import Corpus
from scarml.data.held_out import hold_out, load_with_held_out
from scarml.data.ratings import Ratings
from scarml.errors import DataError, UsageError


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


THREE = Classification(np.arange(6).reshape(3, 2), np.array([0, 1, 1]), 2, np.array(["a", "b"]))
TRIPLES = Ratings(np.array([0, 1, 1]), np.array([2, 0, 1]), np.array([1.0, 2, 3]), 2, 3, np.array([5, 6]))
TWO_TEXTS = Corpus(np.array([0, 1, 1]), np.array([2, 1]), 2, ("x", "y"))


@pytest.mark.parametrize(
    ("data", "sizes"),
    [
        (THREE, lambda d: d.n_examples),
        (TRIPLES, lambda d: d.n_ratings),
        (TWO_TEXTS, lambda d: d.n_documents),
        (np.arange(4), len),
        ((np.arange(4), np.arange(8).reshape(4, 2)), lambda d: len(d[0])),
    ],
)
def test_a_share_of_all_kinds_of_data_is_parted(data: Any, sizes: Any) -> None:
    train, held_out = load_with_held_out(data, 0.5, seed=1)
    assert type(train) is type(held_out) is type(data)
    assert sizes(train) + sizes(held_out) == sizes(data)
    assert sizes(held_out) > 0
    assert sizes(load_with_held_out(data)[0]) == sizes(data)
    assert load_with_held_out(data)[1] is None


def test_a_share_of_what_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match="no share of a dict can be held out"):
        load_with_held_out({"a": 1}, 0.5)


def test_classes_of_other_data_get_the_numbers_of_training() -> None:
    other = Classification(np.ones((2, 2)), np.array([0, 0]), 1, np.array(["b"]))
    _, made_alike = load_with_held_out(THREE, other)
    assert (made_alike.labels.tolist(), made_alike.n_classes) == ([1, 1], 2)


@pytest.mark.parametrize(
    ("train", "other", "sentence"),
    [
        (THREE, TRIPLES, "held-out data is a Ratings, training data a Classification"),
        (THREE, Classification(np.ones((1, 3)), np.array([0]), 2), "has 3 features; expected 2"),
        (THREE, Classification(np.ones((1, 2)), np.array([2]), 3), "has 3 classes; expected 2 at most"),
        (THREE, Classification(np.ones((1, 2)), np.array([0]), 1, np.array(["c"])), "has the class c, which"),
        (TRIPLES, Ratings(np.array([0]), np.array([0]), np.ones(1), 2, 2), r"other users and items .*\(\(2, 2\)"),
        (TRIPLES, Ratings(np.array([0]), np.array([0]), np.ones(1), 2, 3, np.array([7, 8])), "other users and items"),
        (TWO_TEXTS, Corpus(np.array([0]), np.array([1]), 2, ("y", "x")), "has other words than"),
    ],
)
def test_other_data_that_is_not_like_the_training_data_is_refused(train: Any, other: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        load_with_held_out(train, other)

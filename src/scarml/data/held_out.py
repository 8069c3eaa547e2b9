"""Splitting a data set into a part to train on and one to judge by."""

from __future__ import annotations

from typing import Any

import numpy as np

from scarml.core.block import Ids
from scarml.core.rng import stream
from scarml.data.classification import Classification
from scarml.data.corpus import Corpus
from scarml.data.ratings import Ratings
from scarml.data.registry import load, load_test
from scarml.errors import DataError, UsageError

__all__ = ["TEST", "hold_out", "load_with_held_out"]

TEST = "test"
"""As held-out data: the test part of the data set itself, for those that have one."""


def load_with_held_out(data: Any, held_out: Any = None, seed: int = 0) -> tuple[Any, Any]:
    """The data to train on, and the data to judge by.

    Args:
        data: of a model, or the name of a data set.
        held_out: a share of ``data``, above 0 and below 1, which `hold_out` chooses and which is not trained on; or
            other data, or the name of a data set; or ``test``, the test part of the data set ``data``; or None.
        seed: of the choice of a share.

    Returns:
        Training data and held-out data; None for the latter if nothing is held out.

    Raises:
        UsageError: a share is out of range, or holds out nothing or everything.
        DataError: there is no such data set, or the held-out data is not like the training data.

    Example:
        >>> train, held_out = load_with_held_out("mnist-10k", 0.2)
        >>> train.n_examples, held_out.n_examples
        (8000, 2000)
    """
    whole = load(data) if isinstance(data, str) else data
    match held_out:
        case None:
            return whole, None
        case bool() | int() | float():
            return _parted(whole, held_out, seed)
        case str() if held_out == TEST:
            if not isinstance(data, str):
                raise DataError("only data sets with a name have a test part; give a share, such as 0.1, or other data")
            other = load_test(data)
        case str():
            other = load(held_out)
        case _:
            other = held_out
    return whole, _made_alike(whole, other)


def _parted(data: Any, share: float, seed: int) -> tuple[Any, Any]:
    if isinstance(share, bool) or not 0 < share < 1:
        raise UsageError(f"the held-out share is {share}; expected a number above 0 and below 1, such as 0.1")
    n, what = _size(data)
    train, held_out = hold_out(n, share, seed)
    if not len(held_out) or not len(train):
        raise UsageError(f"a share of {share} of {n} {what} leaves nothing to train on, or nothing to judge by")
    return _take(data, train), _take(data, held_out)


def _size(data: Any) -> tuple[int, str]:
    match data:
        case Classification():
            return data.n_examples, "examples"
        case Ratings():
            return data.n_ratings, "ratings"
        case Corpus():
            return data.n_documents, "documents"
        case np.ndarray() if data.ndim:
            return len(data), "rows"
        case tuple() | list() if data and all(isinstance(a, np.ndarray) and a.ndim for a in data):
            return len(data[0]), "rows"
    raise UsageError(
        f"no share of a {type(data).__name__} can be held out; give the held-out data itself, or training data as a "
        "Classification, Ratings, a Corpus, an array, or arrays with one row an example"
    )


def _take(data: Any, some: Ids) -> Any:
    match data:
        case np.ndarray():
            return data[some]
        case tuple() | list():
            return tuple(a[some] for a in data)
    return data.take(some)


def _made_alike(train: Any, other: Any) -> Any:
    """Held-out data from elsewhere, with classes numbered as in training.

    Raises:
        DataError: it is of another kind, or its features, users, items or words are others.
    """
    if type(train) is not type(other):
        raise DataError(f"held-out data is a {type(other).__name__}, training data a {type(train).__name__}")
    match train:
        case Classification():
            if other.n_features != train.n_features:
                raise DataError(f"held-out data has {other.n_features} features; expected {train.n_features}")
            return _with_classes_of(train, other)
        case Ratings():
            sizes = (train.n_users, train.n_items), (other.n_users, other.n_items)
            ids = (train.user_ids, other.user_ids), (train.item_ids, other.item_ids)
            _check_same("users and items", *sizes, all(_are_same(a, b) for a, b in ids))
        case Corpus():
            same = None in (train.vocabulary, other.vocabulary) or train.vocabulary == other.vocabulary
            _check_same("words", train.n_words, other.n_words, same)
    return other


def _with_classes_of(train: Classification, other: Classification) -> Classification:
    if train.classes is None or other.classes is None:
        if other.n_classes > train.n_classes:
            raise DataError(f"held-out data has {other.n_classes} classes; expected {train.n_classes} at most")
        return Classification(other.features, other.labels, train.n_classes, train.classes)
    unknown = np.setdiff1d(other.classes, train.classes)
    if len(unknown):
        raise DataError(f"held-out data has the class {unknown[0]}, which training data does not have")
    number = {name: i for i, name in enumerate(train.classes.tolist())}
    numbers = np.array([number[name] for name in other.classes.tolist()], np.int64)
    return Classification(other.features, numbers[other.labels], train.n_classes, train.classes)


def _are_same(a: Any, b: Any) -> bool:
    return a is None or b is None or np.array_equal(a, b)


def _check_same(what: str, ours: Any, others: Any, same_names: bool) -> None:
    if ours != others or not same_names:
        numbers = "" if ours == others else f" ({others}, and {ours} in training)"
        raise DataError(f"held-out data has other {what} than training data{numbers}; hold out a share of it instead")


def hold_out(n: int, fraction: float, seed: int = 0) -> tuple[Ids, Ids]:
    """Choose a part at random, the same one for the same arguments.

    Args:
        n: examples, ratings or documents.
        fraction: of them to hold out, rounded to the nearest whole number.
        seed: of the choice.

    Returns:
        Which to train on and which to hold out, each ascending, for ``data.take``.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> train, held_out = hold_out(10, 0.2)
        >>> len(train), len(held_out)
        (8, 2)
    """
    if n < 0 or not 0 <= fraction <= 1:
        raise UsageError(f"n is {n} and fraction {fraction}; expected at least 0, and 0 to 1")
    # Sorting raw bits, since how NumPy's own permutations are drawn may change.
    order = np.argsort(stream(seed, "held out").bit_generator.random_raw(n), kind="stable")
    n_held_out = round(fraction * n)
    return np.sort(order[n_held_out:]), np.sort(order[:n_held_out])

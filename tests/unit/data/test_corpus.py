"""Corpora: what they refuse, and where they come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scarml.data.corpus import Corpus
from scarml.errors import DataError

GOOD: dict[str, Any] = {"words": np.array([0, 2, 1]), "lengths": np.array([2, 0, 1]), "n_words": 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": np.zeros(3)}, "words are float64"),
        ({"words": np.zeros((3, 1), int)}, "words are int64"),
        ({"lengths": np.array([3.0])}, "lengths are float64"),
        ({"lengths": np.array([4, -1])}, "document 1 has length -1"),
        ({"lengths": np.array([2, 2])}, "add up to 4 tokens; there are 3 words"),
        ({"n_words": 2}, "token 1 is word 2; expected 0 to 1"),
        ({"words": np.array([0, 1, -1])}, "token 2 is word -1"),
        ({"words": np.zeros(0, int), "lengths": np.zeros(0, int), "n_words": 0}, "n_words is 0"),
        ({"vocabulary": ("a",)}, "vocabulary has 1 words; expected n_words, 3"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Corpus(**{**GOOD, **change})


def test_documents_can_be_taken_in_any_order() -> None:
    some = Corpus(**GOOD, vocabulary=("a", "b", "c")).take(np.array([2, 1, 0]))
    assert (some.words.tolist(), some.lengths.tolist()) == ([1, 0, 2], [1, 0, 2])
    assert (some.n_words, some.vocabulary) == (3, ("a", "b", "c"))
    none = some.take(np.zeros(0, int))
    assert (none.n_documents, none.n_tokens) == (0, 0)


def test_counts_become_tokens() -> None:
    counts = np.array([[2, 0, 1], [0, 0, 0], [0, 3, 0]])
    rows, indices = np.nonzero(counts)
    indptr = np.searchsorted(rows, np.arange(4))
    corpus = Corpus.from_counts(indptr, indices, counts[rows, indices], 3)
    assert corpus.words.tolist() == [0, 0, 2, 1, 1, 1]
    assert corpus.lengths.tolist() == [3, 0, 3]


def test_counts_that_do_not_fit_are_refused() -> None:
    two = np.array([0, 1])
    with pytest.raises(DataError, match="a count is -1"):
        Corpus.from_counts(np.array([0, 2]), two, np.array([1, -1]), 2)
    with pytest.raises(DataError, match="do not fit"):
        Corpus.from_counts(np.array([0, 3]), two, two, 2)

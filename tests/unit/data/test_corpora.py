"""Corpora that have names: the numbers that were measured when they were packed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scarml.data.packed_counts import read_packed_counts
from scarml.data.registry import load, load_test
from scarml.errors import DataError


@pytest.mark.parametrize(
    ("name", "n_documents", "n_words", "n_tokens"),
    [
        pytest.param("20newsgroups", 18_821, 17_660, 2_186_612, marks=pytest.mark.ci),
        pytest.param("20newsgroups-5k", 11_293, 5_000, 1_096_024, marks=pytest.mark.ci),
        ("reuters-r52", 9_100, 6_930, 548_660),
        ("reuters-r8", 7_674, 5_952, 430_299),
        ("reuters-395", 395, 4_258, 84_010),
        pytest.param("kos", 3_430, 6_906, 467_714, marks=pytest.mark.ci),
    ],
)
@pytest.mark.usefixtures("data_dir")
def test_sizes(name: str, n_documents: int, n_words: int, n_tokens: int) -> None:
    corpus = load(name)
    assert (corpus.n_documents, corpus.n_words, corpus.n_tokens) == (n_documents, n_words, n_tokens)
    assert len(np.unique(corpus.words)) == n_words
    assert corpus.vocabulary is None or len(set(corpus.vocabulary)) == n_words


def test_words_may_be_chosen_by_other_documents(tmp_path: Path) -> None:
    counts = read_packed_counts(packed(tmp_path / "p.npz"))
    third, first = np.array([2]), np.array([0])
    assert counts.take(third, words_of=first).vocabulary == counts.take(first).vocabulary
    assert counts.take(third, words_of=first).n_tokens == 1, "one word of the third document is in the first one too"


@pytest.mark.usefixtures("data_dir")
def test_the_small_reuters_corpus_is_that_of_the_package() -> None:
    corpus = load("reuters-395")
    assert (corpus.lengths.min(), corpus.lengths.max()) == (36, 541)
    assert corpus.vocabulary[:3] == ("church", "pope", "years")


def packed(path: Path, **replaced: object) -> Path:
    arrays: dict[str, object] = {
        "indptr": np.array([0, 2, 2, 5], np.int32),
        "indices": np.array([0, 2, 1, 2, 3], np.uint16),
        "counts": np.array([2, 1, 1, 1, 3], np.uint16),
        "vocab": np.frombuffer(b"a\nb\nc\nd", np.uint8),
        "label": np.array([1, 0, 1], np.uint8),
        "label_names": np.frombuffer(b"x\ny", np.uint8),
        "n_train": np.array(2, np.int32),
    }
    kept = {name: a for name, a in {**arrays, **replaced}.items() if a is not None}
    np.savez(path, **kept)  # type: ignore[arg-type]
    return path


def test_packed_counts_become_tokens(tmp_path: Path) -> None:
    found = read_packed_counts(packed(tmp_path / "p.npz"))
    corpus = found.corpus()
    assert corpus.words.tolist() == [0, 0, 2, 1, 2, 3, 3, 3]
    assert corpus.lengths.tolist() == [3, 0, 5]
    assert corpus.vocabulary == ("a", "b", "c", "d")
    assert found.n_train == 2
    assert found.with_labels(["y"]).tolist() == [0, 2]


def test_words_are_chosen_by_the_documents_that_have_them(tmp_path: Path) -> None:
    found = read_packed_counts(packed(tmp_path / "p.npz"))
    assert found.take(np.array([0, 1, 2]), min_documents=2).vocabulary == ("c",)
    most = found.take(np.array([0, 1, 2]), max_words=2)
    assert (most.vocabulary, most.words.tolist(), most.lengths.tolist()) == (("a", "c"), [0, 0, 1, 1], [3, 0, 1])
    later = found.take(np.array([1, 2]))
    assert (later.vocabulary, later.lengths.tolist()) == (("b", "c", "d"), [0, 5])


def test_words_may_have_no_names(tmp_path: Path) -> None:
    path = packed(tmp_path / "p.npz", vocab=None, label=None, label_names=None, n_train=None)
    corpus = read_packed_counts(path).corpus()
    assert (corpus.n_words, corpus.vocabulary) == (4, None)
    with pytest.raises(DataError, match="no label_names with y"):
        read_packed_counts(path).with_labels(["y"])


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"indptr": np.array([0, 2, 5])}, "array 'label' is"),
        ({"indptr": np.array([0, 3, 2, 5])}, "indptr does not rise from 0 to 5"),
        ({"indptr": np.array([1, 2, 2, 5])}, "indptr does not rise"),
        ({"indptr": np.array([0, 2, 2, 6])}, "indptr does not rise"),
        ({"indptr": np.array([], int)}, "indptr does not rise"),
        ({"indices": np.array([0, 2, 1, 2, 4])}, "indices are 0 to 4; expected 0 to 3"),
        ({"indices": np.array([0, 2, -1, 2, 3])}, "indices are -1 to 3"),
        ({"indices": np.zeros(5)}, "array 'indices' is float64"),
        ({"counts": np.array([2, 1])}, "array 'counts' is"),
        ({"counts": np.array([2, 1, 0, 1, 3])}, "entry 2, counted from 0: count 0 is not from 1 to"),
        ({"counts": np.array([2, 1, 2**40, 1, 3])}, "entry 2, counted from 0: count 1099511627776 is not"),
        ({"vocab": np.array([255], np.uint8)}, "array 'vocab' is no text"),
        ({"n_train": np.array(4)}, "n_train is 4; expected 0 to 3"),
        ({"n_train": np.array([2])}, "array 'n_train' is"),
    ],
)
def test_wrong_array_is_named(tmp_path: Path, replaced: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=rf"p\.npz.* {message}"):
        read_packed_counts(packed(tmp_path / "p.npz", **replaced)).corpus()


def test_tokens_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scarml.data.counts.MAX_TOKENS", 7)
    with pytest.raises(DataError, match=r"has 8 tokens; expected at most 7"):
        read_packed_counts(packed(tmp_path / "p.npz")).corpus()


@pytest.mark.ci
@pytest.mark.usefixtures("data_dir")
def test_the_test_part_has_the_words_of_the_training_part() -> None:
    train, test = load("20newsgroups-5k"), load_test("20newsgroups-5k")
    assert (test.n_documents, test.n_words) == (7_528, 5_000)
    assert test.vocabulary == train.vocabulary

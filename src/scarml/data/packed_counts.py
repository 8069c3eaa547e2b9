"""Word counts in an ``.npz`` file, with what else is known of the documents.

A compressed sparse row matrix, documents by words: ``indptr``, ``indices``, ``counts``. Beside it, if known, ``vocab``,
the words in UTF-8, joined by line ends; ``label``, a number for each document, and ``label_names``, joined in the same
way; ``n_train``: so many documents, the first ones, are for training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scarml.core.block import Array, Ids
from scarml.data.corpus import Corpus
from scarml.data.counts import corpus_from_counts
from scarml.data.npz_file import array_names, check_form, read_arrays
from scarml.errors import DataError

__all__ = ["PackedCounts", "read_packed_counts"]


@dataclass(frozen=True, slots=True, eq=False)
class PackedCounts:
    """What such a file holds, checked.

    Args:
        path: of the file.
        indptr, words, counts: the matrix.
        n_words: its columns.
        vocabulary: the words themselves.
        label: a number for each document.
        label_names: what the numbers mean.
        n_train: documents for training, the first ones.
    """

    path: Path
    indptr: Ids
    words: Array
    counts: Array
    n_words: int
    vocabulary: tuple[str, ...] | None
    label: Array | None
    label_names: tuple[str, ...] | None
    n_train: int | None

    @property
    def n_documents(self) -> int:
        """Rows of the matrix."""
        return len(self.indptr) - 1

    def corpus(self) -> Corpus:
        """All documents."""
        return corpus_from_counts(
            self.path, np.diff(self.indptr), self.words, self.counts, self.n_words, self.vocabulary
        )

    def with_labels(self, names: Sequence[str]) -> Ids:
        """The documents that have one of these labels, ascending."""
        if self.label is None or self.label_names is None or not set(names) <= set(self.label_names):
            raise DataError(f"{self.path} has no label_names with {', '.join(names)}; get the file anew")
        return np.flatnonzero(np.isin(self.label, [self.label_names.index(name) for name in names]))

    def take(
        self,
        documents: Ids,
        min_documents: int = 0,
        max_words: int | None = None,
        words_of: Ids | None = None,
    ) -> Corpus:
        """Some of the documents, with those words only that are in so many of them.

        Args:
            documents: ascending.
            min_documents: each word that is kept is in at least so many of these documents.
            max_words: so many words, those in most of these documents, are kept; of equals the first.
            words_of: choose the words by these documents instead.
        """
        lengths = np.diff(self.indptr)
        row = np.repeat(np.arange(self.n_documents), lengths)
        judged = np.isin(row, documents if words_of is None else words_of)
        in_documents = np.bincount(self.words[judged], minlength=self.n_words)
        order = np.argsort(-in_documents, kind="stable")
        kept = np.sort(order[: int((in_documents >= max(min_documents, 1)).sum())][:max_words])
        number = np.full(self.n_words, -1)
        number[kept] = np.arange(len(kept))
        chosen = np.isin(row, documents) & (number[self.words] >= 0)
        per_document = np.bincount(row[chosen], minlength=self.n_documents)[documents]
        vocabulary = None if self.vocabulary is None else tuple(self.vocabulary[w] for w in kept)
        words, counts = number[self.words[chosen]], self.counts[chosen]
        return corpus_from_counts(self.path, per_document, words, counts, len(kept), vocabulary)


def read_packed_counts(path: Path) -> PackedCounts:
    """A file in the form above.

    Raises:
        DataError: naming the file, the array and what was expected.
    """
    there = set(array_names(path))
    optional = [n for n in ("vocab", "label", "label_names", "n_train") if n in there]
    arrays = read_arrays(path, ["indptr", "indices", "counts", *optional])
    indptr, indices, counts = arrays["indptr"], arrays["indices"], arrays["counts"]
    check_form(path, "indptr", indptr, "iu", (None,))
    check_form(path, "indices", indices, "iu", (None,))
    check_form(path, "counts", counts, "iu", indices.shape)
    indptr = indptr.astype(np.int64)
    if not len(indptr) or indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise DataError(f"{path}: indptr does not rise from 0 to {len(indices)}, the number of indices")
    vocabulary = _joined(path, "vocab", arrays)
    n_words = len(vocabulary) if vocabulary is not None else int(indices.max(initial=0)) + 1
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < n_words:
        raise DataError(f"{path}: indices are {indices.min()} to {indices.max()}; expected 0 to {n_words - 1}")
    label = arrays.get("label")
    if label is not None:
        check_form(path, "label", label, "iu", (len(indptr) - 1,))
    return PackedCounts(
        path,
        indptr,
        indices,
        counts,
        n_words,
        vocabulary,
        label,
        _joined(path, "label_names", arrays),
        _n_train(path, arrays, len(indptr) - 1),
    )


def _joined(path: Path, name: str, arrays: dict[str, Array]) -> tuple[str, ...] | None:
    if name not in arrays:
        return None
    check_form(path, name, arrays[name], "u", (None,))
    try:
        return tuple(arrays[name].astype(np.uint8).tobytes().decode().split("\n"))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: array {name!r} is no text in UTF-8 ({error})") from error


def _n_train(path: Path, arrays: dict[str, Array], n_documents: int) -> int | None:
    if "n_train" not in arrays:
        return None
    check_form(path, "n_train", arrays["n_train"], "iu", ())
    n = int(arrays["n_train"])
    if not 0 <= n <= n_documents:
        raise DataError(f"{path}: n_train is {n}; expected 0 to {n_documents}")
    return n

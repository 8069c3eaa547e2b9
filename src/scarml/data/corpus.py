"""Documents as word numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scarml.core.block import Array, Ids, flat_index
from scarml.errors import DataError

__all__ = ["Corpus"]


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Documents, one after the other, each a sequence of words.

    Args:
        words: for each token which word it is, 0 … n_words − 1, an integer dtype, shape (n_tokens,).
        lengths: tokens in each document, some perhaps none, int64, shape (n_documents,).
        n_words: different words there are, with or without tokens.
        vocabulary: the words themselves, n_words of them; None if only their numbers are known.

    Raises:
        DataError: if the sizes do not fit together or a word is out of range.

    Example:
        >>> corpus = Corpus(np.array([0, 2, 1, 1]), np.array([3, 0, 1]), n_words=3, vocabulary=("a", "b", "c"))
        >>> corpus.n_documents, corpus.n_tokens
        (3, 4)
        >>> corpus.take(np.array([2])).words.tolist()
        [1]
    """

    words: Array
    lengths: Ids
    n_words: int
    vocabulary: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for what, a in (("words", self.words), ("lengths", self.lengths)):
            if a.ndim != 1 or a.dtype.kind not in "iu":
                raise DataError(f"{what} are {a.dtype}{a.shape}; expected a row of integers")
        if self.lengths.min(initial=0) < 0:
            at = int(np.argmin(self.lengths))
            raise DataError(f"document {at} has length {self.lengths[at]}; expected at least 0")
        if self.lengths.sum() != len(self.words):
            raise DataError(f"the lengths add up to {self.lengths.sum()} tokens; there are {len(self.words)} words")
        if self.n_words < 1:
            raise DataError(f"n_words is {self.n_words}; expected at least 1")
        if len(self.words) and not (self.words.min() >= 0 and self.words.max() < self.n_words):
            at = int(np.flatnonzero((self.words < 0) | (self.words >= self.n_words))[0])
            raise DataError(f"token {at} is word {self.words[at]}; expected 0 to {self.n_words - 1}")
        if self.vocabulary is not None and len(self.vocabulary) != self.n_words:
            raise DataError(f"vocabulary has {len(self.vocabulary)} words; expected n_words, {self.n_words}")

    @classmethod
    def from_counts(
        cls, indptr: Array, indices: Array, counts: Array, n_words: int, vocabulary: tuple[str, ...] | None = None
    ) -> Corpus:
        """From counts by document and word, a compressed sparse row matrix as in SciPy; word order is lost there.

        Args:
            indptr: where each document's entries start, shape (n_documents + 1,).
            indices: the word of each entry.
            counts: how often it is in the document, whole numbers of at least 0.
            n_words: columns of the matrix.
            vocabulary: the words themselves.

        Example:
            >>> Corpus.from_counts(np.array([0, 2, 2]), np.array([0, 1]), np.array([2, 1]), n_words=2).words.tolist()
            [0, 0, 1]
        """
        if len(indices) != len(counts) or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
            raise DataError(f"{len(indices)} indices, {len(counts)} counts and indptr up to {indptr[-1]} do not fit")
        if len(counts) and counts.min() < 0:
            raise DataError(f"a count is {counts.min()}; expected at least 0")
        until = np.append(0, np.cumsum(counts, dtype=np.int64))
        return cls(np.repeat(indices.astype(np.int32), counts), np.diff(until[indptr]), n_words, vocabulary)

    @property
    def n_documents(self) -> int:
        """Documents, the empty ones too."""
        return len(self.lengths)

    @property
    def n_tokens(self) -> int:
        """Words in all documents, repetitions counted."""
        return len(self.words)

    def take(self, documents: Ids) -> Corpus:
        """Some of the documents, in the order given."""
        words = self.words[flat_index(self.lengths, documents)]
        return Corpus(words, self.lengths[documents], self.n_words, self.vocabulary)

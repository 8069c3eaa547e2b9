"""From counts of words in documents to a `Corpus`, within limits that no wrong file can exceed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scarml.core.block import Array, Ids
from scarml.data.corpus import Corpus
from scarml.data.text_file import read_blocks
from scarml.errors import DataError

__all__ = [
    "MAX_COUNT",
    "MAX_DOCUMENTS",
    "MAX_TOKENS",
    "MAX_WORDS",
    "check_sizes",
    "corpus_from_counts",
    "read_vocabulary",
]

# PubMed, the largest of the usual collections, has 8.2 million documents, 141 thousand words and 730 million tokens.
MAX_DOCUMENTS = 2**25
MAX_WORDS = 2**24
MAX_TOKENS = 2**30
MAX_COUNT = 2**20
"""Of one word in one document: a file of a few bytes must not ask for gigabytes of tokens."""


def corpus_from_counts(
    path: Path,
    lengths: Ids,
    words: Array,
    counts: Array,
    n_words: int,
    vocabulary: tuple[str, ...] | None,
) -> Corpus:
    """The documents in their order, each word repeated as often as it is counted.

    Args:
        path: of the file, for messages.
        lengths: entries of each document.
        words: the word of each entry.
        counts: how often it is in the document.
        n_words: how many words there are.
        vocabulary: the words themselves.

    Raises:
        DataError: if a number is out of range.
    """
    check_sizes(path, len(lengths), n_words)
    for what, values, low, high in (("word", words, 0, n_words - 1), ("count", counts, 1, MAX_COUNT)):
        wrong = np.flatnonzero((values < low) | (values > high))
        if len(wrong):
            at = int(wrong[0])
            raise DataError(f"{path}, entry {at}, counted from 0: {what} {values[at]} is not from {low} to {high}")
    n_tokens = int(counts.sum(dtype=np.int64))
    if n_tokens > MAX_TOKENS:
        raise DataError(f"{path} has {n_tokens:,} tokens; expected at most {MAX_TOKENS:,}")
    indptr = np.append(0, np.cumsum(lengths, dtype=np.int64))
    return Corpus.from_counts(indptr, words, counts, n_words, vocabulary)


def check_sizes(path: Path, n_documents: int, n_words: int) -> None:
    """Refuse what a wrong file says, before anything is allocated by it.

    Raises:
        DataError: if there are too many documents or words, or no words.
    """
    if not 1 <= n_words <= MAX_WORDS or n_documents > MAX_DOCUMENTS:
        raise DataError(
            f"{path} has {n_documents:,} documents and {n_words:,} words; expected at most {MAX_DOCUMENTS:,} and 1 to "
            f"{MAX_WORDS:,}"
        )


def read_vocabulary(path: Path, n_words: int | None = None) -> tuple[str, ...]:
    """One word a line, UTF-8.

    Args:
        path: of the file.
        n_words: how many there have to be.

    Raises:
        DataError: if it cannot be read or has another number of words.
    """
    words = tuple(word for _, lines in read_blocks(path, "utf-8") for word in lines)
    if n_words is not None and len(words) != n_words:
        raise DataError(f"{path} has {len(words):,} lines; expected {n_words:,}, one for each word")
    return words

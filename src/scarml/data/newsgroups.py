"""20 Newsgroups: 18,821 posts of 1993, as word counts.

From A. Cardoso-Cachopo's "all-terms" form of the version by date: words of at least 3 letters that are no English stop
words and are in at least 10 documents; the first 11,293 documents are the training part.

Source: K. Lang, NewsWeeder: Learning to Filter Netnews, ICML 1995; A. Cardoso-Cachopo, Improving Methods for
Single-label Text Categorization, PhD thesis, 2007.
"""

from __future__ import annotations

import numpy as np

from scarml.core.block import Ids
from scarml.data.corpus import Corpus
from scarml.data.location import find
from scarml.data.packed_counts import PackedCounts, read_packed_counts
from scarml.errors import DataError

__all__ = ["FILES", "FOLDER", "SOURCE", "load_newsgroups", "load_newsgroups_5k", "load_newsgroups_5k_test"]

FOLDER = "20newsgroups"
FILES = ("20ng-bow.npz",)
SOURCE = "https://ana.cachopo.org/datasets-for-single-label-text-categorization (packed as docs/reference/data.md says)"


def load_newsgroups() -> Corpus:
    """All documents: 2,186,612 tokens, 17,660 words.

    Raises:
        DataError: if the file is missing or damaged.
    """
    (path,) = find("20newsgroups", FOLDER, FILES, SOURCE)
    return read_packed_counts(path).corpus()


def load_newsgroups_5k() -> Corpus:
    """The training part with the 5,000 words that are in most of its documents: 1,096,024 tokens.

    Raises:
        DataError: if the file is missing or damaged.
    """
    packed, train = _with_training_part()
    return packed.take(train, max_words=5_000)


def load_newsgroups_5k_test() -> Corpus:
    """The test part, 7,528 documents, with the words of `load_newsgroups_5k`; others are left out.

    Raises:
        DataError: if the file is missing or damaged.
    """
    packed, train = _with_training_part()
    test = np.arange(len(train), packed.n_documents)
    return packed.take(test, max_words=5_000, words_of=train)


def _with_training_part() -> tuple[PackedCounts, Ids]:
    (path,) = find("20newsgroups-5k", FOLDER, FILES, SOURCE)
    packed = read_packed_counts(path)
    if packed.n_train is None:
        raise DataError(f"{path} has no array 'n_train'; expected how many documents are for training")
    return packed, np.arange(packed.n_train)

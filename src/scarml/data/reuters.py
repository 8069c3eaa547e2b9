"""Reuters news, as word counts, in two forms.

* R52 and R8: the documents of Reuters-21578, Distribution 1.0, that have one topic, of 52 and of the 8 largest, from
  A. Cardoso-Cachopo's "all-terms" form: words of at least 3 letters that are no English stop words and are in at least
  5 documents.
* 395 documents of 1996, as they come with the Python package lda.

Source: D. D. Lewis, Reuters-21578, Distribution 1.0; A. Cardoso-Cachopo, Improving Methods for Single-label Text
Categorization, PhD thesis, 2007; the package lda, https://pypi.org/project/lda.
"""

from __future__ import annotations

from scarml.data.corpus import Corpus
from scarml.data.lda_c import read_lda_c
from scarml.data.location import find
from scarml.data.packed_counts import read_packed_counts

__all__ = [
    "FILES",
    "FILES_395",
    "FOLDER",
    "SOURCE",
    "SOURCE_395",
    "load_reuters_395",
    "load_reuters_r8",
    "load_reuters_r52",
]

FOLDER = "reuters"
FILES = ("r52-bow.npz",)
SOURCE = "https://ana.cachopo.org/datasets-for-single-label-text-categorization (packed as docs/reference/data.md says)"
FILES_395 = ("lda395.ldac", "lda395.tokens")
SOURCE_395 = "https://pypi.org/project/lda (lda/tests/reuters.ldac and reuters.tokens, under these names)"

_R8 = ("acq", "crude", "earn", "grain", "interest", "money-fx", "ship", "trade")
_MIN_DOCUMENTS = 5


def load_reuters_r52() -> Corpus:
    """9,100 documents, training part first: 548,660 tokens, 6,930 words.

    Raises:
        DataError: if the file is missing or damaged.
    """
    (path,) = find("reuters-r52", FOLDER, FILES, SOURCE)
    return read_packed_counts(path).corpus()


def load_reuters_r8() -> Corpus:
    """The 7,674 documents of R52 with one of the 8 largest topics: 430,299 tokens, 5,952 words in at least 5 of them.

    Raises:
        DataError: if the file is missing or damaged.
    """
    (path,) = find("reuters-r8", FOLDER, FILES, SOURCE)
    packed = read_packed_counts(path)
    return packed.take(packed.with_labels(_R8), min_documents=_MIN_DOCUMENTS)


def load_reuters_395() -> Corpus:
    """395 documents: 84,010 tokens, 4,258 words.

    Raises:
        DataError: if a file is missing or damaged.
    """
    path, _ = find("reuters-395", FOLDER, FILES_395, SOURCE_395)
    return read_lda_c(path)

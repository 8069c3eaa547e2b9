"""KOS: 3,430 blog entries, 467,714 tokens of 6,906 words, in the form of UCI's bag of words.

Source: D. Newman, Bag of Words, UCI Machine Learning Repository, 2008.
"""

from __future__ import annotations

from scarml.data.bag_of_words import read_bag_of_words
from scarml.data.corpus import Corpus
from scarml.data.location import find

__all__ = ["FILES", "FOLDER", "SOURCE", "load_kos"]

FOLDER = "kos"
FILES = ("docword.kos.txt.gz",)
SOURCE = "https://archive.ics.uci.edu/dataset/164/bag+of+words"


def load_kos() -> Corpus:
    """The documents; words have numbers only, unless ``vocab.kos.txt`` lies beside the file.

    Raises:
        DataError: if the file is missing or damaged.
    """
    (path,) = find("kos", FOLDER, FILES, SOURCE)
    return read_bag_of_words(path)

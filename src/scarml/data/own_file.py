"""A file of the user's own: its name says how it is read, and what is in it says what it is.

``--data`` takes a path wherever it takes the name of a data set; a path has a ``/`` or a ``.`` in it, and no name has.
`READERS` is the table of suffixes; each may be followed by ``.gz`` where the file is text.

A matrix written by ``scipy.sparse.save_npz`` does not say whether it is ratings or word counts. A word before the path
does: ``ratings:visits.npz``, ``corpus:words.npz``, ``classification:rows.npz``. It may stand before any path, and is
then an expectation that is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from scarml.data.bag_of_words import read_bag_of_words
from scarml.data.classification import Classification
from scarml.data.corpus import Corpus
from scarml.data.csv_ratings import ratings_from, read_csv_ratings
from scarml.data.labelled_rows import classification_from
from scarml.data.lda_c import read_lda_c
from scarml.data.location import is_file
from scarml.data.npz_file import array_names, check_form, read_arrays
from scarml.data.packed_counts import read_packed_counts
from scarml.data.parquet import read_parquet
from scarml.data.ratings import Ratings
from scarml.data.sparse_matrix import is_sparse_matrix, labels_path, read_sparse_matrix
from scarml.data.svmlight import read_svmlight
from scarml.errors import DataError

__all__ = ["KINDS", "READERS", "is_path", "read_own_file"]

KINDS: Mapping[str, type] = {"classification": Classification, "ratings": Ratings, "corpus": Corpus}


def is_path(name: str) -> bool:
    """Whether what ``--data`` got is a path, and not the name of a data set.

    Example:
        >>> is_path("mnist-10k"), is_path("mine.csv"), is_path("ratings:data/mine.npz")
        (False, True, True)
    """
    return "/" in name or "." in name or name.partition(":")[0] in KINDS


def read_own_file(name: str) -> Classification | Ratings | Corpus:
    """What is in the file.

    Args:
        name: its path, perhaps with one of `KINDS` and a colon before it.

    Raises:
        DataError: if there is no such file, nothing here reads it, or it is not what was expected.
    """
    before, colon, after = name.partition(":")
    kind, path = (before, Path(after)) if colon and before in KINDS else ("", Path(name))
    path = _expanded(path)
    if not is_file(path):
        what = "is a folder; expected a file" if path.is_dir() else "is not there"
        raise DataError(f"the data file {path} {what}; scarml data list shows the data sets that have names")
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix not in READERS:
        known = ", ".join(READERS)
        raise DataError(f"{path} ends in {suffix or 'nothing'!r}, which nothing here reads; expected one of {known}")
    data = _read_npz(path, kind) if suffix == ".npz" else READERS[suffix][1](path)
    if kind and not isinstance(data, KINDS[kind]):
        held = next(word for word, of in KINDS.items() if isinstance(data, of))
        raise DataError(f"{path} is read as {held}; expected {kind}, as the word before the path says")
    return data


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # ~x, where x is nobody
        return path


def _read_npz(path: Path, kind: str = "") -> Classification | Ratings | Corpus:
    """Which arrays are in the file says what it is."""
    names = array_names(path)
    if is_sparse_matrix(names):
        return _read_sparse(path, kind)
    for features, labels in (("features", "labels"), ("X", "y")):
        if {features, labels} <= set(names):
            arrays = read_arrays(path, (features, labels))
            return classification_from(path, arrays[features], arrays[labels])
    if {"user", "item", "rating"} <= set(names):
        return _ratings(path)
    if {"indptr", "indices", "counts"} <= set(names):
        return read_packed_counts(path).corpus()
    has = ", ".join(names)[:300] or "none"
    raise DataError(
        f"{path} has the arrays {has}; expected features and labels (or X and y), or user, item and rating, or indptr, "
        "indices and counts, or a matrix from scipy.sparse.save_npz"
    )


def _read_sparse(path: Path, kind: str) -> Classification | Ratings | Corpus:
    if not kind and not is_file(labels_path(path)):
        raise DataError(
            f"{path} is a sparse matrix, which may be many things; say which: ratings:{path}, corpus:{path}, or put "
            f"labels into {labels_path(path).name} beside it"
        )
    matrix = read_sparse_matrix(path)
    if kind == "ratings":
        return matrix.ratings()
    return matrix.corpus() if kind == "corpus" else matrix.classification()


def _ratings(path: Path) -> Ratings:
    arrays = read_arrays(path, ("user", "item", "rating"))
    n = len(arrays["rating"]) if arrays["rating"].ndim else 0
    for name, kinds in (("user", "iu"), ("item", "iu"), ("rating", "fiu")):
        check_form(path, name, arrays[name], kinds, (n,))
    user, item = (np.unique(arrays[name], return_inverse=True) for name in ("user", "item"))
    return ratings_from(path, user, item, arrays["rating"], where="rating {}, counted from 0,".format)


READERS: Mapping[str, tuple[str, Callable[[Path], Classification | Ratings | Corpus]]] = {
    ".npz": ("arrays of NumPy, or a sparse matrix of SciPy", _read_npz),
    ".parquet": ("labelled examples, or ratings", read_parquet),
    ".svmlight": ("labelled examples, label index:value … a line", read_svmlight),
    ".libsvm": ("the same", read_svmlight),
    ".csv": ("ratings, user,item,rating a line", read_csv_ratings),
    ".tsv": ("the same, with tabs", read_csv_ratings),
    ".ldac": ("a corpus, n word:count … a line", read_lda_c),
    ".txt": ("a corpus, UCI bag of words: document word count a line", read_bag_of_words),
}
"""Suffix to what is in such a file, in words, and its reader."""

"""A matrix that ``scipy.sparse.save_npz`` has written. It may be ratings, word counts or features.

* ratings: users by items; every stored entry is a rating, also a zero;
* a corpus: documents by words, whole numbers;
* features: examples by features; the labels are in ``<name>.labels.npy`` beside ``<name>.npz``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scarml.core.block import Array, Ids
from scarml.data.classification import Classification
from scarml.data.corpus import Corpus
from scarml.data.counts import MAX_COUNT, check_sizes, corpus_from_counts
from scarml.data.labelled_rows import classification_from_entries
from scarml.data.npz_file import check_form, read_array, read_arrays
from scarml.data.ratings import Ratings
from scarml.errors import DataError

__all__ = ["SparseMatrix", "is_sparse_matrix", "labels_path", "read_sparse_matrix"]

MAX_SIDE = 2**27
"""Rows, and columns: users or items, for example."""

_ARRAYS = {"csr": ("data", "indices", "indptr"), "csc": ("data", "indices", "indptr"), "coo": ("data", "row", "col")}


@dataclass(frozen=True, slots=True, eq=False)
class SparseMatrix:
    """The stored entries, by rows.

    Args:
        path: of the file.
        shape: rows, columns.
        rows, columns: where each entry is; rows ascend.
        values: numbers.
    """

    path: Path
    shape: tuple[int, int]
    rows: Ids
    columns: Ids
    values: Array

    def ratings(self) -> Ratings:
        """Rows as users, columns as items."""
        pair = np.sort(self.rows * self.shape[1] + self.columns)
        if (pair[1:] == pair[:-1]).any():
            raise DataError(f"{self.path} has two entries in one place; expected one rating for each pair")
        with np.errstate(over="ignore"):
            ratings = self.values.astype(np.float32)
        wrong = np.flatnonzero(~np.isfinite(ratings))
        if len(wrong):
            raise DataError(f"{self.path} has the rating {self.values[wrong[0]]}; expected one that float32 can hold")
        return Ratings(self.rows, self.columns, ratings, *self.shape)

    def corpus(self) -> Corpus:
        """Rows as documents, columns as words."""
        check_sizes(self.path, *self.shape)
        some = self.values != 0
        counts = self.values[some].astype(np.float64)
        wrong = np.flatnonzero(counts != np.floor(counts))
        if len(wrong):
            raise DataError(f"{self.path} has the count {counts[wrong[0]]}; expected whole numbers")
        lengths = np.bincount(self.rows[some], minlength=self.shape[0])
        whole = np.clip(counts, -1, MAX_COUNT + 1).astype(np.int64)  # what is out of range stays so
        return corpus_from_counts(self.path, lengths, self.columns[some], whole, self.shape[1], vocabulary=None)

    def classification(self) -> Classification:
        """Rows as examples, columns as features."""
        entries = (self.rows, self.columns, self.values)
        return classification_from_entries(self.path, self.shape, entries, read_array(labels_path(self.path)))


def is_sparse_matrix(names: list[str]) -> bool:
    """Whether these are the names of the arrays in such a file."""
    return {"format", "shape", "data"} <= set(names)


def labels_path(path: Path) -> Path:
    """Where the labels of a matrix of features are."""
    return path.with_suffix(".labels.npy")


def read_sparse_matrix(path: Path) -> SparseMatrix:
    """A matrix in one of the forms csr, csc and coo.

    Raises:
        DataError: naming the file, the array and what was expected.
    """
    head = read_arrays(path, ("format", "shape"))
    name = str(np.asarray(head["format"]).astype("U3")) if head["format"].dtype.kind in "SU" else ""
    if name not in _ARRAYS or head["format"].ndim:
        raise DataError(f"{path} has a matrix in form {name!r}; expected one of {', '.join(_ARRAYS)}: matrix.tocsr()")
    check_form(path, "shape", head["shape"], "iu", (2,))
    n_rows, n_columns = (int(n) for n in head["shape"])
    if not (0 <= n_rows <= MAX_SIDE and 0 < n_columns <= MAX_SIDE):
        raise DataError(f"{path} has {n_rows} rows and {n_columns} columns; expected at most {MAX_SIDE}, and a column")
    arrays = read_arrays(path, _ARRAYS[name])
    values = arrays["data"]
    check_form(path, "data", values, "fiub", (None,))
    if not np.isfinite(values).all():
        raise DataError(f"{path} has an entry that is not finite, {np.flatnonzero(~np.isfinite(values))[0]} from 0")
    if name == "coo":
        rows, columns = (_indices(path, n, arrays[n], len(values), h) for n, h in (("row", n_rows), ("col", n_columns)))
    else:
        lines = (n_rows, n_columns) if name == "csr" else (n_columns, n_rows)
        minor = _indices(path, "indices", arrays["indices"], len(values), lines[1])
        major = np.repeat(np.arange(lines[0]), np.diff(_indptr(path, arrays["indptr"], lines[0], len(values))))
        rows, columns = (major, minor) if name == "csr" else (minor, major)
    order = np.argsort(rows, kind="stable")
    return SparseMatrix(path, (n_rows, n_columns), rows[order], columns[order], values[order])


def _indices(path: Path, name: str, indices: Array, n: int, high: int) -> Ids:
    check_form(path, name, indices, "iu", (n,))
    if n and not 0 <= int(indices.min()) <= int(indices.max()) < high:
        raise DataError(f"{path}: {name} is from {indices.min()} to {indices.max()}; expected 0 to {high - 1}")
    return indices.astype(np.int64)


def _indptr(path: Path, indptr: Array, n_lines: int, n: int) -> Ids:
    check_form(path, "indptr", indptr, "iu", (n_lines + 1,))
    starts = indptr.astype(np.int64)
    if starts[0] != 0 or starts[-1] != n or (np.diff(starts) < 0).any():
        raise DataError(f"{path}: indptr does not rise from 0 to {n}, the number of entries")
    return starts

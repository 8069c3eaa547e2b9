"""From rows of features and a label each, in whatever form a file has them, to a `Classification`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scarml.core.block import Array, Ids
from scarml.data.classification import Classification
from scarml.errors import DataError

__all__ = ["MAX_CLASSES", "MAX_DENSE_BYTES", "classification_from", "classification_from_entries"]

MAX_DENSE_BYTES = 2**32
"""What features may take as a dense matrix of float32; sparse ones are made dense."""

MAX_CLASSES = 2**16

_ROWS_AT_ONCE = 1024


def classification_from(path: Path, features: Array, labels: Array) -> Classification:
    """Classes are the different labels in ascending order: whole numbers, or text.

    Args:
        path: of the file, for messages.
        features: one row an example.
        labels: one each.

    Raises:
        DataError: if the labels are no classes, a feature is not finite, or the shapes do not fit together.

    Example:
        >>> data = classification_from(Path("a"), np.zeros((3, 1)), np.array(["b", "a", "b"]))
        >>> data.labels.tolist(), data.classes.tolist()
        ([1, 0, 1], ['a', 'b'])
    """
    if features.ndim != 2 or features.dtype.kind not in "fiub" or labels.shape != (len(features),):
        raise DataError(
            f"{path} has features {features.dtype}{features.shape} and labels {labels.dtype}{labels.shape}; expected a "
            "matrix of numbers, and one label for each of its rows"
        )
    if not len(labels):
        raise DataError(f"{path} has no examples; expected at least one")
    if features.dtype.kind == "f":
        _check_finite(path, features)
    if labels.dtype.kind == "f":
        wrong = np.flatnonzero(~(np.abs(labels) < 2**53) | (labels != np.floor(labels)))
        if len(wrong):
            raise DataError(f"{path}, example {wrong[0]} has label {labels[wrong[0]]}; expected whole numbers or text")
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iubU":
        raise DataError(f"{path} has labels of {labels.dtype}; expected whole numbers or text")
    classes, label = np.unique(labels, return_inverse=True)
    if len(classes) > MAX_CLASSES:
        raise DataError(f"{path} has {len(classes):,} different labels; expected at most {MAX_CLASSES:,} classes")
    return Classification(features, label.astype(np.int32), len(classes), classes)


def _check_finite(path: Path, features: Array) -> None:
    for begin in range(0, len(features), _ROWS_AT_ONCE):
        wrong = np.argwhere(~np.isfinite(features[begin : begin + _ROWS_AT_ONCE]))
        if len(wrong):
            row, column = begin + int(wrong[0, 0]), int(wrong[0, 1])
            found = features[row, column]
            raise DataError(f"{path}, example {row}: feature {column} is {found}; expected a finite number")


def classification_from_entries(
    path: Path, shape: tuple[int, int], entries: tuple[Ids, Ids, Array], labels: Array
) -> Classification:
    """The same from rows, columns and values of the features that are not zero; they are made dense.

    Raises:
        DataError: also if the dense features would be larger than `MAX_DENSE_BYTES`.
    """
    size = 4 * shape[0] * shape[1]
    if size > MAX_DENSE_BYTES:
        raise DataError(
            f"{path} has {shape[0]:,} rows of {shape[1]:,} features, which are {size:,} bytes as a dense matrix of "
            f"float32; expected at most {MAX_DENSE_BYTES:,}, since sparse features are made dense"
        )
    rows, columns, values = entries
    features = np.zeros(shape, np.float32)
    with np.errstate(over="ignore"):  # infinite ones are found, and named, below
        features[rows, columns] = values
    return classification_from(path, features, labels)

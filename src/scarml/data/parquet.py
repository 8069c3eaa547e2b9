"""Parquet files, with the optional package pyarrow.

A column ``label`` makes it labelled examples, every other column being a feature; columns ``user``, ``item`` and
``rating``, called as in `csv_ratings`, make it ratings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from scarml.core.block import Array, Ids
from scarml.data.classification import Classification
from scarml.data.csv_ratings import find_columns, ratings_from
from scarml.data.labelled_rows import MAX_DENSE_BYTES, classification_from
from scarml.data.ratings import Ratings
from scarml.errors import DataError

__all__ = ["read_parquet"]

LABEL = "label"


def read_parquet(path: Path) -> Classification | Ratings:
    """What the names of its columns say.

    Raises:
        DataError: if pyarrow is missing; if the file is damaged, or its columns are not as said above.
    """
    try:
        import pyarrow
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(f"{path} needs pyarrow, which is not installed: pip install 'scarml[parquet]'") from None
    try:
        with pq.ParquetFile(path) as file:
            names: list[str] = list(file.schema_arrow.names)
            size = 4 * file.metadata.num_rows * len(names)
            if size > MAX_DENSE_BYTES:
                raise DataError(f"{path} holds {size:,} bytes as float32; expected at most {MAX_DENSE_BYTES:,}")
            columns = find_columns(names)
            wanted = [names[c] for c in columns] if columns and LABEL not in names else names
            table = file.read(columns=wanted)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read ({str(error)[:200]}); expected a Parquet file") from error
    if LABEL in names:
        return _classification(path, table, names)
    if columns is None:
        has = ", ".join(names)[:300]
        raise DataError(f"{path} has the columns {has}; expected {LABEL} and features, or user, item and rating")
    user, item, rating = (_column(path, table, name) for name in wanted)
    if rating.dtype.kind not in "fiu" or len(rating) == 0:
        raise DataError(f"{path} has {len(rating)} ratings of {rating.dtype}; expected numbers, and at least one")
    return ratings_from(path, _names(user), _names(item), rating, where=lambda at: f"row {at}, counted from 0,")


def _classification(path: Path, table: Any, names: list[str]) -> Classification:
    others = [name for name in names if name != LABEL]
    if len(set(names)) < len(names) or not others:
        raise DataError(f"{path} has the columns {', '.join(names)[:300]}; expected {LABEL}, features, and none twice")
    labels = _column(path, table, LABEL)
    features = np.empty((len(labels), len(others)), np.float32)
    for i, name in enumerate(others):
        column = _column(path, table, name)
        if column.dtype.kind not in "fiub":
            raise DataError(f"{path}, column {name!r} is {column.dtype}; expected numbers")
        with np.errstate(over="ignore"):
            features[:, i] = column
    return classification_from(path, features, labels)


def _column(path: Path, table: Any, name: str) -> Array:
    column = table.column(name)
    if column.null_count:
        raise DataError(f"{path}, column {name!r} has {column.null_count} missing values; expected none")
    values: Array = column.to_numpy()
    return values.astype(np.str_) if values.dtype.kind == "O" else values


def _names(column: Array) -> tuple[Array, Ids]:
    names, used = np.unique(column, return_inverse=True)
    return names, used

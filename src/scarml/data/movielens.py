"""MovieLens, the small version of October 2016: 100,004 ratings by 671 users of 9,066 movies.

The data set lists 9,125 movies; the 59 that nobody rated are left out, since nothing can be learned of them.

Source: F. M. Harper, J. A. Konstan, The MovieLens Datasets: History and Context, ACM TiiS 5(4), 2015.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np

from scarml.core.block import Array
from scarml.data.location import find
from scarml.data.ratings import Ratings
from scarml.errors import DataError

__all__ = ["FILES", "FOLDER", "SOURCE", "load_movielens", "read_ratings"]

FOLDER = "movielens-small-2016"
FILES = ("ratings.csv",)
SOURCE = "https://grouplens.org/datasets/movielens/ (ml-latest-small of October 2016)"

_HEADER = "userId,movieId,rating,timestamp"
_LINE = np.dtype([("user", np.int64), ("item", np.int64), ("rating", np.float64), ("timestamp", np.int64)])


def load_movielens() -> Ratings:
    """The ratings; users and movies in ascending order of their original ids.

    Raises:
        DataError: if the file is missing or damaged.
    """
    (path,) = find("movielens", FOLDER, FILES, SOURCE)
    return read_ratings(path)


def read_ratings(path: Path) -> Ratings:
    r"""A ratings file: the header line, then ``userId,movieId,rating,timestamp`` a line, one for each pair.

    Raises:
        DataError: naming the file, the line and what was expected.

    Example:
        >>> from pathlib import Path; import tempfile
        >>> path = Path(tempfile.mkdtemp(), "ratings.csv")
        >>> _ = path.write_text("userId,movieId,rating,timestamp\n7,31,2.5,0\n9,10,4.0,0\n")
        >>> read_ratings(path).item_ids.tolist()
        [10, 31]
    """
    try:
        lines = path.read_bytes().decode("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}); expected an ASCII file of ratings") from error
    if not lines or lines[0] != _HEADER:
        raise DataError(f"{path}, line 1 is {lines[0][:60] if lines else ''!r}; expected {_HEADER!r}")
    if len(lines) == 1:
        raise DataError(f"{path} ends after line 1; expected at least one rating")
    table = _parse(path, lines[1:])
    user_ids, user = np.unique(table["user"], return_inverse=True)
    item_ids, item = np.unique(table["item"], return_inverse=True)
    _check_pairs(path, table, user * len(item_ids) + item)
    return Ratings(
        user.astype(np.int32),
        item.astype(np.int32),
        table["rating"].astype(np.float32),
        n_users=len(user_ids),
        n_items=len(item_ids),
        user_ids=user_ids,
        item_ids=item_ids,
    )


def _parse(path: Path, lines: list[str]) -> Array:
    """All lines at once; line by line only to find the one that is wrong."""
    table = np.zeros(0, _LINE)
    if all(map(str.strip, lines)):  # NumPy would pass over an empty line
        with contextlib.suppress(ValueError):
            table = np.loadtxt(lines, _LINE, delimiter=",", comments=None, ndmin=1)
    if len(table) != len(lines) or not np.isfinite(table["rating"]).all():
        _raise_for_first_wrong(path, lines)
    return table


def _raise_for_first_wrong(path: Path, lines: list[str]) -> None:
    for number, line in enumerate(lines, start=2):
        try:
            user, item, rating, timestamp = line.split(",")
            fine = all(-(2**63) <= int(text) < 2**63 for text in (user, item, timestamp)) and np.isfinite(float(rating))
        except ValueError:
            fine = False
        if not fine:
            raise DataError(f"{path}, line {number} is {line[:60]!r}; expected {_HEADER} in numbers")
    raise DataError(f"{path} cannot be read as lines of {_HEADER}")


def _check_pairs(path: Path, table: Array, pair: Array) -> None:
    _, first, count = np.unique(pair, return_index=True, return_counts=True)
    if (count > 1).any():
        twice = int(first[count > 1].min())
        again = int(np.flatnonzero(pair == pair[twice])[1])
        raise DataError(
            f"{path}, line {again + 2} rates movie {table['item'][twice]} by user {table['user'][twice]} again, "
            f"after line {twice + 2}; expected one rating for each pair"
        )

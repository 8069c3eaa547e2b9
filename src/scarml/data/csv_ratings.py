"""Ratings of the user's own: ``user,item,rating`` a line.

With a header line the columns are found by name (``user``, ``userId``, ``user_id``; ``item``, ``movie`` and the like;
``rating``) and others may stand between them; without one, the first three count. Users and items may be called
anything. A file whose name ends in ``.tsv`` has tabs instead of commas.
"""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from scarml.core.block import Array, Ids
from scarml.data.ratings import Ratings
from scarml.data.text_file import read_lines
from scarml.errors import DataError

__all__ = ["find_columns", "ratings_from", "read_csv_ratings"]

_USER_NAMES = ("user", "userid")
_ITEM_NAMES = ("item", "itemid", "movie", "movieid", "product", "productid", "joke", "jokeid")
_RATING_NAMES = ("rating",)

_EXPECTED = "expected user, item and a finite rating"


class _Numbering:
    """Numbers names in the order of their first use."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}
        self.used = array("q")

    def add(self, name: str) -> None:
        """The next user or item."""
        self.used.append(self.number.setdefault(name, len(self.number)))

    def names(self) -> Array:
        """The names by number: as integers if all of them are such and are written in the usual way."""
        names = list(self.number)
        if all(n.removeprefix("-").isdecimal() and len(n) < 19 and str(int(n)) == n for n in names):
            return np.array([int(n) for n in names], np.int64)
        return np.array(names)


def read_csv_ratings(path: Path) -> Ratings:
    r"""The ratings; users and items in ascending order of their names.

    Raises:
        DataError: naming file, line and what was expected.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "mine.csv")
        >>> _ = path.write_text("user,item,rating\nann,tea,4.5\nbob,ink,2\n")
        >>> read_csv_ratings(path).item_ids.tolist()
        ['ink', 'tea']
    """
    rows = _rows(path)
    number, first = next(rows, (1, []))
    columns = find_columns(first)
    has_header = columns is not None
    users, items, ratings = _Numbering(), _Numbering(), array("d")
    width = len(first)
    if columns is None:
        columns = (0, 1, 2)
        _add(path, number, first, columns, (users, items, ratings))
    for number, row in rows:
        if len(row) != width:
            raise DataError(
                f"{path}, line {number} has {len(row)} fields; {_EXPECTED}, and {width} fields as in line 1"
            )
        _add(path, number, row, columns, (users, items, ratings))
    if not ratings:
        raise DataError(f"{path} ends after line 1; expected at least one rating")
    return ratings_from(
        path,
        (users.names(), np.array(users.used, np.int64)),
        (items.names(), np.array(items.used, np.int64)),
        np.array(ratings),
        where=lambda at: f"line {at + 1 + has_header}",
    )


def find_columns(header: list[str]) -> tuple[int, int, int] | None:
    """Where user, item and rating stand, by the names of the columns; None if one is not there, or there twice."""
    names = [name.strip().lower().replace("_", "") for name in header]
    found = [[i for i, n in enumerate(names) if n in known] for known in (_USER_NAMES, _ITEM_NAMES, _RATING_NAMES)]
    if any(len(at) != 1 for at in found):
        return None
    return found[0][0], found[1][0], found[2][0]


def ratings_from(
    path: Path, users: tuple[Array, Ids], items: tuple[Array, Ids], ratings: Array, where: Callable[[int], str]
) -> Ratings:
    """Names, and for each rating a number among them, to ratings with names in ascending order.

    Args:
        path: of the file, for messages.
        users, items: different names, and which of them each rating has.
        ratings: finite numbers.
        where: names a rating, for messages.

    Raises:
        DataError: if a pair is rated twice or a rating is not finite.
    """
    (user_ids, user), (item_ids, item) = _ascending(*users), _ascending(*items)
    with np.errstate(over="ignore"):
        rating = ratings.astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(rating))
    if len(wrong):
        raise DataError(f"{path}, {where(int(wrong[0]))} has rating {ratings[wrong[0]]}; {_EXPECTED}")
    pair = user.astype(np.int64) * len(item_ids) + item
    order = np.argsort(pair, kind="stable")
    again = order[1:][pair[order[1:]] == pair[order[:-1]]]
    if len(again):
        at = int(again.min())
        raise DataError(
            f"{path}, {where(at)} rates {item_ids[item[at]]!s:.40} by {user_ids[user[at]]!s:.40} again, after "
            f"{where(int(np.flatnonzero(pair == pair[at])[0])).rstrip(',')}; expected one rating for each pair"
        )
    return Ratings(user, item, rating, len(user_ids), len(item_ids), user_ids, item_ids)


def _ascending(names: Array, used: Ids) -> tuple[Array, Array]:
    order = np.argsort(names, kind="stable")
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return names[order], place[used]


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    delimiter = "\t" if ".tsv" in path.suffixes else ","
    for number, line in read_lines(path, "utf-8"):
        text = line.removeprefix("\ufeff") if number == 1 else line
        if '"' not in text:
            yield number, text.split(delimiter)  # twice as fast
            continue
        try:
            yield number, next(csv.reader([text], delimiter=delimiter, strict=True), [])
        except csv.Error as error:
            raise DataError(f"{path}, line {number} is {line[:60]!r} ({error}); {_EXPECTED}") from error


def _add(
    path: Path,
    number: int,
    row: list[str],
    columns: tuple[int, int, int],
    to: tuple[_Numbering, _Numbering, array[float]],
) -> None:
    try:
        user, item, text = (row[c].strip() for c in columns)
        rating = float(text)
    except (IndexError, ValueError):
        user, item, text, rating = "", "", "", math.nan
    if not (user and item and math.isfinite(rating)) or "_" in text:  # Python's own numbers may have underscores
        hint = ", or a header line with these names" if number == 1 else ""
        raise DataError(f"{path}, line {number} is {','.join(row)[:60]!r}; {_EXPECTED}{hint}")
    to[0].add(user)
    to[1].add(item)
    to[2].append(rating)

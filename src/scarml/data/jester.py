"""Jester: a part of data set 2, 385,416 ratings by 13,095 users of 140 jokes, rescaled from [−10, 10] to [0, 10].

The file ``jester2_head.npz`` has arrays ``user`` and ``joke``, numbered as by the publisher, and ``rating_x1000``, the
rating times 1,000 as an integer. As in the paper, users without ratings are left out; so are the jokes without any.

Source: K. Goldberg, T. Roeder, D. Gupta, C. Perkins, Eigentaste: A Constant Time Collaborative Filtering Algorithm,
Information Retrieval 4(2), 2001.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scarml.data.location import find
from scarml.data.npz_file import check_form, read_arrays
from scarml.data.ratings import Ratings
from scarml.errors import DataError

__all__ = ["FILES", "FOLDER", "SOURCE", "load_jester", "read_jester"]

FOLDER = "jester"
FILES = ("jester2_head.npz",)
SOURCE = "https://eigentaste.berkeley.edu/dataset/ (data set 2, its first users; packed as docs/reference/data.md says)"


def load_jester() -> Ratings:
    """The ratings; users and jokes in ascending order of their original numbers.

    Raises:
        DataError: if the file is missing or damaged.
    """
    (path,) = find("jester", FOLDER, FILES, SOURCE)
    return read_jester(path)


def read_jester(path: Path) -> Ratings:
    """A file in the form of ``jester2_head.npz``.

    Raises:
        DataError: naming the file, the rating and what was expected.
    """
    arrays = read_arrays(path, ("user", "joke", "rating_x1000"))
    n = len(arrays["user"]) if arrays["user"].ndim else 0
    for name, array in arrays.items():
        check_form(path, name, array, "iu", (n,))
    rating = arrays["rating_x1000"].astype(np.int64)
    wrong = np.flatnonzero(np.abs(rating) > 10_000)
    if len(wrong) or n == 0:
        what = f"rating {wrong[0]} is {rating[wrong[0]]}" if len(wrong) else "there are no ratings"
        raise DataError(f"{path}: {what}; expected thousandths of ratings from -10 to 10")
    user_ids, user = np.unique(arrays["user"].astype(np.int64), return_inverse=True)
    item_ids, item = np.unique(arrays["joke"].astype(np.int64), return_inverse=True)
    pair = np.sort(user * len(item_ids) + item)
    if (pair[1:] == pair[:-1]).any():
        raise DataError(f"{path} rates a joke by one user twice; expected one rating for each pair")
    return Ratings(
        user.astype(np.int32),
        item.astype(np.int32),
        ((rating + 10_000) / 2_000).astype(np.float32),
        n_users=len(user_ids),
        n_items=len(item_ids),
        user_ids=user_ids,
        item_ids=item_ids,
    )

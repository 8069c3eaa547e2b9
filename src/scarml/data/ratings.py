"""Ratings that users gave to items, as triples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scarml.core.block import Array, Ids
from scarml.errors import DataError

__all__ = ["Ratings"]


@dataclass(frozen=True, slots=True, eq=False)
class Ratings:
    """A sparse matrix of ratings.

    Args:
        user: who rated, 0 … n_users − 1, an integer dtype, shape (n_ratings,).
        item: what was rated, 0 … n_items − 1, shape (n_ratings,).
        rating: finite numbers, shape (n_ratings,).
        n_users: rows of the matrix, with or without ratings.
        n_items: columns of the matrix.
        user_ids: what the source calls each user, numbers or text, shape (n_users,); None if it has none.
        item_ids: what the source calls each item, shape (n_items,).

    Raises:
        DataError: if the shapes do not fit together, an index is out of range, or a rating is not finite.

    Example:
        >>> import numpy as np
        >>> Ratings(np.array([0, 0, 1]), np.array([0, 2, 1]), np.array([4.0, 2.5, 5.0]), n_users=2, n_items=3).n_ratings
        3
    """

    user: Array
    item: Array
    rating: Array
    n_users: int
    n_items: int
    user_ids: Array | None = None
    item_ids: Array | None = None

    def __post_init__(self) -> None:
        if not self.user.shape == self.item.shape == self.rating.shape == (self.user.size,):
            raise DataError(
                f"user, item and rating have shapes {self.user.shape}, {self.item.shape} and {self.rating.shape}; "
                "expected three arrays of one length"
            )
        _check_index("user", self.user, self.n_users)
        _check_index("item", self.item, self.n_items)
        if not np.isfinite(self.rating).all():
            raise DataError(f"rating {np.flatnonzero(~np.isfinite(self.rating))[0]} is not a finite number")

    @property
    def n_ratings(self) -> int:
        """How many triples there are."""
        return len(self.rating)

    def take(self, ratings: Ids) -> Ratings:
        """Some of the ratings, in the order given; users and items stay, also those without any of these."""
        return Ratings(
            self.user[ratings],
            self.item[ratings],
            self.rating[ratings],
            self.n_users,
            self.n_items,
            self.user_ids,
            self.item_ids,
        )


def _check_index(what: str, index: Array, n: int) -> None:
    if index.dtype.kind not in "iu":
        raise DataError(f"{what} indices have dtype {index.dtype}; expected integers")
    wrong = np.flatnonzero((index < 0) | (index >= n))
    if len(wrong):
        raise DataError(f"rating {wrong[0]} has {what} {index[wrong[0]]}; expected 0 to {n - 1}")

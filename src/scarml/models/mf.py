"""MF: matrix factorisation by alternating least squares.

Source: section 5.1 and appendix C of the paper; hyper-parameters are named as in `implicit`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numba
import numpy as np

from scarml.core.block import Array, Blocks, Field, Ids, Table, flat_index, positions_of_common
from scarml.core.metric import Metric
from scarml.core.model import Combine, Computed, Context, Model, Reads, Shard, Update
from scarml.core.rng import block_uniform
from scarml.data.ratings import Ratings
from scarml.errors import ModelError, UsageError
from scarml.models.defaults import Defaults
from scarml.models.least_squares import solve_rows

__all__ = ["MF", "squared_error", "squared_error_reference"]


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """The ratings of a slice of the users, or of the items: one row for each that has any."""

    ids: Ids
    """Whose rows these are, ascending."""
    starts: Ids
    """Where the ratings of each row start, shape (n_rows + 1,)."""
    others: Ids
    """Which rows of the other table these ratings need, ascending."""
    index: Ids
    """For each rating a position in `others`."""
    ratings: Array

    def take(self, wanted: Ids) -> _Side:
        """Some of the rows."""
        at = positions_of_common(self.ids, wanted)
        lengths = np.diff(self.starts)
        entries = flat_index(lengths, at)
        others, index = np.unique(self.others[self.index[entries]], return_inverse=True)
        starts = np.append(0, np.cumsum(lengths[at]))
        return _Side(self.ids[at], starts, others, index, self.ratings[entries])


@dataclass(frozen=True, slots=True)
class MF(Model):
    """Minimise Σ (r_ui − l_u · r_i)² + λ (Σ ‖l_u‖² + Σ ‖r_i‖²) over L and R, the sum over the given ratings.

    Phase 0 solves the row of every user from R, phase 1 the row of every item from the new L, each exactly
    (`least_squares`). There are two tables: ``L``, a block for each user, and ``R``, a block for each item, of
    ``factors`` float32, at the start uniform in [0, 1). Users and items without ratings keep their start. A shard is a
    slice of the users and one of the items, cut so that each has about the same number of ratings.

    The loss is the squared error summed over the ratings, in float64, without the λ term. The held-out metric is the
    root of its mean over held-out ratings; users and items without other ratings are predicted from their start.

    Data: `Ratings`.

    Args:
        factors: length of the rows, at least 1.
        regularization: λ, above 0.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> data = Ratings(np.array([0, 1]), np.array([0, 0]), np.array([4.0, 2.0]), n_users=2, n_items=1)
        >>> [(t.name, t.n_blocks) for t in MF(factors=5).tables(data)]
        [('L', 2), ('R', 1)]
    """

    factors: int = 20
    regularization: float = 0.1

    n_phases: ClassVar[int] = 2
    n_repair_phases: ClassVar[int] = 2
    name: ClassVar[str] = "mf"
    metrics: ClassVar[Sequence[Metric]] = (Metric("rmse", of_mean="root"),)
    # The paper's 9.2e2 fits neither the summed nor the mean squared error of this data set at 60 iterations.
    defaults: ClassVar[Mapping[str | None, Defaults]] = {
        "movielens": Defaults({"factors": 20, "regularization": 0.1}, stop_loss_sum=10_280.1, baseline_iters=60),
        # A part of what the paper used; its 5.57e3 fits neither the sum nor the mean of the squared errors.
        "jester": Defaults({"factors": 5, "regularization": 0.1}, stop_loss_sum=1_265_152.7, baseline_iters=60),
    }

    def __post_init__(self) -> None:
        if self.factors < 1:
            raise UsageError(f"factors is {self.factors}; expected at least 1")
        if not 0 < self.regularization < math.inf:
            raise UsageError(f"regularization is {self.regularization}; expected a finite number above 0")

    def tables(self, data: Ratings) -> Sequence[Table]:
        """The tables ``L`` and ``R``; every iteration begins with a new ``L``, computed from ``R``."""
        if not isinstance(data, Ratings):
            raise ModelError(f"MF takes Ratings; got {type(data).__name__}")
        value = (Field("value", "float32", (self.factors,)),)
        weights = [
            np.sqrt(np.maximum(np.bincount(rows, minlength=n), 1))  # a row's curvature grows with its ratings
            for rows, n in ((data.user, data.n_users), (data.item, data.n_items))
        ]
        return [
            Table("L", data.n_users, value, dead_at_boundary=True, weights=weights[0]),
            Table("R", data.n_items, value, weights=weights[1]),
        ]

    def shards(self, data: Ratings, n_shards: int) -> Sequence[Shard]:
        """A slice of the users and one of the items."""
        users = _sides(data.user, data.item, data.rating, data.n_users, n_shards)
        items = _sides(data.item, data.user, data.rating, data.n_items, n_shards)
        return [
            Shard(index=s, data=(by_user, by_item), n_examples=len(by_user.ratings))
            for s, (by_user, by_item) in enumerate(zip(users, items, strict=True))
        ]

    def init(self, table: Table, ids: Ids, seed: int) -> Mapping[str, Array]:
        """Uniform in [0, 1), as in appendix C."""
        return {"value": block_uniform(seed, table, ids)}

    def reads(self, ctx: Context, shard: Shard) -> Reads:
        """The rows that this shard's ratings are connected to: of R in phase 0, of L in phase 1."""
        return {"RL"[ctx.phase]: shard.data[ctx.phase].others}

    def compute(self, ctx: Context, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> Computed:
        """The new rows of this shard's users in phase 0, of its items in phase 1."""
        side: _Side = shard.data[ctx.phase]
        if len(side.ids) == 0:
            return Computed()
        others = reads["RL"[ctx.phase]].value
        solved = solve_rows(others, side.starts, side.index, side.ratings, self.regularization)
        return Computed([Update("LR"[ctx.phase], side.ids, solved)])

    def combine(self, table: Table) -> Combine:
        """Each row is solved by one shard, which overwrites it."""
        return "assign"

    def lost_part(self, ctx: Context, shard: Shard, lost: Mapping[str, Ids]) -> Shard:
        """The lost rows of one side, with their ratings."""
        sides: list[_Side] = list(shard.data)
        part = sides[ctx.phase].take(lost.get("LR"[ctx.phase], np.zeros(0, np.int64)))
        sides[ctx.phase] = part
        return Shard(shard.index, tuple(sides), n_examples=len(part.ratings))

    def loss_reads(self, shard: Shard) -> Reads:
        """This shard's users, and the items that they rated."""
        side: _Side = shard.data[0]
        return {"L": side.ids, "R": side.others}

    def loss(self, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> float:
        """Squared error, summed over the ratings of this shard's users."""
        side: _Side = shard.data[0]
        return float(squared_error(reads["L"].value, reads["R"].value, side.starts, side.index, side.ratings))

    @staticmethod
    def recommend(
        tables: Mapping[str, Mapping[str, Array]], user: int, n: int = 10, seen: Ids | None = None
    ) -> tuple[Ids, Array]:
        """The items with the highest predicted ratings by one user.

        Args:
            tables: as ``scar.load`` gives them, of a run of this model.
            user: row of ``L``; `Ratings.user_ids` says what the source calls each.
            n: how many items at most, at least 1.
            seen: items to leave out, such as those that the user has rated.

        Returns:
            Items, rows of ``R``, best first, of equals the first; and their predicted ratings.

        Raises:
            UsageError: if the tables are not this model's, or an argument is out of range.

        Example:
            >>> tables = {"L": {"value": np.array([[1.0, 2.0]])}, "R": {"value": np.array([[1, 1], [3, 1], [0, 0]])}}
            >>> items, ratings = MF.recommend(tables, user=0, n=2)
            >>> items.tolist(), ratings.tolist()
            ([1, 0], [5.0, 3.0])
        """
        left, right = (tables.get(name, {}).get("value") for name in "LR")
        if left is None or right is None or left.ndim != 2 or left.shape[1:] != right.shape[1:]:
            raise UsageError("the tables are not those of a run of MF; expected L and R with as many factors each")
        if np.asarray(user).dtype.kind not in "iu" or not 0 <= user < len(left):
            raise UsageError(f"user is {user!r}; expected a whole number from 0 to {len(left) - 1}")
        if n < 1:
            raise UsageError(f"n is {n}; expected at least 1")
        unwanted = np.zeros(0, np.int64) if seen is None else np.asarray(seen)
        if unwanted.size and (unwanted.dtype.kind not in "iu" or unwanted.min() < 0 or unwanted.max() >= len(right)):
            raise UsageError(f"seen has items other than whole numbers from 0 to {len(right) - 1}")
        wanted = np.setdiff1d(np.arange(len(right)), unwanted)
        predicted = right[wanted] @ left[user]
        best = np.argsort(-predicted, kind="stable")[:n]
        return wanted[best], predicted[best]


def _sides(row: Array, other: Array, rating: Array, n_rows: int, n_shards: int) -> list[_Side]:
    """Cut the rows into ``n_shards`` slices with about the same number of ratings."""
    order = np.argsort(row, kind="stable")
    lengths = np.bincount(row, minlength=n_rows)
    firsts = np.concatenate(([0], np.cumsum(lengths)))
    edges = np.searchsorted(firsts[1:], np.arange(1, n_shards) * len(row) / n_shards, side="left") + 1
    edges = np.concatenate(([0], np.minimum(edges, n_rows), [n_rows]))
    sides = []
    for begin, end in itertools.pairwise(edges.tolist()):
        ids = begin + np.flatnonzero(lengths[begin:end])
        some = order[firsts[begin] : firsts[end]]
        others, index = np.unique(other[some].astype(np.int64), return_inverse=True)
        starts = np.concatenate(([0], np.cumsum(lengths[ids])))
        sides.append(_Side(ids, starts, others, index, rating[some].astype(np.float32)))
    return sides


@numba.njit(nogil=True, cache=True)
def squared_error(rows: Array, others: Array, starts: Ids, index: Ids, ratings: Array) -> float:
    """Σ (rating − row · other)² in float64, over ratings laid out as for `least_squares.solve_rows`."""
    total = 0.0
    for i in range(rows.shape[0]):
        row = rows[i]
        for k in range(starts[i], starts[i + 1]):
            other = others[index[k]]
            error = np.float64(ratings[k])
            for j in range(row.shape[0]):
                error -= np.float64(row[j]) * np.float64(other[j])
            total += error * error
    return total


def squared_error_reference(rows: Array, others: Array, starts: Ids, index: Ids, ratings: Array) -> float:
    """The same as `squared_error` in plain NumPy."""
    row_of = np.repeat(np.arange(len(rows)), np.diff(starts))
    predicted = np.einsum("ij,ij->i", rows[row_of].astype(np.float64), others[index].astype(np.float64))
    return float(((ratings - predicted) ** 2).sum())

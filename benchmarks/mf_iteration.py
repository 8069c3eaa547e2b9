"""One iteration of MF at 64 factors on MovieLens against `implicit`'s Cholesky solver, both on one core.

The same ratings, the same number of factors, both halves of an iteration, so seconds compare as ratings/s do. The
objectives are not the same: `implicit`'s also weighs the pairs without a rating, as zeros. For that it adds YᵀY, made
once, to every row's matrix, and always solves a system of 64 unknowns; MF solves the smaller of two systems, and most
items have few ratings. Without MovieLens (set SCAR_DATA_DIR) ratings are drawn with the same numbers and a long tail.
"""

from __future__ import annotations

import numpy as np
from implicit.cpu import _als
from scipy.sparse import csr_matrix
from side_by_side import Row, alternate, main, speed_row
from stepped_job import SteppedJob, never_saving
from threadpoolctl import threadpool_limits

import scarml as scar
from scarml.core.sequential import Sequential
from scarml.data.ratings import Ratings
from scarml.data.registry import load
from scarml.errors import DataError

FACTORS = 64
REGULARIZATION = 0.1


def measure(quick: bool) -> list[Row]:
    name, data = _ratings()
    by_user = csr_matrix((data.rating.astype(np.float32), (data.user, data.item)), (data.n_users, data.n_items))
    by_item = by_user.T.tocsr()
    rng = np.random.default_rng(0)
    users, items = (rng.random((n, FACTORS), dtype=np.float32) for n in (data.n_users, data.n_items))

    def implicit() -> None:
        _als.least_squares(by_user, users, items, REGULARIZATION, num_threads=1)
        _als.least_squares(by_item, items, users, REGULARIZATION, num_threads=1)

    model = scar.MF(factors=FACTORS, regularization=REGULARIZATION)
    alone, one_shard = Sequential(model, data), Sequential(model, data, n_shards=1)
    job = SteppedJob(model, data, servers=4, workers=2, threads=1, checkpoint=never_saving())
    with threadpool_limits(1):
        seconds = alternate(
            {"implicit": implicit, "one shard": one_shard.step, "alone": alone.step, "engine": job.step},
            3 if quick else 25,
        )
    job.close()
    reference = seconds["implicit"]
    return [
        speed_row(f"MF on {name}, no nodes, 1 shard", "implicit, Cholesky", seconds["one shard"], reference),
        speed_row(f"MF on {name}, no nodes, 16 shards", "implicit, Cholesky", seconds["alone"], reference, at_least=1),
        speed_row(
            f"MF on {name}, engine in one process: 4 servers, 2 workers, 16 shards",
            "implicit, Cholesky",
            seconds["engine"],
            reference,
            at_least=1,
        ),
    ]


def _ratings() -> tuple[str, Ratings]:
    try:
        return "MovieLens", load("movielens")
    except DataError:
        rng = np.random.default_rng(0)
        n_users, n_items, n = 671, 9_066, 100_000
        pairs = np.unique(rng.integers(0, n_users, n) * n_items + (n_items * rng.random(n) ** 4).astype(np.int64))
        rating = rng.integers(1, 11, len(pairs)) / 2
        return "drawn ratings", Ratings(pairs // n_items, pairs % n_items, rating, n_users=n_users, n_items=n_items)


if __name__ == "__main__":
    main(measure, __file__)

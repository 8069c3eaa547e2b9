"""One iteration of MLR on one thread against the two bare matrix products that it cannot do without.

10,000 examples of 784 features, 10 classes, float32: X W and Xᵀ residual, by NumPy, over the whole batch at once.
"""

from __future__ import annotations

import numpy as np
from side_by_side import Row, alternate, main, ratio_row
from stepped_job import SteppedJob, never_saving
from threadpoolctl import threadpool_limits

import scarml as scar
from scarml.core.sequential import Sequential
from scarml.data.classification import Classification


def measure(quick: bool) -> list[Row]:
    n = 2_000 if quick else 10_000
    rng = np.random.default_rng(0)
    X = rng.random((n, 784), dtype=np.float32)
    data = Classification(X, rng.integers(0, 10, n), n_classes=10)
    W = rng.random((784, 10), dtype=np.float32)
    residual = rng.random((n, 10), dtype=np.float32)
    model = scar.MLR(learning_rate=1e-5, batch_size=n)
    alone, one_shard = Sequential(model, data), Sequential(model, data, n_shards=1)
    job = SteppedJob(model, data, servers=4, workers=2, threads=1, checkpoint=never_saving())

    def products() -> None:
        X @ W
        X.T @ residual

    with threadpool_limits(1):
        seconds = alternate(
            {"products": products, "alone": alone.step, "one shard": one_shard.step, "engine": job.step},
            5 if quick else 40,
            warm_ups=3,
        )
    job.close()
    reference = seconds["products"]
    return [
        ratio_row("MLR, no nodes, 1 shard", "X W and Xᵀ residual", seconds["one shard"], reference),
        ratio_row("MLR, no nodes, 16 shards", "X W and Xᵀ residual", seconds["alone"], reference),
        ratio_row(
            "MLR, engine in one process: 4 servers, 2 workers, 16 shards",
            "X W and Xᵀ residual",
            seconds["engine"],
            reference,
        ),
        ratio_row("the same", "MLR, no nodes, 16 shards", seconds["engine"], seconds["alone"]),
    ]


if __name__ == "__main__":
    main(measure, __file__)

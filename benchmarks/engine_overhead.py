"""Where an iteration's time goes in the engine that runs in one process: messages, and the work itself.

QP has next to no work, so its iteration is all messages: 16 shards, each with a push to every server, then prepared,
commit, committed. The reference is the same model stepped without nodes. One thread, nothing is saved.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from side_by_side import Row, alternate, main, ratio_row
from stepped_job import SteppedJob, never_saving
from threadpoolctl import threadpool_limits

import scarml as scar
from scarml.core.sequential import Sequential
from scarml.data.registry import load

N_SHARDS = 16


def measure(quick: bool) -> list[Row]:
    rounds = 5 if quick else 60
    rows = []
    for servers, workers in ((1, 1), (4, 2), (16, 4)):
        rows += _measure("QP", scar.QP(), None, servers, workers, rounds)
    mlr = scar.MLR(learning_rate=5e-6, batch_size=2_500)
    return rows + _measure("MLR on mnist-10k", mlr, load("mnist-10k"), 4, 2, rounds)


def _measure(name: str, model: scar.Model, data: Any, servers: int, workers: int, rounds: int) -> list[Row]:
    alone = Sequential(model, data, n_shards=N_SHARDS)
    job = SteppedJob(
        model, data, servers=servers, workers=workers, shards=N_SHARDS, threads=1, checkpoint=never_saving()
    )
    with threadpool_limits(1):
        seconds = alternate({"alone": alone.step, "engine": job.step}, rounds, warm_ups=3)
    job.close()
    # ComputePhase to workers; per shard its result and a push to each server; per node Prepared, CommitPhase, Committed
    n_messages = workers + N_SHARDS * (1 + servers) + 3 * (servers + workers)
    each_us = (seconds["engine"] - seconds["alone"]) / n_messages * 1e6
    what = f"{name}, {servers} servers, {workers} workers: an iteration"
    return [
        ratio_row(what, "no nodes", seconds["engine"], seconds["alone"]),
        Row(
            f"{name}, {servers} servers, {workers} workers: overhead of each of {n_messages} messages",
            "",
            float(np.median(each_us)),
            *np.quantile(each_us, [0.25, 0.75]).tolist(),
            unit="µs",
        ),
    ]


if __name__ == "__main__":
    main(measure, __file__)

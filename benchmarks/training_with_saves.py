"""What saving costs a job: iterations with a save against those without, in one run, in turns, all cores busy.

A save falls due every second (or fourth) iteration of one job, so iterations with and without alternate. Saves are
durable, on a disk. Where an iteration takes half a second or more, the figure is the ratio of their times; where it is
shorter, the processor time that one save takes, over all threads, for 4 servers and 2 workers.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from side_by_side import Row, main

import scarml as scar
from scarml.data.classification import Classification
from scarml.data.registry import load
from scarml.errors import DataError


def measure(quick: bool) -> list[Row]:
    name, data, model = _mnist()
    rows = []
    if not quick:
        long, drawn = scar.MLR(learning_rate=1e-6, batch_size=10**9), _drawn(n_examples=40_000, n_features=3_072)
        rows = _compare("MLR, 3,072 rows of 400 B", long, drawn, n_saves=20, every=2)[:1]
    rows += _compare(f"MLR on {name}, {data.n_features} rows of 40 B", model, data, 8 if quick else 60, every=4)
    rows += _compare("QP, 4 blocks of 4 B", scar.QP(), None, 10 if quick else 200, every=4)
    return rows


def _compare(name: str, model: scar.Model, data: Any, n_saves: int, every: int) -> list[Row]:
    wall, cpu = _iterations(model, data, n_saves, every)
    is_long = float(np.median(wall)) >= 0.5
    ratio, low_ratio, high_ratio = _with_spread(lambda x: x[: every // 2].mean() / x[every // 2 :].mean(), wall)
    cost = _with_spread(lambda x: 1e3 * (x[: every // 2].sum() - x[every // 2 :].sum()), cpu)
    which = "the iteration with a save" if every == 2 else "the two iterations from a save on"
    return [
        Row(
            f"{name}: {which}",
            "those without, same run",
            ratio,
            low_ratio,
            high_ratio,
            target="≤ 1.01" if is_long else "",
            met=ratio <= 1.01 if is_long else None,
            seconds=float(np.median(wall[:, : every // 2])),
            reference_seconds=float(np.median(wall[:, every // 2 :])),
        ),
        Row(f"{name}: one save", "a bare floor is about 1.5 ms", *cost, unit="ms of processor time"),
    ]


def _with_spread(figure: Callable[[np.ndarray], float], seconds: np.ndarray) -> tuple[float, float, float]:
    """A figure of the median iterations, shape (every,), and the middle half of what other samples would have given."""
    rng = np.random.default_rng(0)
    samples = [seconds[rng.integers(0, len(seconds), len(seconds))] for _ in range(400)]
    others = [figure(np.median(sample, axis=0)) for sample in samples]
    return float(figure(np.median(seconds, axis=0))), *np.quantile(others, [0.25, 0.75]).tolist()


def _iterations(model: scar.Model, data: Any, n_saves: int, every: int) -> tuple[np.ndarray, np.ndarray]:
    """Wall and processor seconds of iterations, shape (n_saves, every); those that carry a save come first."""
    moments: list[tuple[float, float]] = []

    def on_event(record: Any) -> None:
        if record.name == "iteration_committed":
            moments.append((time.perf_counter(), time.process_time()))

    n_skipped = 2 * every
    with tempfile.TemporaryDirectory() as folder:
        scar.Job(
            model,
            data,
            servers=4,
            workers=2,
            threads=os.cpu_count() or 1,
            checkpoint=scar.Checkpoint(fraction="1/8", interval_iters=8 * every),
            stop=scar.Stop(max_iters=n_skipped + n_saves * every, eval_every_iters=10**9),
            run=f"{folder}/run",
            on_event=on_event,
        ).run()
    # The save of x(every) runs beside the iteration after it: moments[every − 1] is when it begins.
    taken = np.diff(np.array(moments), axis=0)[n_skipped - 1 : n_skipped - 1 + n_saves * every]
    wall, cpu = taken.T.reshape(2, n_saves, every)
    return wall, cpu


def _mnist() -> tuple[str, Classification, scar.MLR]:
    try:
        return "MNIST", load("mnist"), scar.MLR(learning_rate=1e-5, batch_size=10_000)
    except DataError:
        return "mnist-10k", load("mnist-10k"), scar.MLR(learning_rate=5e-6, batch_size=2_500)


def _drawn(n_examples: int, n_features: int) -> Classification:
    rng = np.random.default_rng(0)
    features = rng.random((n_examples, n_features), dtype=np.float32)
    return Classification(features, rng.integers(0, 100, n_examples), n_classes=100)


if __name__ == "__main__":
    main(measure, __file__)

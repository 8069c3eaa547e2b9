"""A training process that is made to be killed: it says what has been committed, as it happens."""

from __future__ import annotations

import threading
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import scarml as scar

N_ROWS, N_FEATURES = 300, 8


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, N_FEATURES))
    return X, X @ rng.normal(size=(N_FEATURES, 4))


def loss(theta: np.ndarray) -> float:
    X, Y = problem()
    return float(np.square(X @ theta - Y).mean())


def train(folder: str, until: int, says: Connection, scoring: Any = "exact") -> None:
    """Least squares by gradient descent. Beside it a table whose rows say at which iteration they were set."""
    mutex = threading.Lock()

    def say(*what: Any) -> None:
        with mutex:
            says.send(what)

    def on_event(record: scar.Record) -> None:
        if record.name == "save_committed" and record["n_blocks"]:  # a save of nothing promises nothing
            say("committed", record["iteration"])

    X, Y = problem()
    theta, versions = np.zeros((N_FEATURES, 4)), np.zeros((N_ROWS, 6))
    tables = {"theta": theta, "versions": versions}
    state = {"k": 0}
    with scar.RunningCheckpoint(
        folder, tables, resume="auto", fraction="1/4", interval=4, scoring=scoring, on_event=on_event
    ) as ckpt:
        start = ckpt.restore(extra=state)
        say("restored", start, state["k"])
        for k in range(start + 1, until + 1):
            theta -= 0.05 * X.T @ (X @ theta - Y) / len(X)
            versions[...] = k
            report = ckpt.save(k, extra={"k": k})
            say("chosen", k, report.saved.get("versions", np.zeros(0, np.int64)).tolist())
    say("done", until, 0)

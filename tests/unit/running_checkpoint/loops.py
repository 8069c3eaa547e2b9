"""Small training loops with a running checkpoint in them."""

from __future__ import annotations

from typing import Any

import numpy as np

import scarml as scar
from scarml.storage.memory import MemoryStore


class Sgd:
    """Least squares by stochastic gradient descent with momentum; a random batch an iteration."""

    def __init__(self, n: int = 24, d: int = 3) -> None:
        rng = np.random.default_rng(7)
        self.truth = rng.normal(size=(n, d))
        self.W = np.zeros((n, d))
        self.m = np.zeros((n, d))
        self.rng = np.random.default_rng(11)

    @property
    def tables(self) -> dict[str, Any]:
        return {"W": scar.rows(self.W, m=self.m)}

    def step(self) -> np.ndarray:
        """One iteration; the rows that it changed."""
        rows = self.rng.choice(len(self.W), 4, replace=False)
        gradient = self.W[rows] - self.truth[rows] + 0.1 * self.rng.normal(size=(4, self.W.shape[1]))
        self.m[rows] = 0.5 * self.m[rows] + gradient
        self.W[rows] -= 0.3 * self.m[rows]
        return rows

    def state(self) -> dict[str, Any]:
        return {"rng": self.rng.bit_generator.state}

    def run(self, store: Any, until: int, *, with_touched: bool = False, **settings: Any) -> int:
        """Train to iteration ``until``; where it began."""
        with scar.RunningCheckpoint(store, self.tables, resume="auto", **settings) as ckpt:
            state = self.state()
            start = ckpt.restore(extra=state)
            self.rng.bit_generator.state = state["rng"]
            for k in range(start + 1, until + 1):
                rows = self.step()
                ckpt.save(k, touched={"W": rows} if with_touched else None, extra=self.state())
        return start


def copy_of(store: MemoryStore) -> MemoryStore:
    """What is on a store now, as another process would find it after this one was killed."""
    copy = MemoryStore()
    copy._objects = dict(store._objects)
    return copy


def bits(*arrays: np.ndarray) -> list[bytes]:
    return [a.tobytes() for a in arrays]

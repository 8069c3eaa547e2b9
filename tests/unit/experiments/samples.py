"""Tiny problems whose baseline takes a chosen number of iterations."""

from __future__ import annotations

from functools import lru_cache

from scarml.experiments.problem import Problem, Trainer
from scarml.experiments.trajectory import Trajectory, record
from scarml.testing.tiny_problems import tiny_problem

__all__ = ["SEED", "SHARDS", "recorded", "trainer_of"]

SEED, SHARDS = 3, 4


def trainer_of(name: str, n_iters: int) -> Trainer:
    """A trainer of a tiny problem; the criterion lies midway between the lowest two of the first ``n_iters`` losses."""
    model, data = tiny_problem(name)
    trainer = Trainer(Problem(model, data, 0.0, SEED, SHARDS))
    losses = [trainer.loss_sum()]
    for _ in range(n_iters):
        trainer.next_iteration()
        losses.append(trainer.loss_sum())
    lowest, second = sorted(losses)[:2]
    return Trainer(Problem(model, data, (lowest + second) / 2, SEED, SHARDS))


@lru_cache
def recorded(name: str, n_iters: int) -> tuple[Trainer, Trajectory]:
    """Such a trainer and its trajectory, made once: nobody may change either."""
    trainer = trainer_of(name, n_iters)
    return trainer, record(trainer)

"""Holds what is told of held-out data against a sequential run, and what early stopping knows against all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scarml.core.metric import Metric
from scarml.core.model import Shard
from scarml.core.sequential import State
from scarml.engine.simulation.witness import Witness

__all__ = ["MetricsWitness"]


class MetricsWitness:
    """Sees every evaluation of all starts of a run.

    Args:
        witness: counts the checks, and has a sequential run.
        held_out: the shards that are evaluated.
        every_iters: evaluations at other iterations do not count for early stopping.
    """

    def __init__(self, witness: Witness, held_out: Sequence[Shard], every_iters: int) -> None:
        self._witness = witness
        self._held_out = held_out
        self._every_iters = every_iters
        self._seen: dict[int, float] = {}
        """By iteration what was evaluated last, of what has not been given up."""

    def goes_on_at(self, iteration: int) -> None:
        """Training goes on from x(iteration), which is evaluated anew: what came after it was given up."""
        self._seen = {k: value for k, value in self._seen.items() if k < iteration}

    def evaluated(self, fields: dict[str, Any], state: State) -> None:
        """The controller has told of it; ``state`` is what the cluster holds."""
        reference = self._witness.reference
        reference.state = state
        expected, iteration = reference.metrics(self._held_out), fields["iteration"]
        story = f"metrics of x({iteration}) are {fields['metrics']}; a sequential run has {expected}"
        self._witness.require(fields["metrics"] == expected, 9, story)
        metric = next(m for m in reference.model.metrics if m.name == fields["stops_by"])
        if iteration % self._every_iters == 0:
            self.goes_on_at(iteration)
            self._seen[iteration] = expected[metric.name]
        known = (fields["best"], fields["best_iteration"], fields["n_since_best"])
        story = f"early stopping knows {known} on x({iteration}); evaluated were {self._seen}"
        self._witness.require(known == self._known(metric), 2, story)

    def _known(self, metric: Metric) -> tuple[float | None, int | None, int]:
        """The same from the whole history at once."""
        if not self._seen:
            return None, None, 0
        values = list(self._seen.values())
        best = max(values) if metric.higher_is_better else min(values)
        at = list(self._seen)[values.index(best)]
        return best, at, sum(iteration > at for iteration in self._seen)

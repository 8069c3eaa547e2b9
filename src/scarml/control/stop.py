"""When training is done: the criterion, the limit, no more progress on held-out data, and a request to stop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scarml.control import messages as m
from scarml.control.early_stopping import BestSoFar, EarlyStopping
from scarml.core.metric import Metric, added_in_order, metric_values
from scarml.errors import UsageError

__all__ = ["HeldOut", "Stop", "StopRule"]


@dataclass(frozen=True, slots=True)
class Stop:
    """When training is done.

    Args:
        loss_sum_below: converged when the summed loss is below it; None: no criterion.
        max_iters: stop at x(max_iters) at the latest; None: no limit.
        eval_every_iters: how often the loss is evaluated.
        patience: stop when a held-out metric was no better in so many evaluations one after the other; None: never.
        metric: which one; None: the model's first.
        min_delta: a value counts as better only if it is by more than this.

    Raises:
        UsageError: if a number is out of range.
    """

    loss_sum_below: float | None = None
    max_iters: int | None = None
    eval_every_iters: int = 1
    patience: int | None = None
    metric: str | None = None
    min_delta: float = 0.0

    def __post_init__(self) -> None:
        if self.eval_every_iters < 1:
            raise UsageError(f"--eval-every is {self.eval_every_iters}; expected at least 1 iteration")
        if self.max_iters is not None and self.max_iters < 0:
            raise UsageError(f"--max-iters is {self.max_iters}; expected 0 or more")
        if self.patience is not None and self.patience < 1:
            raise UsageError(f"--patience is {self.patience}; expected at least 1 evaluation")
        if not 0 <= self.min_delta < math.inf:
            raise UsageError(f"--min-delta is {self.min_delta}; expected a finite number of at least 0")
        if self.patience is None and (self.metric is not None or self.min_delta):
            flag = "--metric" if self.metric is not None else "--min-delta"
            raise UsageError(f"{flag} is for early stopping; give --patience as well")

    def metric_of(self, metrics: tuple[Metric, ...]) -> Metric:
        """The one that early stopping goes by.

        Raises:
            UsageError: the model has no such metric.
        """
        found = next((x for x in metrics if self.metric in (None, x.name)), None)
        if found is None:
            known = ", ".join(x.name for x in metrics) or "none"
            raise UsageError(f"--metric {self.metric!r} is unknown; the model has {known}")
        return found


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What is evaluated on held-out data, and how often.

    Args:
        metrics: of the model, at least one.
        n_examples: that are held out, at least 1.
        every_iters: iterations between evaluations; the end is always evaluated.

    Raises:
        UsageError: if a number is out of range.
    """

    metrics: tuple[Metric, ...]
    n_examples: int
    every_iters: int = 1

    def __post_init__(self) -> None:
        if self.every_iters < 1:
            raise UsageError(f"--metrics-every is {self.every_iters}; expected at least 1 iteration")
        if self.n_examples < 1:
            raise UsageError("the held-out data has no examples to judge by; expected at least one")


class StopRule:
    """Says what is to be evaluated at a boundary, and judges then whether training is done.

    Args:
        stop: the criterion and the limit.
        n_shards: parts that losses and metrics come in.
        held_out: what is evaluated on held-out data; None: nothing.

    Raises:
        UsageError: there is no such metric to stop by.
    """

    def __init__(self, stop: Stop, n_shards: int, held_out: HeldOut | None = None) -> None:
        self._stop = stop
        self._n_shards = n_shards
        self._held_out = held_out
        self._early: EarlyStopping | None = None
        if stop.patience is not None:
            metric = stop.metric_of(held_out.metrics if held_out is not None else ())
            self._early = EarlyStopping(metric, stop.patience, stop.min_delta)
        self._awaited: type[m.EvaluateLoss] | type[m.EvaluateMetrics] | None = None
        self._losses: dict[int, float] = {}
        self._sums: dict[int, Mapping[str, float]] = {}
        self._loss_sum: float | None = None
        self._metrics: dict[str, float] | None = None
        self._request: str | None = None

    def resume(self, known: BestSoFar | None) -> None:
        """Go on from what an earlier start has saved."""
        if self._early is not None:
            self._early.resume(known)

    def request(self, reason: str) -> None:
        """Somebody wants training to stop."""
        self._request = reason

    def forget(self) -> None:
        """The state has changed: neither its loss nor its metrics are known."""
        self._loss_sum = self._metrics = None

    # ------------------------------------------------------------------------------------------------ the evaluations
    def next_evaluation(self, iteration: int) -> type[m.EvaluateLoss] | type[m.EvaluateMetrics] | None:
        """What is still to be evaluated of x(iteration), and begun now; None: nothing."""
        at_end = iteration == self._stop.max_iters or self._request is not None
        self._awaited, self._losses, self._sums = None, {}, {}
        if self._loss_sum is None and (at_end or iteration % self._stop.eval_every_iters == 0):
            self._awaited = m.EvaluateLoss
        elif self._held_out and self._metrics is None and (at_end or iteration % self._held_out.every_iters == 0):
            self._awaited = m.EvaluateMetrics
        return self._awaited

    def take_in(self, event: m.LossComputed | m.MetricsComputed, iteration: int, executed: int) -> m.Report | None:
        """One worker's part. Returns what to tell once all parts are there; they are added up in shard order."""
        if isinstance(event, m.LossComputed):
            if self._awaited is not m.EvaluateLoss:
                return None
            self._losses.update(event.losses)
            if len(self._losses) < self._n_shards:
                return None
            self._awaited = None
            self._loss_sum = added_in_order(self._losses[s] for s in range(self._n_shards))
            return m.report("loss_evaluated", iteration=iteration, executed=executed, loss_sum=self._loss_sum)
        if self._awaited is not m.EvaluateMetrics or self._held_out is None:
            return None
        self._sums.update(event.sums)
        if len(self._sums) < self._n_shards:
            return None
        self._awaited = None
        parts = [self._sums[s] for s in range(self._n_shards)]
        self._metrics = metric_values(self._held_out.metrics, parts, self._held_out.n_examples)
        return m.report(
            "metrics_evaluated",
            iteration=iteration,
            executed=executed,
            metrics=dict(self._metrics),
            **self._observe(iteration, self._held_out.every_iters),
        )

    def _observe(self, iteration: int, every_iters: int) -> dict[str, Any]:
        """An evaluation of the end, out of turn, does not count: a run that goes on from it is the same as without."""
        if self._early is None or self._metrics is None:
            return {}
        if iteration % every_iters == 0:
            self._early.observe(iteration, self._metrics[self._early.metric.name])
        known = self._early.known_at(iteration)
        return {
            "stops_by": known.metric,
            "best": known.best,
            "best_iteration": known.best_iteration if known.best is not None else None,
            "n_since_best": known.n_since,
        }

    # ---------------------------------------------------------------------------------------------------- the verdict
    def verdict(self, iteration: int) -> tuple[m.Outcome, str] | None:
        """How and why training is done at x(iteration); None: it is not."""
        below = self._stop.loss_sum_below
        if below is not None and self._loss_sum is not None and self._loss_sum < below:
            return "converged", f"loss_sum {self._loss_sum:,.6g} is below {below:,.6g}"
        no_better = self._early.verdict(iteration) if self._early is not None else None
        if no_better is not None:
            return "stopped-early", no_better
        if self._stop.max_iters is not None and iteration >= self._stop.max_iters:
            return "max-iters", f"{iteration} iterations done"
        return None if self._request is None else ("stopped", self._request)

    def to_save(self, iteration: int) -> dict[str, Any] | None:
        """What a save of x(iteration) takes with it, so that whoever goes on from it judges alike."""
        return None if self._early is None else self._early.known_before(iteration).to_extra()

"""When training is done: the criterion, the limit, and a request to stop."""

from __future__ import annotations

from dataclasses import dataclass

from scarml.control.messages import Outcome
from scarml.errors import UsageError

__all__ = ["Stop", "StopRule"]


@dataclass(frozen=True, slots=True)
class Stop:
    """When training is done.

    Args:
        loss_sum_below: converged when the summed loss is below it; None: no criterion.
        max_iters: stop at x(max_iters) at the latest; None: no limit.
        eval_every_iters: how often the loss is evaluated.

    Raises:
        UsageError: if a number of iterations is not one.
    """

    loss_sum_below: float | None = None
    max_iters: int | None = None
    eval_every_iters: int = 1

    def __post_init__(self) -> None:
        if self.eval_every_iters < 1:
            raise UsageError(f"--eval-every is {self.eval_every_iters}; expected at least 1 iteration")
        if self.max_iters is not None and self.max_iters < 0:
            raise UsageError(f"--max-iters is {self.max_iters}; expected 0 or more")


class StopRule:
    """Judges at every boundary whether training is done.

    Args:
        stop: the criterion and the limit.
        n_shards: parts that a loss comes in.
    """

    def __init__(self, stop: Stop, n_shards: int) -> None:
        self._stop = stop
        self._n_shards = n_shards
        self._parts: dict[int, float] = {}
        self._loss_sum: float | None = None
        self._request: str | None = None

    def request(self, reason: str) -> None:
        """Somebody wants training to stop."""
        self._request = reason

    def forget_loss(self) -> None:
        """The state has changed: its loss is not known."""
        self._loss_sum = None

    def wants_loss(self, iteration: int) -> bool:
        """Whether the loss of x(iteration) is to be evaluated, and is not known."""
        if self._loss_sum is not None:
            return False
        at_end = iteration == self._stop.max_iters or self._request is not None
        return at_end or iteration % self._stop.eval_every_iters == 0

    def begin_evaluation(self) -> None:
        """Parts of the loss are about to come."""
        self._parts = {}

    def add_part(self, shard: int, loss: float) -> float | None:
        """The loss of one shard. Returns the sum in shard order once all parts are there."""
        self._parts[shard] = loss
        if len(self._parts) < self._n_shards:
            return None
        self._loss_sum = sum((self._parts[s] for s in range(self._n_shards)), 0.0)
        return self._loss_sum

    def verdict(self, iteration: int) -> tuple[Outcome, str] | None:
        """How and why training is done at x(iteration); None: it is not."""
        below = self._stop.loss_sum_below
        if below is not None and self._loss_sum is not None and self._loss_sum < below:
            return "converged", f"loss_sum {self._loss_sum:,.6g} is below {below:,.6g}"
        if self._stop.max_iters is not None and iteration >= self._stop.max_iters:
            return "max-iters", f"{iteration} iterations done"
        return None if self._request is None else ("stopped", self._request)

"""Early stopping: training is done when a held-out metric has not got better for so many evaluations.

What is known after an evaluation belongs to the iteration that was evaluated, and every save takes with it what was
known before its own. So whoever goes on from a save, after a kill or a full recovery, evaluates the state that it goes
on from and then knows what it would have known without: nothing is counted twice, or for a state that was given up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from scarml.core.metric import Metric

__all__ = ["BestSoFar", "EarlyStopping"]

EXTRA = "early_stopping"
"""By this name it is stored beside the blocks of a save."""
_MOST_KNOWN = 10_000
"""Evaluations that a full recovery can go back by; beyond, it begins to count anew."""


@dataclass(frozen=True, slots=True)
class BestSoFar:
    """All that is known after an evaluation.

    Args:
        metric: which one.
        iteration: that was evaluated last; −1 before the first one.
        best: the best value, from which others have to differ to be better; None if none was finite.
        best_iteration: when it was.
        n_since: evaluations since then that were no better.
    """

    metric: str
    iteration: int = -1
    best: float | None = None
    best_iteration: int = -1
    n_since: int = 0

    def to_extra(self) -> dict[str, Any]:
        """To store beside the blocks of a save, as JSON."""
        return {EXTRA: {name: getattr(self, name) for name in self.__slots__}}

    @classmethod
    def from_extra(cls, extra: Mapping[str, Any]) -> BestSoFar | None:
        """What a save had beside its blocks; None if there is none of it.

        Example:
            >>> BestSoFar.from_extra(BestSoFar("rmse", 4, 0.9, 2, 1).to_extra()).best
            0.9
        """
        return cls.from_json(extra.get(EXTRA))

    @classmethod
    def from_json(cls, stored: object) -> BestSoFar | None:
        """What was stored; None if it is none of ours."""
        match stored:
            case {
                "metric": str(metric),
                "iteration": int(iteration),
                "best": None | int() | float() as best,
                "best_iteration": int(best_iteration),
                "n_since": int(n_since),
            } if n_since >= 0 and (best is None or math.isfinite(best)):
                return cls(metric, iteration, None if best is None else float(best), best_iteration, n_since)
        return None


class EarlyStopping:
    """Judges by one metric.

    Args:
        metric: which, and whether higher is better.
        patience: evaluations without a better value after which training is done, at least 1.
        min_delta: a value is better only if it is by more than this.

    Example:
        >>> rule = EarlyStopping(Metric("rmse"), patience=2)
        >>> for iteration, value in enumerate([3.0, 1.0, 1.5, 1.2]):
        ...     rule.observe(iteration, value)
        >>> rule.verdict(iteration=2), rule.verdict(iteration=3)
        (None, 'rmse was no better in 2 evaluations: the best was 1 on x(1)')
    """

    def __init__(self, metric: Metric, patience: int, min_delta: float = 0.0) -> None:
        self.metric = metric
        self._patience = patience
        self._min_delta = min_delta
        self._known = [BestSoFar(metric.name)]
        """After each evaluation, by iteration; the first is what is known from earlier starts."""

    def resume(self, known: BestSoFar | None) -> None:
        """Go on from what an earlier start knew; of another metric that is nothing."""
        if known is not None and known.metric == self.metric.name:
            self._known = [known]

    def observe(self, iteration: int, value: float) -> None:
        """x(iteration) has been evaluated; what was known of it, or of later ones, does not hold any more."""
        before = self.known_before(iteration)
        while self._known and self._known[-1].iteration >= iteration:
            self._known.pop()
        if self._is_better(value, before.best):
            now = replace(before, iteration=iteration, best=value, best_iteration=iteration, n_since=0)
        else:
            now = replace(before, iteration=iteration, n_since=before.n_since + 1)
        self._known.append(now)
        del self._known[:-_MOST_KNOWN]

    def known_before(self, iteration: int) -> BestSoFar:
        """What is known without the evaluation of x(iteration): for a save of it."""
        return next((k for k in reversed(self._known) if k.iteration < iteration), BestSoFar(self.metric.name))

    def known_at(self, iteration: int) -> BestSoFar:
        """What is known with it."""
        return self.known_before(iteration + 1)

    def verdict(self, iteration: int) -> str | None:
        """Why training is done at x(iteration); None: it is not."""
        known = self.known_at(iteration)
        if known.n_since < self._patience:
            return None
        n = f"{self._patience} evaluation{'' if self._patience == 1 else 's'}"
        best = f"the best was {known.best:,.6g} on x({known.best_iteration})" if known.best is not None else "none was"
        by = f" by more than {self._min_delta:g}" if self._min_delta else ""
        return f"{self.metric.name} was no better{by} in {n}: {best}{' finite' if known.best is None else ''}"

    def _is_better(self, value: float, best: float | None) -> bool:
        if not math.isfinite(value) or best is None:
            return math.isfinite(value)
        gain = value - best if self.metric.higher_is_better else best - value
        return gain > self._min_delta

    def __repr__(self) -> str:
        return f"EarlyStopping({self.metric.name}, {self._known[-1] if self._known else None})"

"""How good a model is on examples that it was not trained on.

Every metric is a mean over held-out examples, or a function of one, so that each worker can add up its share, and the
sums are folded in the order of shards, as losses are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from scarml.errors import ModelError

__all__ = ["Metric", "OfMean", "added_in_order", "metric_values"]

OfMean = Literal["mean", "root", "exp"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One held-out metric of a model.

    Args:
        name: for people and programs, such as ``rmse``.
        of_mean: from the mean over the examples to the metric: the ``mean`` itself, its square ``root`` (RMSE), or
            ``exp`` of it (perplexity).
        higher_is_better: as for accuracies; else lower is.

    Raises:
        ModelError: if an argument is none of these.

    Example:
        >>> Metric("rmse", of_mean="root").value(sum=18.0, n_examples=2)
        3.0
    """

    name: str
    of_mean: OfMean = "mean"
    higher_is_better: bool = False

    def __post_init__(self) -> None:
        if not (self.name and self.name.isprintable()):
            raise ModelError(f"metrics: a metric is called {self.name!r}; expected printable characters")
        if self.of_mean not in get_args(OfMean):
            raise ModelError(f"metrics: {self.name} is {self.of_mean!r} of a mean; expected {', '.join(_OF_MEAN)}")

    def value(self, sum: float, n_examples: int) -> float:
        """From the sum over all examples; it may be NaN or infinite."""
        return _OF_MEAN[self.of_mean](sum / n_examples)


def metric_values(metrics: Sequence[Metric], parts: Sequence[Mapping[str, float]], n_examples: int) -> dict[str, float]:
    """All metrics, from the sums of each shard, added up in this order.

    Example:
        >>> metric_values([Metric("accuracy", higher_is_better=True)], [{"accuracy": 3}, {"accuracy": 4}], 10)
        {'accuracy': 0.7}
    """
    return {m.name: m.value(added_in_order(p[m.name] for p in parts), n_examples) for m in metrics}


def added_in_order(parts: Iterable[float]) -> float:
    """The sum, one after the other in float64; ``sum`` itself corrects rounding errors from Python 3.12 on.

    Example:
        >>> added_in_order([1.0, 1e100, 1.0, -1e100])
        0.0
    """
    total = 0.0
    for part in parts:
        total += part
    return total


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _root(x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan


_OF_MEAN: Mapping[str, Callable[[float], float]] = {"mean": float, "root": _root, "exp": _exp}

"""What a model declares about a data set: settings that are right for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Defaults"]


@dataclass(frozen=True, slots=True)
class Defaults:
    """Hyper-parameters for one data set, and when training has converged on it.

    Args:
        hyper_parameters: arguments of the model's class; what is not named keeps the class's own default.
        stop_loss_sum: training has converged when the loss, summed over the examples, is below this; None if there
            is no criterion. Ours lie midway between two successive losses, so that neither rounding nor a small
            perturbation decides the iteration.
        baseline_iters: iterations until then, without failures, with seed 0 and 16 shards.
    """

    hyper_parameters: Mapping[str, Any] = field(default_factory=dict)
    stop_loss_sum: float | None = None
    baseline_iters: int | None = None

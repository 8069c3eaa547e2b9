"""A run's progress, for people: with its name, and with what it is to reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scarml.cli.wording import metrics_in_words
from scarml.storage.run_progress import RunProgress

__all__ = ["Criterion", "RunStatus"]


@dataclass(frozen=True, slots=True)
class Criterion:
    """Training is done when the loss of this name is below this value."""

    name: str
    below: float


@dataclass(slots=True)
class RunStatus(RunProgress):
    """What records have said so far.

    Args:
        title: of the run, for people.
        criterion: when training is done.
        is_stopping: asks the run whether it has been told to stop, which it may not have been able to say yet.
    """

    title: str = ""
    criterion: Criterion | None = None
    is_stopping: Callable[[], bool] = lambda: False

    def activity_in_words(self) -> str:
        """For example ``training``."""
        if self.activity.startswith("starting") and self.is_stopping():
            return f"{self.activity}, and then stopping; again = at once"
        return self.activity

    def loss_in_words(self) -> str:
        """For example ``loss_sum 6,812 (done below 4,542)``."""
        name = self.criterion.name if self.criterion else "loss_sum"
        if name not in self.loss:
            return "loss not known yet"
        goal = f" (done below {self.criterion.below:,.6g})" if self.criterion else ""
        return f"{name} {self.loss[name]:,.6g}{goal}"

    def metrics_in_words(self) -> str:
        """For example ``rmse 0.912 on x(40)``; empty if there are none."""
        return metrics_in_words(self.metrics, self.metrics_iteration)

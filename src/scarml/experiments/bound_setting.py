"""Settings of the experiments about the bound: what is trained, how it is perturbed, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from scarml.experiments.problem import Panel

__all__ = ["Kind", "Setting"]

Kind = Literal["random", "adversarial", "reset", "none"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One series of trials in a figure about the bound.

    Args:
        figure, name: for tables and files.
        panel: what is trained; the criterion is set by ``baseline_iters``.
        kind: of the perturbations: ``random`` (normal), ``adversarial`` (straight away from the optimum), ``reset``
            (a random part of the groups, to x(0)), or ``none``, for controls of a noisy algorithm.
        baseline_iters: iterations that the criterion takes without perturbations.
        at_iter: T, where norms are scaled, and where the perturbation strikes unless there is a ``probability``.
        probability: of a random perturbation in every iteration; None for one, on x(T).
        largest: norms are drawn uniformly up to so many times ‖x(T) − x*‖, reset fractions up to this.
        n_trials: unless another number is asked for.
        reference_iters: x* is the state after so many iterations, where the model does not know it.
        controls: re-keyed runs without perturbation that a noisy algorithm's costs are measured against; 0 for a
            deterministic one, which is its own control.
        stride: evaluate one loss in so many far from the expected end.
    """

    figure: str
    name: str
    panel: Panel
    kind: Kind
    baseline_iters: int
    at_iter: int
    probability: float | None = None
    largest: float = 1.0
    n_trials: int = 1000
    reference_iters: int = 0
    controls: int = 0
    stride: int = 1

    @property
    def file_name(self) -> str:
        """Of its rows."""
        return f"{self.name}.csv.gz"

    @property
    def baseline_key(self) -> tuple[Any, ...]:
        """What settings have in common that are run along one baseline."""
        return self.panel, self.baseline_iters, self.at_iter, self.reference_iters, self.controls

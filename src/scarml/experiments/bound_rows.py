"""Tidy rows of the experiments about the bound, and what they come to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ESTIMATES", "SETTINGS", "BoundRow", "interpolation_error", "of_setting", "summarise"]


@dataclass(frozen=True, slots=True)
class BoundRow:
    """One trial. Up to ``c`` the settings, the same in all rows of a file; then what the theorem needs; the trial."""

    figure: str
    setting: str
    """Name of the panel of the figure."""
    panel: str
    """Model and data set."""
    model_seed: int
    n_shards: int
    baseline_iters: int
    """Iterations that the criterion takes without perturbations."""
    criterion: float
    measured: str
    """What the criterion is about: loss_sum, or distance, ‖x − x*‖."""
    reference_iters: int
    """x* is the state after so many iterations; 0 where the model knows its optimum."""
    perturbation: str
    """random, adversarial, reset, or none (a control)."""
    at_iter: int
    """T of the one perturbation; −1 where there is a chance of one in every iteration."""
    probability: float
    """Of a perturbation in an iteration; 1 for the one on x(T)."""
    largest: float
    """Norms are uniform up to so many times ‖x(T) − x*‖; reset fractions uniform up to this."""
    seed: int
    """Of the perturbations."""
    c: float
    """Rate of convergence, estimated."""
    c_low: float
    c_high: float
    """Its 95 % interval."""
    bound_from_iter: int
    """The theorem is applied from this iteration on."""
    distance: float
    """Estimated ‖x − x*‖ there."""
    distance_low: float
    """The lower end of its 95 % interval."""
    trial: int
    n_perturbations: int
    last_at_iter: int
    """T of the last perturbation; −1 if there was none."""
    lost_fraction: float
    """Of the groups; 0 unless they were reset."""
    norm: float
    """‖δ‖, summed over the perturbations."""
    discounted_sum: float
    """Δ_T, from the iteration on where the theorem is applied."""
    control: float
    """Iterations to the criterion without perturbations, interpolated."""
    control_whole: float
    cost: float
    """Iteration cost, interpolated."""
    cost_whole: float
    """Iteration cost in whole iterations."""
    bound: float
    """On the cost, with the estimated c."""
    bound_high: float
    """With the upper end of c's interval and the lower one of the distance's."""


_NAMES = [f.name for f in fields(BoundRow)]
SETTINGS = tuple(_NAMES[: _NAMES.index("c")])
"""Names of the columns that are settings."""
ESTIMATES = tuple(_NAMES[_NAMES.index("c") : _NAMES.index("trial")])
"""Names of the columns that are estimated from the baseline, for the theorem."""


def interpolation_error(c: float, measured: str) -> float:
    """By how much a crossing between two evaluations may be off, in iterations: a curve that falls by q is no line."""
    q = c * c if measured == "loss_sum" else c
    return -math.log(q) / 8


def summarise(rows: Sequence[BoundRow]) -> dict[str, Any]:
    """What the trials of one setting come to.

    An exceedance is a cost above the bound by more than interpolation can be off.

    Returns:
        Counts, the estimates, and how near the costs come to the bound; None for what no perturbed trial tells.
    """
    first = rows[0]
    allowed = interpolation_error(first.c, first.measured)
    struck = [r for r in rows if r.n_perturbations]
    costs = np.array([r.cost for r in struck])
    bounds, high = np.array([r.bound for r in struck]), np.array([r.bound_high for r in struck])
    of_bound = costs[bounds > 0] / bounds[bounds > 0]
    return {
        "setting": first.setting,
        "perturbation": first.perturbation,
        "trials": len(rows),
        "without_perturbation": len(rows) - len(struck),
        "c": first.c,
        "c_interval": [first.c_low, first.c_high],
        "distance": first.distance,
        "mean_cost": _of_any(costs, np.mean),
        "largest_cost": _of_any(costs, np.max),
        "negative_costs": int((costs < 0).sum()),
        "exceedances": int((costs > bounds + allowed).sum()),
        "exceedances_of_upper_end": int((costs > high + allowed).sum()),
        "whole_exceedances": int((np.array([r.cost_whole for r in struck]) > bounds + allowed).sum()),
        "largest_excess_iters": float((costs - bounds).max(initial=0.0)),
        "median_cost_over_bound": _of_any(of_bound, np.median),
        "largest_cost_over_bound": _of_any(of_bound, np.max),
    }


def _of_any(values: NDArray[np.float64], statistic: Callable[..., Any]) -> float | None:
    return float(statistic(values)) if len(values) else None


def of_setting(rows: Sequence[BoundRow]) -> Mapping[str, list[BoundRow]]:
    """The rows of each setting, in their order."""
    found: dict[str, list[BoundRow]] = {}
    for row in rows:
        found.setdefault(row.setting, []).append(row)
    return found

"""Theory: perturbations, their iteration cost and its bounds, convergence, run time. No I/O.

Every function takes and returns NumPy arrays (or numbers), checks its arguments, and says which assumption fails.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scarml.theory.convergence_rate import RateEstimate as RateEstimate
    from scarml.theory.convergence_rate import rate_from_distances as rate_from_distances
    from scarml.theory.convergence_rate import rate_from_losses as rate_from_losses
    from scarml.theory.convergence_rate import rate_from_steps as rate_from_steps
    from scarml.theory.convergence_rate import start_distance as start_distance
    from scarml.theory.every_iteration import every_iteration_cost_bound as every_iteration_cost_bound
    from scarml.theory.every_iteration import every_iteration_distance_bound as every_iteration_distance_bound
    from scarml.theory.every_iteration import irreducible_error as irreducible_error
    from scarml.theory.iteration_cost import discounted_sum as discounted_sum
    from scarml.theory.iteration_cost import full_recovery_cost as full_recovery_cost
    from scarml.theory.iteration_cost import interpolated_crossing as interpolated_crossing
    from scarml.theory.iteration_cost import iteration_cost_bound as iteration_cost_bound
    from scarml.theory.iteration_cost import iterations_to_criterion as iterations_to_criterion
    from scarml.theory.iteration_cost import perturbation_cost_bound as perturbation_cost_bound
    from scarml.theory.partial_recovery import effective_age as effective_age
    from scarml.theory.partial_recovery import expected_partial_norm as expected_partial_norm
    from scarml.theory.partial_recovery import partial_norm as partial_norm
    from scarml.theory.partial_recovery import stale_cost_bound as stale_cost_bound
    from scarml.theory.perturbation import perturbation_norm as perturbation_norm
    from scarml.theory.precision import MANTISSA_BITS as MANTISSA_BITS
    from scarml.theory.precision import precision_cost_bound as precision_cost_bound
    from scarml.theory.precision import precision_error as precision_error
    from scarml.theory.precision import rounding_unit as rounding_unit
    from scarml.theory.run_time import RunTime as RunTime
    from scarml.theory.run_time import RunTimeModel as RunTimeModel
    from scarml.theory.run_time import rework_ratio as rework_ratio
    from scarml.theory.run_time import young_interval_s as young_interval_s
    from scarml.theory.sgd import contraction as contraction
    from scarml.theory.sgd import harmonic_steps as harmonic_steps
    from scarml.theory.sgd import sgd_cost_bound as sgd_cost_bound
    from scarml.theory.sgd import sgd_distances as sgd_distances

_HOME_OF = {
    "MANTISSA_BITS": "precision",
    "RateEstimate": "convergence_rate",
    "RunTime": "run_time",
    "RunTimeModel": "run_time",
    "contraction": "sgd",
    "discounted_sum": "iteration_cost",
    "effective_age": "partial_recovery",
    "every_iteration_cost_bound": "every_iteration",
    "every_iteration_distance_bound": "every_iteration",
    "expected_partial_norm": "partial_recovery",
    "full_recovery_cost": "iteration_cost",
    "harmonic_steps": "sgd",
    "interpolated_crossing": "iteration_cost",
    "irreducible_error": "every_iteration",
    "iteration_cost_bound": "iteration_cost",
    "iterations_to_criterion": "iteration_cost",
    "partial_norm": "partial_recovery",
    "perturbation_cost_bound": "iteration_cost",
    "perturbation_norm": "perturbation",
    "precision_cost_bound": "precision",
    "precision_error": "precision",
    "rate_from_distances": "convergence_rate",
    "rate_from_losses": "convergence_rate",
    "rate_from_steps": "convergence_rate",
    "rework_ratio": "run_time",
    "rounding_unit": "precision",
    "sgd_cost_bound": "sgd",
    "sgd_distances": "sgd",
    "stale_cost_bound": "partial_recovery",
    "start_distance": "convergence_rate",
    "young_interval_s": "run_time",
}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    """Load on first use: engines need perturbations, and not SciPy."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'scarml.theory' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"scarml.theory.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

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
    from scarml.theory.iteration_cost import discounted_sum as discounted_sum
    from scarml.theory.iteration_cost import full_recovery_cost as full_recovery_cost
    from scarml.theory.iteration_cost import interpolated_crossing as interpolated_crossing
    from scarml.theory.iteration_cost import iteration_cost_bound as iteration_cost_bound
    from scarml.theory.iteration_cost import iterations_to_criterion as iterations_to_criterion
    from scarml.theory.iteration_cost import perturbation_cost_bound as perturbation_cost_bound
    from scarml.theory.perturbation import perturbation_norm as perturbation_norm

_HOME_OF = {
    "RateEstimate": "convergence_rate",
    "discounted_sum": "iteration_cost",
    "full_recovery_cost": "iteration_cost",
    "interpolated_crossing": "iteration_cost",
    "iteration_cost_bound": "iteration_cost",
    "iterations_to_criterion": "iteration_cost",
    "perturbation_cost_bound": "iteration_cost",
    "perturbation_norm": "perturbation",
    "rate_from_distances": "convergence_rate",
    "rate_from_losses": "convergence_rate",
    "rate_from_steps": "convergence_rate",
    "start_distance": "convergence_rate",
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

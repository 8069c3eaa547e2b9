"""Theory: perturbations, their iteration cost and its bounds, convergence, run time. No I/O.

Every function takes and returns NumPy arrays (or numbers), checks its arguments, and says which assumption fails.
"""

from scarml.theory.bootstrap import Interval, mean_interval, paired_reduction
from scarml.theory.convergence_rate import (
    RateEstimate,
    rate_from_distances,
    rate_from_losses,
    rate_from_steps,
    start_distance,
)
from scarml.theory.every_iteration import every_iteration_cost_bound, every_iteration_distance_bound, irreducible_error
from scarml.theory.gradient_descent import gradient_descent_rate
from scarml.theory.iteration_cost import (
    discounted_sum,
    full_recovery_cost,
    interpolated_crossing,
    iteration_cost_bound,
    iterations_to_criterion,
    perturbation_cost_bound,
)
from scarml.theory.partial_recovery import effective_age, expected_partial_norm, partial_norm, stale_cost_bound
from scarml.theory.perturbation import perturbation_norm
from scarml.theory.precision import MANTISSA_BITS, precision_cost_bound, precision_error, rounding_unit
from scarml.theory.run_time import RunTime, RunTimeModel, rework_ratio, young_interval_s
from scarml.theory.sgd import contraction, harmonic_steps, sgd_cost_bound, sgd_distances

__all__ = [
    "MANTISSA_BITS",
    "Interval",
    "RateEstimate",
    "RunTime",
    "RunTimeModel",
    "contraction",
    "discounted_sum",
    "effective_age",
    "every_iteration_cost_bound",
    "every_iteration_distance_bound",
    "expected_partial_norm",
    "full_recovery_cost",
    "gradient_descent_rate",
    "harmonic_steps",
    "interpolated_crossing",
    "irreducible_error",
    "iteration_cost_bound",
    "iterations_to_criterion",
    "mean_interval",
    "paired_reduction",
    "partial_norm",
    "perturbation_cost_bound",
    "perturbation_norm",
    "precision_cost_bound",
    "precision_error",
    "rate_from_distances",
    "rate_from_losses",
    "rate_from_steps",
    "rework_ratio",
    "rounding_unit",
    "sgd_cost_bound",
    "sgd_distances",
    "stale_cost_bound",
    "start_distance",
    "young_interval_s",
]

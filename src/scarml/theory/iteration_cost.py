"""Iteration cost: how many iterations a perturbation costs, measured on a loss curve and bounded by theory.

Source: section 3 of the paper. Here "iteration k" is the state x(k), so ``losses[0]`` belongs to x(0).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scarml.errors import UsageError
from scarml.theory.assumptions import checked_distance, checked_norm, checked_rate

__all__ = [
    "discounted_sum",
    "full_recovery_cost",
    "interpolated_crossing",
    "iteration_cost_bound",
    "iterations_to_criterion",
    "perturbation_cost_bound",
]


def iterations_to_criterion(losses: ArrayLike, criterion: float) -> float:
    """The first k with ``losses[k] < criterion``, as training stops; infinite if there is none.

    Args:
        losses: of x(0), x(1), …, shape (n,). NaN is not below anything.
        criterion: in the unit of the losses.

    Example:
        >>> iterations_to_criterion([9.0, 5.0, 3.0], 4.0)
        2.0
    """
    below = np.flatnonzero(np.asarray(losses, float) < criterion)
    return float(below[0]) if len(below) else math.inf


def interpolated_crossing(iterations: ArrayLike, losses: ArrayLike, criterion: float) -> float:
    """Where a loss curve first comes down to the criterion, between iterations; infinite if it never does.

    The curve is taken as straight between successive evaluations. Straight in the loss, not in its logarithm: then
    nothing changes when a constant is added to the loss or it is scaled, and no minimum has to be guessed. For a loss
    that falls by the factor q an iteration, the two differ by at most about ln(1/q) / 8 of an iteration, alike for a
    perturbed run and its control, so that a difference of two crossings is hardly touched. A run that only repeats
    iterations, as after a full recovery, costs a whole number of them either way.

    A curve that starts below the criterion crosses it where it starts.

    Args:
        iterations: where the losses were evaluated, ascending, shape (n,); need not be whole or start at 0.
        losses: shape (n,).
        criterion: in the unit of the losses.

    Raises:
        UsageError: if the shapes differ, or iterations do not ascend.

    Example:
        >>> interpolated_crossing([10, 11, 12], [9.0, 5.0, 3.0], 4.5)
        11.25
    """
    at, loss = np.asarray(iterations, float), np.asarray(losses, float)
    if at.shape != loss.shape or at.ndim != 1 or (np.diff(at) <= 0).any():
        raise UsageError("iterations and losses must be of one length, the iterations ascending")
    first = iterations_to_criterion(loss, criterion)
    if math.isinf(first) or first == 0:
        return float(at[0]) if first == 0 else math.inf
    k = int(first)
    if not (math.isfinite(loss[k - 1]) and math.isfinite(loss[k])):  # no straight line; below at k is all that is known
        return float(at[k])
    part = (loss[k - 1] - criterion) / (loss[k - 1] - loss[k])
    return float(at[k - 1] + part * (at[k] - at[k - 1]))


def full_recovery_cost(failed_at_iter: ArrayLike, interval_iters: int, lag: int = 0) -> NDArray[Any]:
    """Iterations that are repeated after a full recovery of a deterministic algorithm: T − C·⌊(T − lag)/C⌋.

    The traditional checkpoint saves everything every C iterations; x(0) needs no save. A failure on x(T) takes
    everything back to the newest complete save.

    Args:
        failed_at_iter: T, whole numbers of at least 1; any shape.
        interval_iters: C, at least 1.
        lag: 0 if the save of x(T) is durable when the failure strikes; 1 if it is not yet.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> full_recovery_cost([7, 8, 9], 8).tolist(), full_recovery_cost([7, 8, 9], 8, lag=1).tolist()
        ([7, 0, 1], [7, 8, 1])
    """
    T = np.asarray(failed_at_iter)
    if T.dtype.kind not in "iu" or (T < 1).any():
        raise UsageError("failed_at_iter must be whole numbers of at least 1")
    if interval_iters < 1 or lag not in (0, 1):
        raise UsageError(f"interval_iters is {interval_iters}, lag is {lag}; expected at least 1, and 0 or 1")
    return np.asarray(T - interval_iters * ((T - lag) // interval_iters))


def discounted_sum(norms: ArrayLike, at_iters: ArrayLike, c: ArrayLike) -> NDArray[np.float64]:
    """Δ_T = Σ c⁻ˡ E‖δ_l‖, what all perturbations up to iteration T together come to in the bound.

    A perturbation of iteration l counts as one of x(0) that is c⁻ˡ times as large: late ones weigh more, since there is
    less distance to the optimum left that they could hide in. Infinite where it is too large for a float; then use
    `perturbation_cost_bound`, which is not.

    Args:
        norms: E‖δ_l‖, at least 0, shape (…, n).
        at_iters: l of each, at least 0, whole or not, shape (…, n).
        c: rate of linear convergence, above 0 and below 1, of the shape of the result.

    Returns:
        Summed over the last axis.

    Raises:
        UsageError: naming the argument that breaks an assumption.

    Example:
        >>> round(float(discounted_sum([1.0, 0.5], [0, 2], 0.5)), 9)
        3.0
    """
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(_log_discounted_sum(norms, at_iters, c)))


def perturbation_cost_bound(
    norms: ArrayLike, at_iters: ArrayLike, x0_distance: ArrayLike, c: ArrayLike
) -> NDArray[np.float64]:
    """`iteration_cost_bound` of one perturbation or many; it does not overflow, however late they come.

    With ``at_iters`` 0 and the distance ‖x(T) − x*‖ for that of the start it is the theorem applied from x(T) on:
    log(1 + ‖δ‖ / ‖x(T) − x*‖) / log(1/c). Where the distance at T is known this is the sharper form, and the safer one:
    if the run came to x(T) faster than at the rate c, cᵀ ‖x(0) − x*‖ is too large a distance and the bound from the
    start too small.

    Args:
        norms: E‖δ_l‖, at least 0, shape (…, n).
        at_iters: l of each, at least 0, shape (…, n).
        x0_distance: ‖x(0) − x*‖, above 0, of the shape of the result.
        c: rate of linear convergence, above 0 and below 1, of the shape of the result.

    Returns:
        Iterations; n, the last axis, is summed over.

    Raises:
        UsageError: naming the argument that breaks an assumption.

    Example:
        >>> round(float(perturbation_cost_bound([3.0], [0], x0_distance=1.0, c=0.5)), 9)
        2.0
        >>> round(float(perturbation_cost_bound([3.0, 1.0], [5000, 9000], x0_distance=1.0, c=0.5)), 6)
        9000.0
    """
    log_sum, rate = _log_discounted_sum(norms, at_iters, c), checked_rate(c)
    with np.errstate(divide="ignore"):
        log_ratio = log_sum - np.log(checked_distance(x0_distance))
    return np.asarray(np.logaddexp(0.0, log_ratio) / -np.log(rate))


def _log_discounted_sum(norms: ArrayLike, at_iters: ArrayLike, c: ArrayLike) -> NDArray[np.float64]:
    size, at = checked_norm(norms, "norms"), np.asarray(at_iters, np.float64)
    if not (at >= 0).all():
        raise UsageError("at_iters must be at least 0: perturbations count from x(0) on")
    with np.errstate(divide="ignore"):
        logs = np.log(size) - at * np.log(checked_rate(c))[..., None]
    return np.asarray(np.logaddexp.reduce(logs, axis=-1))


def iteration_cost_bound(delta_sum: ArrayLike, x0_distance: ArrayLike, c: ArrayLike) -> NDArray[np.float64]:
    r"""The upper bound on the iteration cost of Theorem 3.2: log(1 + Δ_T / ‖x(0) − x*‖) / log(1/c).

    It needs E‖f(y) − x*‖ ≤ c E‖y − x*‖ for the perturbed sequence, and no perturbation after T. Two things that the
    paper leaves out. First, its proof takes the difference of the *bounds* on the iterations that either sequence
    needs; that bounds the cost itself only if the unperturbed sequence does converge at the rate c, no faster:
    ‖x(k) − x*‖ = cᵏ ‖x(0) − x*‖ (this is "cannot be improved" in the theorem's remark). A run that begins faster can
    cost more than the bound says: up to log(√2) / log(1/c) iterations more, which is 3.5, on the model `QP`, half of
    whose start (squared) lies in directions that soon die out. For ``x0_distance`` then take what the slow part of the
    run started with, as `rate_from_distances` estimates it, or apply the theorem from x(T) on, as
    `perturbation_cost_bound` says. Second, iterations are counted as real numbers there; a difference of two whole
    counts can exceed the bound by less than one. Interpolated costs do not have this rounding.

    Args:
        delta_sum: Δ_T = Σ over l ≤ T of c⁻ˡ E‖δ_l‖, at least 0; for one perturbation c⁻ᵀ ‖δ_T‖.
        x0_distance: ‖x(0) − x*‖, above 0.
        c: rate of linear convergence, between 0 and 1, both excluded.

    Returns:
        Iterations; the arguments are broadcast against each other.

    Raises:
        UsageError: naming the argument that breaks an assumption.

    Example:
        >>> float(iteration_cost_bound(delta_sum=3.0, x0_distance=1.0, c=0.5))
        2.0
    """
    total = checked_norm(delta_sum, "delta_sum")
    return np.asarray(np.log1p(total / checked_distance(x0_distance)) / -np.log(checked_rate(c)))

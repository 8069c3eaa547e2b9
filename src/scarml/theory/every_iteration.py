"""Perturbations in every iteration: an error remains that no number of iterations removes.

From ‖y(k+1) − x*‖ ≤ c (‖y(k) − x*‖ + ‖δ_k‖) and E‖δ_k‖ ≤ Δ for all k follows

    E‖y(k) − x*‖ ≤ cᵏ ‖x(0) − x*‖ + (1 − cᵏ) e,    e = c / (1 − c) Δ.

Three things that the paper leaves loose. y(k) is the state *before* the perturbation of iteration k; the one that is
stored after it, y(k) + δ_k, is off by up to e + Δ = Δ / (1 − c). The error e is that of the worst case, equal
perturbations that all point away from x*: independent ones of mean 0 leave at most c / √(1 − c²) Δ, as a root mean
square. And the paper's condition on k is one on k + 1, so it asks for one iteration more than is needed; its bound on
the cost is right.

Source: example 3.4 and appendix B.1 of the paper.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scarml.errors import UsageError
from scarml.theory.assumptions import checked_distance, checked_norm, checked_rate

__all__ = ["every_iteration_cost_bound", "every_iteration_distance_bound", "irreducible_error"]


def irreducible_error(delta: ArrayLike, c: ArrayLike) -> NDArray[np.float64]:
    """What remains of the distance to x* at worst, c / (1 − c) Δ, however long training goes on.

    Args:
        delta: Δ, a bound on E‖δ_k‖ for every k, at least 0.
        c: rate of linear convergence, above 0 and below 1.

    Raises:
        UsageError: naming the argument that breaks an assumption.

    Example:
        >>> round(float(irreducible_error(delta=0.1, c=0.9)), 9)
        0.9
    """
    rate = checked_rate(c)
    return np.asarray(rate / (1 - rate) * checked_norm(delta, "delta"))


def every_iteration_distance_bound(
    iteration: ArrayLike, delta: ArrayLike, x0_distance: ArrayLike, c: ArrayLike
) -> NDArray[np.float64]:
    """The bound on E‖y(k) − x*‖ when every iteration is perturbed.

    Args:
        iteration: k, at least 0.
        delta: Δ, a bound on E‖δ_k‖ for every k, at least 0.
        x0_distance: ‖x(0) − x*‖, above 0.
        c: rate of linear convergence, above 0 and below 1.

    Raises:
        UsageError: naming the argument that breaks an assumption.

    Example:
        >>> every_iteration_distance_bound([0, 1, 1000], delta=1.0, x0_distance=8.0, c=0.5).tolist()
        [8.0, 4.5, 1.0]
    """
    k = np.asarray(iteration, np.float64)
    if not (k >= 0).all():
        raise UsageError("iteration must be at least 0")
    left = checked_rate(c) ** k
    return np.asarray(left * checked_distance(x0_distance) + (1 - left) * irreducible_error(delta, c))


def every_iteration_cost_bound(
    delta: ArrayLike, eps: ArrayLike, x0_distance: ArrayLike, c: ArrayLike
) -> NDArray[np.float64]:
    """The bound on the iteration cost when every iteration is perturbed, up to the ε that can be reached at all.

    log((1 − e/‖x(0) − x*‖) / (1 − e/ε)) / log(1/c), for e < ε ≤ ‖x(0) − x*‖ with e the irreducible error. It grows
    without limit as ε comes near to e. As with Theorem 3.2 it is a difference of two bounds, so it bounds the cost if
    the unperturbed sequence converges no faster than at the rate c.

    Args:
        delta: Δ, a bound on E‖δ_k‖ for every k, at least 0.
        eps: ε, the distance at which training is done.
        x0_distance: ‖x(0) − x*‖, above 0.
        c: rate of linear convergence, above 0 and below 1.

    Raises:
        UsageError: ε cannot be reached, or x(0) has reached it, or an assumption is broken.

    Example:
        >>> round(float(every_iteration_cost_bound(delta=0.1, eps=1.0, x0_distance=100.0, c=0.5)), 3)
        0.151
    """
    rate, start, error = checked_rate(c), checked_distance(x0_distance), irreducible_error(delta, c)
    goal = np.asarray(eps, np.float64)
    if not (goal > error).all():
        raise UsageError(
            f"eps is {goal.min():.6g}, not above the irreducible error c/(1−c)·delta = {error.max():.6g}: "
            "perturbations in every iteration may keep training from ever coming so near"
        )
    if not (goal <= start).all():
        raise UsageError(f"eps is {goal.max():.6g}, above x0_distance: x(0) is good enough, there is nothing to train")
    return np.asarray((np.log1p(-error / start) - np.log1p(-error / goal)) / -np.log(rate))

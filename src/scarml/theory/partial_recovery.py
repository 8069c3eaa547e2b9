"""Partial recovery: what restoring only the lost blocks does to the perturbation, and so to the iteration cost.

Source: section 4.1 and appendices A.3, A.4 of the paper.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scarml.errors import UsageError
from scarml.theory.assumptions import checked_fraction, checked_norm, checked_rate

__all__ = ["effective_age", "expected_partial_norm", "partial_norm", "stale_cost_bound"]


def partial_norm(block_norms: ArrayLike, lost: ArrayLike) -> NDArray[np.float64]:
    """‖δ'‖ of a partial recovery from the norms of all blocks' differences; it is at most ‖δ‖ (Theorem 4.1).

    The paper prints ‖δ'‖ < ‖δ‖. Its proof gives ≤, and equality there is: if all is lost, and also if the survivors
    have not moved since they were saved.

    Args:
        block_norms: ‖saved − lost‖ of every block, at least 0, shape (…, n).
        lost: which blocks are lost, boolean, shape (…, n).

    Returns:
        The root of the summed squares of those that are lost, over the last axis.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> float(partial_norm([3.0, 12.0, 4.0], [True, False, True]))
        5.0
    """
    norms, gone = checked_norm(block_norms, "block_norms"), np.asarray(lost)
    if gone.dtype != bool:
        raise UsageError(f"lost has the type {gone.dtype}; expected a boolean for each block")
    return np.asarray(np.sqrt(np.sum(np.where(gone, norms, 0.0) ** 2, axis=-1)))


def expected_partial_norm(full_norm: ArrayLike, lost_fraction: ArrayLike) -> NDArray[np.float64]:
    """√p ‖δ‖: the root mean square of ‖δ'‖ when a fraction p is lost at random (Theorem 4.2, E‖δ'‖² = p ‖δ‖²).

    All that is needed is that each block is lost with probability p; losses may depend on each other, as they do where
    whole partitions are lost. It bounds E‖δ'‖, by Jensen's inequality, and since log(1 + √x / d) is concave in x, the
    bound on the iteration cost that is computed from it holds for the mean over losses.

    Args:
        full_norm: ‖δ‖ if everything were set back.
        lost_fraction: p, from 0 to 1.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> float(expected_partial_norm(8.0, 0.25))
        4.0
    """
    return np.asarray(np.sqrt(checked_fraction(lost_fraction)) * checked_norm(full_norm, "full_norm"))


def stale_cost_bound(
    age_iters: ArrayLike,
    lost_fraction: ArrayLike,
    c: ArrayLike,
    direction: Literal["straight", "any"] = "straight",
) -> NDArray[np.float64]:
    """The bound on what losing a fraction p costs, from the age of what was saved; no distance has to be known.

    If training comes nearer by exactly the factor c an iteration, then what was saved a iterations ago is c⁻ᵃ times as
    far from x* as x(T). On a straight way to x* it is then (c⁻ᵃ − 1) ‖x(T) − x*‖ away from x(T). Theorem 3.2, applied
    from x(T) on, and Theorem 4.2 give log(1 + √p (c⁻ᵃ − 1)) / log(1/c). For p = 1 this is a: everything set back by a
    iterations costs these. For small ages it is √p a.

    Where the way is not straight, c⁻ᵃ − 1 becomes at worst c⁻ᵃ + 1 (x(T − a) on the other side of x*).

    This is not in the paper; it follows from its theorems.

    Args:
        age_iters: a, at least 0; of many blocks see `effective_age`.
        lost_fraction: p, from 0 to 1.
        c: rate of linear convergence, above 0 and below 1.
        direction: how training moves.

    Returns:
        Iterations; the arguments are broadcast against each other.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> round(float(stale_cost_bound(8, lost_fraction=1.0, c=0.9)), 6)
        8.0
        >>> round(float(stale_cost_bound(8, lost_fraction=0.3, c=0.9)), 2)
        5.17
    """
    log_growth = _checked_age(age_iters) * -np.log(checked_rate(c))
    root = np.sqrt(checked_fraction(lost_fraction))
    if direction not in ("straight", "any"):
        raise UsageError(f"direction is {direction!r}; expected 'straight' or 'any'")
    # log(1 + √p (eᴳ ∓ 1)), without eᴳ, which may be too large for a float
    sign = -1.0 if direction == "straight" else 1.0
    with np.errstate(divide="ignore"):
        log_total = np.logaddexp(np.log(root) + log_growth, np.log1p(sign * root))
    return np.asarray(log_total / -np.log(checked_rate(c)))


def effective_age(ages_iters: ArrayLike, c: ArrayLike) -> NDArray[np.float64]:
    """The one age that perturbs as much as blocks of different ages do, to be used in `stale_cost_bound`.

    If the distance to x* is spread evenly over the blocks, (c⁻ᵃ − 1)² is the mean of these over the blocks. It is
    between the mean age and the largest. Priority checkpoints leave old what has hardly moved, and what hardly moves is
    mostly near to its end, so for them this is too large.

    Args:
        ages_iters: of each block, at least 0, shape (…, n), n at least 1.
        c: rate of linear convergence, above 0 and below 1, of the shape of the result.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> round(float(effective_age([8, 8, 8], 0.9)), 6), round(float(effective_age([0, 0, 8], 0.9)), 2)
        (8.0, 5.39)
    """
    ages, rate = _checked_age(ages_iters), checked_rate(c)
    if ages.ndim == 0 or ages.shape[-1] == 0:
        raise UsageError("ages_iters must have an age for each block, and at least one")
    growth = ages * -np.log(rate)[..., None]
    with np.errstate(divide="ignore"):
        log_squares = 2 * (growth + np.log(-np.expm1(-growth)))
    log_mean = np.logaddexp.reduce(log_squares, axis=-1) - np.log(ages.shape[-1])
    return np.asarray(np.logaddexp(0.0, log_mean / 2) / -np.log(rate))


def _checked_age(age_iters: ArrayLike) -> NDArray[np.float64]:
    age = np.asarray(age_iters, np.float64)
    if not ((age >= 0) & np.isfinite(age)).all():
        raise UsageError("ages must be finite and at least 0: how many iterations ago a value was saved")
    return age

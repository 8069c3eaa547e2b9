"""Reduced precision: parameters that are rounded after every iteration.

Rounding to a p-bit mantissa (the leading bit counted) changes each number by at most the part u of it, and so the
vector, too: ‖δ_k‖ ≤ u ‖y(k)‖, with u = 2^−p for rounding to nearest and 2^−(p−1) for chopping; the paper's example 2.1
has the latter. Numbers must neither overflow nor underflow.

The paper then asks for a Δ of at least 2^−(p−1) ‖x(k)‖ for all k. It means ‖y(k)‖, which the perturbations enlarge. No
such Δ is needed: with ‖y(k)‖ ≤ ‖x*‖ + ‖y(k) − x*‖

    ‖y(k+1) − x*‖ ≤ c (1 + u) (‖y(k) − x*‖ + Δ),    Δ = u / (1 + u) ‖x*‖,

which is the recursion of perturbations in every iteration at the slower rate c (1 + u). It must be below 1.

Source: examples 2.1 and 3.4, appendix B.1 of the paper; Higham, Accuracy and Stability of Numerical Algorithms, 2002,
section 2.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scarml.errors import UsageError
from scarml.theory.assumptions import checked_distance, checked_norm, checked_rate
from scarml.theory.every_iteration import every_iteration_cost_bound, irreducible_error

__all__ = ["MANTISSA_BITS", "precision_cost_bound", "precision_error", "rounding_unit"]

Rounding = Literal["nearest", "chop"]

MANTISSA_BITS: Mapping[str, int] = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""p of the usual formats, the leading bit that is not stored counted."""


def rounding_unit(mantissa_bits: ArrayLike, rounding: Rounding = "nearest") -> NDArray[np.float64]:
    """The largest relative change u that rounding to a p-bit mantissa makes.

    Args:
        mantissa_bits: p, at least 1, the leading bit counted; see `MANTISSA_BITS`.
        rounding: to the nearest number, or by leaving bits out.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> float(rounding_unit(8)), float(rounding_unit(8, "chop"))
        (0.00390625, 0.0078125)
    """
    bits = np.asarray(mantissa_bits, np.float64)
    if not (bits >= 1).all():
        raise UsageError("mantissa_bits must be at least 1: the leading bit counts")
    if rounding not in ("nearest", "chop"):
        raise UsageError(f"rounding is {rounding!r}; expected 'nearest' or 'chop'")
    return np.asarray(2.0 ** (-bits if rounding == "nearest" else 1 - bits))


def precision_error(
    mantissa_bits: ArrayLike, optimum_norm: ArrayLike, c: ArrayLike, rounding: Rounding = "nearest"
) -> NDArray[np.float64]:
    """How near to x* training in p bits comes at worst: c u ‖x*‖ / (1 − c (1 + u)).

    The distance is that of y(k), before it is rounded.

    Args:
        mantissa_bits: p, at least 1.
        optimum_norm: ‖x*‖, at least 0.
        c: rate of linear convergence in exact arithmetic, above 0 and below 1.
        rounding: to the nearest number, or by leaving bits out.

    Raises:
        UsageError: c (1 + u) is not below 1, or another assumption is broken.

    Example:
        >>> round(float(precision_error(8, optimum_norm=1.0, c=0.9)), 4)
        0.0364
    """
    slower, delta = _as_every_iteration(mantissa_bits, optimum_norm, c, rounding)
    return irreducible_error(delta, slower)


def precision_cost_bound(
    mantissa_bits: ArrayLike,
    optimum_norm: ArrayLike,
    eps: ArrayLike,
    x0_distance: ArrayLike,
    c: ArrayLike,
    rounding: Rounding = "nearest",
) -> NDArray[np.float64]:
    """The bound on the iterations that training in p bits takes longer than in exact arithmetic.

    Args:
        mantissa_bits: p, at least 1.
        optimum_norm: ‖x*‖, at least 0.
        eps: ε, the distance at which training is done.
        x0_distance: ‖x(0) − x*‖, above 0.
        c: rate of linear convergence in exact arithmetic, above 0 and below 1.
        rounding: to the nearest number, or by leaving bits out.

    Raises:
        UsageError: ε cannot be reached in p bits, or an assumption is broken.

    Example:
        >>> round(float(precision_cost_bound(8, optimum_norm=1.0, eps=0.1, x0_distance=10.0, c=0.9)), 2)
        6.11
    """
    rate, start, goal = checked_rate(c), checked_distance(x0_distance), np.asarray(eps, np.float64)
    slower, delta = _as_every_iteration(mantissa_bits, optimum_norm, c, rounding)
    longer = every_iteration_cost_bound(delta, goal, start, slower)
    steps = np.log(start / goal)
    return np.asarray(longer + steps / -np.log(slower) - steps / -np.log(rate))


def _as_every_iteration(
    mantissa_bits: ArrayLike, optimum_norm: ArrayLike, c: ArrayLike, rounding: Rounding
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The rate c (1 + u) and the perturbation Δ = u / (1 + u) ‖x*‖ that rounding amounts to."""
    unit = rounding_unit(mantissa_bits, rounding)
    slower = np.asarray(checked_rate(c) * (1 + unit))
    if not (slower < 1).all():
        raise UsageError(
            f"c (1 + u) = {slower.max():.6g} is not below 1: rounding with u = {unit.max():.3g} may undo what an "
            "iteration gains; more bits are needed"
        )
    return slower, np.asarray(unit / (1 + unit) * checked_norm(optimum_norm, "optimum_norm"))

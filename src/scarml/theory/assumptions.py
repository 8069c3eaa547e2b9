"""What the bounds assume of c, of distances and of fractions, checked in one place; errors say which one fails."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scarml.errors import UsageError

__all__ = ["checked_distance", "checked_fraction", "checked_norm", "checked_rate"]


def checked_rate(c: ArrayLike) -> NDArray[np.float64]:
    """A rate c of linear convergence, assumptions (3) and (5) of the paper.

    Raises:
        UsageError: c is not above 0 and below 1.

    Example:
        >>> checked_rate([0.5, 0.9]).tolist()
        [0.5, 0.9]
    """
    rate = np.asarray(c, np.float64)
    if not ((rate > 0) & (rate < 1)).all():
        raise UsageError("c must be above 0 and below 1: without linear convergence Theorem 3.2 says nothing")
    return rate


def checked_distance(x0_distance: ArrayLike) -> NDArray[np.float64]:
    """A distance ‖x(0) − x*‖.

    Raises:
        UsageError: it is not finite or not above 0.

    Example:
        >>> float(checked_distance(2))
        2.0
    """
    start = np.asarray(x0_distance, np.float64)
    if not ((start > 0) & np.isfinite(start)).all():
        raise UsageError("x0_distance must be finite and above 0: the bound is relative to how far the start is off")
    return start


def checked_norm(norm: ArrayLike, name: str) -> NDArray[np.float64]:
    """A norm, by the name of its argument.

    Raises:
        UsageError: it is not at least 0.

    Example:
        >>> float(checked_norm(0, "delta"))
        0.0
    """
    size = np.asarray(norm, np.float64)
    if not (size >= 0).all():
        raise UsageError(f"{name} is a norm; expected numbers of at least 0")
    return size


def checked_fraction(fraction: ArrayLike) -> NDArray[np.float64]:
    """A fraction of the parameters that is lost, p of Theorem 4.2.

    Raises:
        UsageError: it is not between 0 and 1.

    Example:
        >>> float(checked_fraction(0.3))
        0.3
    """
    lost = np.asarray(fraction, np.float64)
    if not ((lost >= 0) & (lost <= 1)).all():
        raise UsageError("lost_fraction must be between 0 (nothing is lost) and 1 (everything is)")
    return lost

"""The rate c of gradient descent, where the curvature of the loss is known.

For a loss with strong convexity μ and a gradient that is L-Lipschitz (all curvatures between μ and L) and a step size α

    ‖f(x) − x*‖ ≤ max(|1 − α μ|, |1 − α L|) ‖x − x*‖.

The paper's Lemma 3.1 names only strong convexity. That is not enough: without an L, or with α ≥ 2/L, steps may lead
away from x*.

Source: lemma 3.1 of the paper; Nesterov, Introductory Lectures on Convex Optimization, theorem 2.1.15, for the best
step; Ryu and Boyd, A Primer on Monotone Operator Methods, 2016, section 5.1, for the others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scarml.errors import UsageError

__all__ = ["gradient_descent_rate"]


def gradient_descent_rate(
    strong_convexity: ArrayLike, smoothness: ArrayLike, step_size: ArrayLike | None = None
) -> NDArray[np.float64]:
    """The rate c of gradient descent: max(|1 − α μ|, |1 − α L|), met by a quadratic loss.

    Args:
        strong_convexity: μ, the smallest curvature, above 0.
        smoothness: L, the largest, at least μ.
        step_size: α, above 0 and below 2 / L; None: the best constant one, 2 / (μ + L), which gives (L − μ) / (L + μ).

    Raises:
        UsageError: naming the argument with which gradient descent does not converge linearly.

    Example:
        >>> float(gradient_descent_rate(1.0, 3.0)), float(gradient_descent_rate(1.0, 3.0, step_size=0.1))
        (0.5, 0.9)
    """
    low, high = np.asarray(strong_convexity, np.float64), np.asarray(smoothness, np.float64)
    if not ((low > 0) & np.isfinite(low)).all():
        raise UsageError("strong_convexity must be above 0: on a flat valley there is no linear convergence to a point")
    if not ((high >= low) & np.isfinite(high)).all():
        raise UsageError("smoothness must be finite and at least strong_convexity: it is the largest curvature")
    step = np.asarray(2 / (low + high) if step_size is None else step_size, np.float64)
    if not ((step > 0) & (step * high < 2)).all():
        raise UsageError("step_size must be above 0 and below 2 / smoothness, or steps lead away from the optimum")
    return np.asarray(np.maximum(np.abs(1 - step * low), np.abs(1 - step * high)))

"""Exponential decay fitted by least squares, with standard errors that allow for correlated residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Decay", "fit_decay", "fit_decay_to_limit"]

STRAIGHT = 0.1
"""Over the whole curve ln(excess) falls by less than this: a straight line, from which no limit can be told."""

_F = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Decay:
    """y(k) = limit + exp(log_start − rate · k).

    Args:
        rate: per iteration, above 0 if the curve falls.
        log_start: logarithm of what is above the limit at iteration 0; NaN if nothing is.
        limit: what the curve falls to.
        rate_error, log_start_error: standard errors.
        df: degrees of freedom that are left.
        problem: why it is no such curve; None if it can be one.
    """

    rate: float
    log_start: float
    limit: float
    rate_error: float
    log_start_error: float
    df: float
    problem: str | None = None

    def quantile(self, confidence: float) -> float:
        """How many standard errors an interval of this confidence extends to either side (Student's t)."""
        from scipy.special import stdtrit  # takes a while to load, which engines must not wait for

        return float(stdtrit(self.df, (1 + confidence) / 2))


def fit_decay(k: NDArray[np.float64], y: NDArray[np.float64]) -> Decay:
    """To a limit of 0: a line through the logarithms.

    Args:
        k: iterations, ascending, shape (n,), n at least 4.
        y: above 0, shape (n,).

    Example:
        >>> found = fit_decay(np.arange(4.0), np.array([8.0, 4.0, 2.0, 1.0]))
        >>> round(math.exp(-found.rate), 6), round(math.exp(found.log_start), 6)
        (0.5, 8.0)
    """
    jacobian = np.column_stack([np.ones_like(k), k])
    (log_start, slope), _, _, _ = np.linalg.lstsq(jacobian, np.log(y), rcond=None)
    errors, df = _errors(jacobian, np.log(y) - jacobian @ (log_start, slope))
    return Decay(-float(slope), float(log_start), 0.0, float(errors[1]), float(errors[0]), df)


def fit_decay_to_limit(k: NDArray[np.float64], y: NDArray[np.float64]) -> Decay:
    """To a limit that is fitted with it.

    For a given rate the best limit and start are a linear problem, so only the rate is searched for (variable
    projection): on a grid from a hardly bent line to a fall within one step, and then between its neighbours.

    Args:
        k: iterations, ascending, shape (n,), n at least 4.
        y: shape (n,).

    Example:
        >>> found = fit_decay_to_limit(np.arange(6.0), 3 + 0.5 ** np.arange(6))
        >>> round(math.exp(-found.rate), 4), round(found.limit, 4)
        (0.5, 3.0)
    """
    from scipy.optimize import minimize_scalar  # takes a while to load, which engines must not wait for

    since, span = k - k[0], float(k[-1] - k[0])
    grid = np.geomspace(STRAIGHT / span / 2, 10 / float(np.diff(k).min()), 120)
    best = int(np.argmin([_project(r, since, y)[1] for r in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    search: Any = minimize_scalar(
        lambda log_rate: _project(math.exp(log_rate), since, y)[1],
        bounds=(math.log(low), math.log(high)),
        method="bounded",
        options={"xatol": 1e-10},
    )
    rate = math.exp(float(search.x))
    (limit, above), _ = _project(rate, since, y)
    falling = np.exp(-rate * since)
    jacobian = np.column_stack([np.ones_like(k), falling, -above * since * falling])
    errors, df = _errors(jacobian, y - limit - above * falling)
    bent = above > 0 and rate * span >= STRAIGHT
    problem = None if bent else "the losses fall along a straight line, or faster and faster: their end cannot be told"
    log_start = math.log(above) + rate * float(k[0]) if above > 0 else math.nan
    log_start_error = math.hypot(float(errors[1]) / above, float(k[0] * errors[2])) if above > 0 else math.nan
    return Decay(rate, log_start, float(limit), float(errors[2]), log_start_error, df, problem)


def _project(rate: float, since: _F, y: _F) -> tuple[tuple[float, float], float]:
    """The best (limit, start) for a rate, and the sum of squared residuals."""
    falling = np.exp(-rate * since)
    f, z = falling - falling.mean(), y - y.mean()
    above = float(f @ z) / float(f @ f)
    residuals = z - above * f
    return (float(y.mean() - above * falling.mean()), above), float(residuals @ residuals)


def _errors(jacobian: _F, residuals: _F) -> tuple[_F, float]:
    """Standard errors of the parameters, as if there were only n (1 − ρ) / (1 + ρ) observations.

    ρ is the correlation of neighbouring residuals, corrected for its bias (Kendall), between 0 and 0.98.
    """
    n, p = jacobian.shape
    squares = float(residuals @ residuals)
    rho = float(residuals[1:] @ residuals[:-1]) / squares if squares > 0 else 0.0
    rho = min(max(rho + (1 + 4 * rho) / n, 0.0), 0.98)
    n_effective = n * (1 - rho) / (1 + rho)
    variance = squares / max(n - p, 1) * n / n_effective
    covariance = variance * np.linalg.pinv(jacobian.T @ jacobian)
    return np.sqrt(np.maximum(np.diag(covariance), 0.0)), max(n_effective - p, 1.0)

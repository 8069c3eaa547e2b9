"""Means with intervals, by the percentile bootstrap.

Source: B. Efron, R. Tibshirani, An Introduction to the Bootstrap, 1993, chapters 8 and 13.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from scarml.core.rng import stream
from scarml.errors import UsageError

__all__ = ["Interval", "mean_interval", "paired_reduction"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


def mean_interval(values: ArrayLike, *, seed: int = 0, n_resamples: int = 10_000) -> Interval:
    """The mean, with a percentile bootstrap over trials.

    Args:
        values: one a trial, shape (n,).
        seed: of the resampling.
        n_resamples: how many.

    Raises:
        UsageError: if there are none.

    Example:
        >>> mean_interval([1.0, 3.0]).value
        2.0
    """
    a = np.asarray(values, float)
    if a.ndim != 1 or len(a) == 0:
        raise UsageError(f"values of shape {a.shape}; expected one for each trial")
    means = a[stream(seed, "bootstrap").integers(len(a), size=(n_resamples, len(a)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(a.mean()), float(low), float(high))


def paired_reduction(reference: ArrayLike, costs: ArrayLike, *, seed: int = 0, n_resamples: int = 10_000) -> Interval:
    """By how much the mean cost is lower than the reference's: 1 − mean(costs) / mean(reference).

    A ratio of means, not a mean of ratios: single reference costs may be zero. The interval is the percentile
    bootstrap over trials; a trial's two costs stay together, since both strategies met the same failure.

    Args:
        reference: costs of the reference strategy, one a trial, shape (n,).
        costs: of the strategy in question, for the same trials in the same order.
        seed: of the resampling.
        n_resamples: how many.

    Raises:
        UsageError: if the shapes differ, or the reference's mean is not above 0.

    Example:
        >>> paired_reduction([4.0, 2.0], [1.0, 0.5]).value
        0.75
    """
    a, b = np.asarray(reference, float), np.asarray(costs, float)
    if a.shape != b.shape or a.ndim != 1 or len(a) == 0:
        raise UsageError(f"{a.shape} reference costs and {b.shape} costs; expected one of each for every trial")
    if not a.mean() > 0:
        raise UsageError(f"the reference's mean cost is {a.mean():.3g}; a reduction needs it above 0")
    drawn = stream(seed, "bootstrap").integers(len(a), size=(n_resamples, len(a)))
    mean_a, mean_b = a[drawn].mean(axis=1), b[drawn].mean(axis=1)
    usable = mean_a > 0
    low, high = np.percentile(1 - mean_b[usable] / mean_a[usable], [2.5, 97.5])
    return Interval(float(1 - b.mean() / a.mean()), float(low), float(high))

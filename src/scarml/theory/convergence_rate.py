"""The rate of linear convergence c and the distance of the start, estimated from a run.

Theorem 3.2 needs both, and neither is known in practice. What a run shows determines c:

* distances ‖x(k) − x*‖, where the optimum is known: they fall as cᵏ;
* successive steps ‖x(k+1) − x(k)‖, where it is not: they fall at the same rate, since x(k) − x* = cᵏ v gives steps
  cᵏ (f(v) − v);
* losses: near a smooth minimum what is above it is quadratic in the distance, and falls as c²ᵏ. The minimum is
  estimated with it.

All three fit an exponential by least squares. Neighbouring residuals of a run are alike, so the intervals count
n (1 − ρ) / (1 + ρ) observations, with ρ their correlation, instead of n. In simulations intervals of 95 % hold the true
rate in 94 to 97 % of runs with independent noise, in about 90 % with ρ = 0.9 and 200 values, and in 80 % with ρ = 0.9
and 60: strongly correlated noise looks like a trend. What is not linear is said to be so: the two halves of the curve
must show the same rate.

What is estimated is the rate at which *this* run converges in the end. The theorem needs a c that holds wherever a
perturbation may lead; no single run can show that.

Source: the paper determines c "empirically" (figures 3, 5 and 6) and leaves open how; its section 7 names the
approximation of c and ‖x(0) − x*‖ as future work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scarml.errors import UsageError
from scarml.theory.assumptions import checked_norm, checked_rate
from scarml.theory.exponential_fit import Decay, fit_decay, fit_decay_to_limit

__all__ = ["RateEstimate", "rate_from_distances", "rate_from_losses", "rate_from_steps", "start_distance"]

FEWEST = 8
"""Values that an estimate needs: two halves of four."""
SAME_RATE = 0.25
"""Two halves whose ln(1/c) differ by less than this part of their mean count as of one rate. A power of k falls, over
the second half of any curve, by 0.33, so that sublinear convergence does not pass."""
ROUNDING = 1e-13
"""Distances of this part of the largest are rounding errors of float64, and no longer fall."""
WHOLE_WAY = 1e-6
"""A loss that has only this part of its way left is taken for arrived."""
NOISES = 5.0
"""And so is one that is no more than so many standard deviations of its noise above where it ends."""

_F = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RateEstimate:
    """A rate of linear convergence and where the curve starts, with intervals.

    Args:
        c: the rate per iteration.
        c_low, c_high: its interval.
        start: ‖x(0) − x*‖; from `rate_from_losses` how far loss(x(0)) is above loss(x*). The fitted curve has it
            at iteration 0. Where the run began faster than at the rate c that is less than the true value, and it is
            the one to put into the bound: the run goes on as if it had started there.
        start_low, start_high: its interval.
        limit: 0 for distances and steps, loss(x*) for losses.
        from_iter, to_iter: the part of the run that was used, both included.
        problem: why this is no linear convergence, in words; None if nothing speaks against it. The numbers are then
            still the best fit, and no more.
    """

    c: float
    c_low: float
    c_high: float
    start: float
    start_low: float
    start_high: float
    limit: float
    from_iter: float
    to_iter: float
    problem: str | None

    @property
    def is_linear(self) -> bool:
        """Whether nothing speaks against linear convergence."""
        return self.problem is None


def rate_from_distances(
    distances: ArrayLike,
    iterations: ArrayLike | None = None,
    *,
    from_iter: float | None = None,
    confidence: float = 0.95,
) -> RateEstimate:
    """The rate c and ‖x(0) − x*‖ from the distances to a known optimum.

    The logarithms of the distances are fitted by a line. A run often begins faster than it goes on, until the slowest
    direction is all that is left. So of the whole curve, its last three quarters and its last half the first is taken
    whose two halves show the same rate.

    Args:
        distances: ‖x(k) − x*‖, at least 0, shape (n,). What is at the level of rounding errors is left out.
        iterations: where they were measured, ascending, shape (n,); 0, 1, 2, … by default.
        from_iter: leave out what comes before, instead of looking for it.
        confidence: of the intervals, between 0 and 1.

    Raises:
        UsageError: fewer than 8 usable values, or they do not fall.

    Example:
        >>> found = rate_from_distances(5.0 * 0.9 ** np.arange(40))
        >>> round(found.c, 6), round(found.start, 6), found.is_linear
        (0.9, 5.0, True)
    """
    at, d = _checked(distances, iterations, "distances", least=0.0)
    found = _settled(*_above_rounding(at, d, "distances"), fit_decay, from_iter, confidence)
    return found.estimate(1.0, confidence)


def rate_from_steps(
    steps: ArrayLike, iterations: ArrayLike | None = None, *, from_iter: float | None = None, confidence: float = 0.95
) -> RateEstimate:
    """The rate c and ‖x(0) − x*‖ from successive steps; no optimum is needed.

    From ‖x(k+1) − x*‖ ≤ c ‖x(k) − x*‖ and the triangle inequality, a step of size s from x(k) has
    s / (1 + c) ≤ ‖x(k) − x*‖ ≤ s / (1 − c): the lower end where the steps jump to and fro over the optimum, the upper
    one where they go straight to it. ``start`` is the upper one, and its interval holds both.

    Args:
        steps: ‖x(k+1) − x(k)‖, at least 0, shape (n,).
        iterations: k of each, ascending, shape (n,); 0, 1, 2, … by default.
        from_iter: leave out what comes before, instead of looking for it.
        confidence: of the intervals, between 0 and 1.

    Raises:
        UsageError: fewer than 8 usable values, or they do not fall.

    Example:
        >>> x = 5.0 * 0.9 ** np.arange(40)
        >>> found = rate_from_steps(np.abs(np.diff(x)))
        >>> round(found.c, 6), round(found.start, 6)
        (0.9, 5.0)
    """
    at, s = _checked(steps, iterations, "steps", least=0.0)
    found = _settled(*_above_rounding(at, s, "steps"), fit_decay, from_iter, confidence).estimate(1.0, confidence)
    return replace(
        found,
        start=_straight(found.start, found.c),
        start_low=found.start_low / (1 + found.c_high),
        start_high=_straight(found.start_high, found.c_high),
    )


def rate_from_losses(
    losses: ArrayLike,
    iterations: ArrayLike | None = None,
    *,
    power: float = 2.0,
    from_iter: float | None = None,
    confidence: float = 0.95,
) -> RateEstimate:
    """The rate c from a loss curve; neither the optimum nor the minimum of the loss is needed.

    loss(x(k)) = loss(x*) + b qᵏ is fitted by least squares in all three, and c is q^(1/power). Where the loss falls to
    a level of noise and not to its minimum, as in SGD with a constant step, this is the rate at which it gets there.

    Args:
        losses: shape (n,), in any unit.
        iterations: where they were evaluated, ascending, shape (n,); 0, 1, 2, … by default.
        power: the loss grows as the distance to this power; 2 at a smooth minimum, 1 at a sharp one.
        from_iter: leave out what comes before, instead of looking for it.
        confidence: of the intervals, between 0 and 1.

    Raises:
        UsageError: fewer than 8 usable values, or they do not fall.

    Example:
        >>> found = rate_from_losses(3.0 + 8.0 * 0.81 ** np.arange(40))
        >>> round(found.c, 6), round(found.limit, 6), round(found.start, 6)
        (0.9, 3.0, 8.0)
    """
    if not power > 0:
        raise UsageError(f"power is {power}; expected a number above 0")
    at, losses_ = _checked(losses, iterations, "losses", least=-math.inf)
    until = _on_its_way(losses_)
    found = _settled(at[:until], losses_[:until], fit_decay_to_limit, from_iter, confidence)
    return found.estimate(power, confidence)


def start_distance(moved: ArrayLike, last_step: ArrayLike, c: ArrayLike) -> tuple[_F, _F]:
    """The interval that ‖x(0) − x*‖ must lie in, from how far a run has come; no optimum is needed.

    The end of the run is no further from x* than c / (1 − c) times its last step, and x(0) is ‖x(n) − x(0)‖ from there.

    Args:
        moved: ‖x(n) − x(0)‖.
        last_step: ‖x(n) − x(n−1)‖.
        c: rate of linear convergence, above 0 and below 1; take the upper end of its interval.

    Returns:
        The lower and the upper end.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> low, high = start_distance(moved=9.0, last_step=0.1, c=0.9)
        >>> round(float(low), 6), round(float(high), 6)
        (8.1, 9.9)
    """
    way, step, rate = checked_norm(moved, "moved"), checked_norm(last_step, "last_step"), checked_rate(c)
    left = rate / (1 - rate) * step
    return np.maximum(way - left, 0.0), way + left


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A fit to a part of the curve, with how far its two halves differ beyond noise, and what speaks against it."""

    decay: Decay
    at: _F
    trend: float
    second_half_rate: float
    problem: str | None

    def estimate(self, power: float, confidence: float) -> RateEstimate:
        """In factors. The interval follows the trend of the halves once more: transients die out at least so fast."""
        decay, width = self.decay, self.decay.quantile(confidence)
        reach = width * decay.rate_error
        followed = [self.second_half_rate, self.second_half_rate + self.trend] if self.trend else []
        rates = [decay.rate - reach, decay.rate + reach, *followed]
        spread = width * decay.log_start_error
        return RateEstimate(
            c=_exp(-decay.rate / power),
            c_low=_exp(-max(rates) / power),
            c_high=_exp(-min(rates) / power),
            start=_exp(decay.log_start),
            start_low=_exp(decay.log_start - spread),
            start_high=_exp(decay.log_start + spread),
            limit=decay.limit,
            from_iter=float(self.at[0]),
            to_iter=float(self.at[-1]),
            problem=self.problem,
        )


def _settled(at: _F, y: _F, fit: Callable[[_F, _F], Decay], from_iter: float | None, confidence: float) -> _Fitted:
    """The longest of three parts whose halves agree; the last half of the curve if they do nowhere."""
    if not 0 < confidence < 1:
        raise UsageError(f"confidence is {confidence}; expected a number between 0 and 1, as 0.95")
    n = len(at)
    starts = [0, n // 4, n // 2] if from_iter is None else [int(np.searchsorted(at, from_iter))]
    usable = [first for first in starts if n - first >= FEWEST]
    if not usable:
        raise UsageError(f"{n - starts[0]} values are left to see a rate in; expected at least {FEWEST}")
    fitted = _fitted(at[usable[0] :], y[usable[0] :], fit)
    for first in usable[1:]:
        if fitted.problem is None and not fitted.trend:
            break
        fitted = _fitted(at[first:], y[first:], fit)
    if not fitted.decay.rate > 0:
        raise UsageError(
            f"from iteration {fitted.at[0]:g} to {fitted.at[-1]:g} it gets no nearer: there is no rate to see"
        )
    return fitted


def _fitted(at: _F, y: _F, fit: Callable[[_F, _F], Decay]) -> _Fitted:
    whole, half = fit(at, y), len(at) // 2
    first, second = fit(at[:half], y[:half]), fit(at[half:], y[half:])
    trend = second.rate - first.rate
    if abs(trend) <= 2 * math.hypot(first.rate_error, second.rate_error):
        trend = 0.0
    problem = whole.problem
    if problem is None and abs(trend) > SAME_RATE * abs(first.rate + second.rate) / 2:
        problem = (
            f"it gets {'slower' if trend < 0 else 'faster'}: what is left of the curve shrinks by the factor "
            f"{_exp(-first.rate):.4g} an iteration in iterations {at[0]:g} to {at[half - 1]:g}, by "
            f"{_exp(-second.rate):.4g} in {at[half]:g} to {at[-1]:g}; linear convergence has one factor"
        )
    return _Fitted(whole, at, trend, second.rate, problem)


def _on_its_way(losses: _F) -> int:
    """How many values it takes until the curve has fallen into its own noise, where no rate can be seen.

    The noise is taken from second differences in the second half of the curve: there a smooth fall has hardly any.
    """
    way = losses - losses[-max(len(losses) // 10, 1) :].mean()
    if way[0] <= 0:
        raise UsageError(f"the losses do not fall: {losses[0]:.6g} at the start, {losses[-1]:.6g} at the end")
    noise = float(np.sqrt(np.mean(np.diff(losses[len(losses) // 2 :], 2) ** 2) / 6))
    above = np.flatnonzero(way > max(WHOLE_WAY * way.max(), NOISES * noise))
    return max(int(above[-1]) + 1 if len(above) else 0, FEWEST)


def _straight(step: float, c: float) -> float:
    """How far steps that begin with this one, and go straight, lead in all."""
    return step / (1 - c) if c < 1 else math.inf


def _exp(x: float) -> float:
    return math.inf if x > 700 else math.exp(x)


def _checked(values: ArrayLike, iterations: ArrayLike | None, what: str, least: float) -> tuple[_F, _F]:
    y = np.asarray(values, np.float64)
    at = np.arange(y.size, dtype=np.float64) if iterations is None else np.asarray(iterations, np.float64)
    if y.ndim != 1 or at.shape != y.shape or (np.diff(at) <= 0).any():
        raise UsageError(f"{what} and iterations must be of one length, the iterations ascending")
    if len(y) < FEWEST:
        raise UsageError(f"there are {len(y)} {what}; expected at least {FEWEST} to see a rate in")
    if not (np.isfinite(y) & (y >= least)).all():
        raise UsageError(
            f"{what} must be finite{' and at least 0' if least == 0 else ''}; a run that diverges has no rate"
        )
    return at, y


def _above_rounding(at: _F, y: _F, what: str) -> tuple[_F, _F]:
    """Up to the first value that is nothing but rounding."""
    low = np.flatnonzero(y <= ROUNDING * y.max())
    until: Any = low[0] if len(low) else len(y)
    if until < FEWEST:
        raise UsageError(f"only the first {until} {what} are above rounding errors; expected at least {FEWEST}")
    return at[:until], y[:until]

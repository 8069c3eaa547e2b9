"""The time a run takes: T = solve + dump + rework + restart, and the checkpoint interval that makes it least.

Failures strike at random (a Poisson process) with a mean time M between them. The run saves after every interval τ of
work, in a time D that it stands still, so that W = τ + D is at risk between saves. A failure sets the run back by the
part ρ of what it has done since the last save:

* ρ = 1, full recovery: everything since the last save is done again. This is the model of Daly (2006);
* ρ < 1, partial recovery: the iteration cost is less than the iterations since the save, and survivors keep theirs.

Let U(a) be the mean working time until the progress a since the last save is made. A failure at a throws the run back
to (1 − ρ) a, so

    U'(a) = 1 + (U(a) − U((1 − ρ) a)) / M,    U(0) = 0,

    U(a) = Σ_{n≥1} aⁿ / n! · M^(1−n) · Π_{j<n} (1 − (1 − ρ)ʲ).

For ρ = 1 this is Daly's M (exp(a/M) − 1), for ρ → 0 it is a. A restart of R, during which failures strike, too, makes
each failure cost M (exp(R/M) − 1) more (Daly). The best τ does not depend on R. For D ≪ M it is √(2 D M / ρ), which for
ρ = 1 is Young's (1974).

Source: section 4 of the paper, which gives the sum only; J. T. Daly, A higher order estimate of the optimum checkpoint
interval for restart dumps, 2006. ρ is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scarml.errors import UsageError
from scarml.theory.assumptions import checked_rate
from scarml.theory.partial_recovery import stale_cost_bound

__all__ = ["RunTime", "RunTimeModel", "rework_ratio", "young_interval_s"]

MOST_TERMS = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class RunTime:
    """The expected parts of a run's time, each of the shape of the intervals.

    Args:
        solve_s: the run without failures and saves.
        dump_s: standing still while saving.
        rework_s: doing again what failures undid.
        restart_s: restoring.
        n_failures: how many are expected.
    """

    solve_s: NDArray[np.float64]
    dump_s: NDArray[np.float64]
    rework_s: NDArray[np.float64]
    restart_s: NDArray[np.float64]
    n_failures: NDArray[np.float64]

    @property
    def total_s(self) -> NDArray[np.float64]:
        """T, the sum."""
        return np.asarray(self.solve_s + self.dump_s + self.rework_s + self.restart_s)


@dataclass(frozen=True, slots=True)
class RunTimeModel:
    """A run and what it is up against.

    Args:
        solve_s: its time without failures and saves, above 0.
        dump_s: D, how long a save holds it up, above 0. Of a save in the background that is what the run waits for.
        mtbf_s: M, mean time between failures of anything that the run needs, above 0. Of N servers that fail each
            once in m, it is m / N.
        restart_s: R, from a failure until the run works again, at least 0.
        rework_ratio: ρ, iterations that a failure costs ÷ iterations since the last save, above 0, at most 1: measured,
            or bounded by `rework_ratio`.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> full = RunTimeModel(solve_s=36_000, dump_s=10, mtbf_s=3600)
        >>> partial = RunTimeModel(solve_s=36_000, dump_s=10, mtbf_s=3600, rework_ratio=0.5)
        >>> round(full.optimum_interval_s()), round(partial.optimum_interval_s())
        (262, 370)
        >>> round(float(full.expected(262).total_s)), round(float(partial.expected(370).total_s))
        (38822, 37975)
    """

    solve_s: float
    dump_s: float
    mtbf_s: float
    restart_s: float = 0.0
    rework_ratio: float = 1.0

    def __post_init__(self) -> None:
        for name in ("solve_s", "dump_s", "mtbf_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"{name} is {getattr(self, name)}; expected a number of seconds above 0")
        if not 0 <= self.restart_s < math.inf:
            raise UsageError(f"restart_s is {self.restart_s}; expected a number of seconds of at least 0")
        if not 0 < self.rework_ratio <= 1:
            raise UsageError(
                f"rework_ratio is {self.rework_ratio}; expected a number above 0 (1: all that was done since the last "
                "save is done again)"
            )

    def expected(self, interval_s: ArrayLike) -> RunTime:
        """The parts of the run's time when it saves after every so many seconds of work.

        Args:
            interval_s: τ, above 0, any shape.

        Raises:
            UsageError: an interval is not above 0.
        """
        interval = np.asarray(interval_s, np.float64)
        if not (interval > 0).all():
            raise UsageError("interval_s must be above 0")
        n_saves, at_risk = self.solve_s / interval, interval + self.dump_s
        working = n_saves * self._working_s(at_risk)[0]
        restarting = working * math.expm1(self.restart_s / self.mtbf_s)
        return RunTime(
            solve_s=np.full_like(interval, self.solve_s),
            dump_s=np.asarray(n_saves * self.dump_s),
            rework_s=np.asarray(working - n_saves * at_risk),
            restart_s=np.asarray(restarting),
            n_failures=np.asarray((working + restarting) / self.mtbf_s),
        )

    def optimum_interval_s(self) -> float:
        """The τ for which `expected` is least: where τ U'(τ + D) = U(τ + D), of which there is one."""
        from scipy.optimize import brentq  # takes a while to load, which engines must not wait for

        def gain(log_interval: float) -> float:
            interval = math.exp(log_interval)
            time, slope = self._working_s(np.asarray(interval + self.dump_s))
            return float(interval * slope - time)

        low = math.log(young_interval_s(self.dump_s, self.mtbf_s, self.rework_ratio))
        high = low
        while gain(low) > 0:
            low -= 1
        while gain(high) < 0:
            high += 1
        return math.exp(float(brentq(gain, low, high, xtol=1e-12))) if low < high else math.exp(low)

    def _working_s(self, progress_s: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """U and U'. All terms are positive, so nothing is lost to rounding."""
        x, kept = progress_s / self.mtbf_s, 1 - self.rework_ratio
        term = np.ones_like(x)  # of U', n = 1
        slope, time = term.copy(), x.copy()
        for n in range(1, MOST_TERMS):
            with np.errstate(over="ignore"):
                term = term * x * ((1 - kept**n) / n)
                slope, time = slope + term, time + term * x / (n + 1)
            if (~np.isfinite(term) | (term <= 1e-17 * slope)).all():
                break
        return np.asarray(time * self.mtbf_s), np.asarray(slope)


def young_interval_s(dump_s: ArrayLike, mtbf_s: ArrayLike, rework_ratio: ArrayLike = 1.0) -> NDArray[np.float64]:
    """√(2 D M / ρ): the best interval to first order, for saves that are short against the time between failures.

    Args:
        dump_s: D, above 0.
        mtbf_s: M, above 0.
        rework_ratio: ρ, above 0, at most 1.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> float(young_interval_s(2.0, 3600.0)), float(young_interval_s(2.0, 3600.0, 0.25))
        (120.0, 240.0)
    """
    dump, mtbf, ratio = (np.asarray(a, np.float64) for a in (dump_s, mtbf_s, rework_ratio))
    if not ((dump > 0) & (mtbf > 0)).all() or not ((ratio > 0) & (ratio <= 1)).all():
        raise UsageError("dump_s and mtbf_s must be above 0, rework_ratio above 0 and at most 1")
    return np.asarray(np.sqrt(2 * dump * mtbf / ratio))


def rework_ratio(lost_fraction: float, interval_iters: float, c: float) -> float:
    """The bound on ρ: mean iteration cost of losing a fraction p ÷ mean iterations since the last save.

    Full checkpoints every C iterations, partial recovery, failures at any time alike: the mean of
    `stale_cost_bound` over ages from 0 to C, divided by C/2. It is near √p where an interval brings training little
    nearer (C log(1/c) ≪ 1), and 1 for p = 1.

    Args:
        lost_fraction: p, from 0 to 1.
        interval_iters: C, above 0.
        c: rate of linear convergence, above 0 and below 1.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> round(rework_ratio(0.25, 8, 0.99), 3), round(rework_ratio(0.25, 8, 0.5), 3)
        (0.507, 0.803)
    """
    if not 0 < interval_iters < math.inf:
        raise UsageError(f"interval_iters is {interval_iters}; expected a number above 0")
    nodes, weights = np.polynomial.legendre.leggauss(64)
    ages: Any = interval_iters * (nodes + 1) / 2
    costs = stale_cost_bound(ages, lost_fraction, checked_rate(c))
    return float(weights @ costs / 2 / (interval_iters / 2))

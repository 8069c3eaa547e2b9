"""What a run's folder tells ``scarml bound``: the rate of its losses, and how old what is saved is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scarml.cli.wording import counted
from scarml.errors import UsageError
from scarml.storage.loss_history import LossCurve, PastRecovery, iteration_seconds, loss_curves, past_recoveries
from scarml.storage.staleness import Staleness, staleness
from scarml.theory import RateEstimate, rate_from_losses

__all__ = ["KnownRate", "RunFacts", "read_run"]

ABOVE_0, BELOW_1 = 1e-9, 1 - 1e-9
"""Ends of an interval that reaches c = 0 or 1; what the bounds become there they have become long before."""


@dataclass(frozen=True, slots=True)
class KnownRate:
    """c with its interval; ``estimate`` is None where the user gave it."""

    c: float
    low: float
    high: float
    estimate: RateEstimate | None

    @classmethod
    def given(cls, c: float | None) -> KnownRate:
        """As the user says.

        Raises:
            UsageError: it is no rate.
        """
        if c is None or not 0 < c < 1:
            raise UsageError(f"--c is {c}; expected a number above 0 and below 1, how much of the distance is left")
        return cls(c, c, c, None)

    def rows(self) -> Iterator[tuple[str, str]]:
        """In words, with what speaks against it."""
        if self.estimate is None:
            yield "rate", f"c = {self.c:g} an iteration, as given"
            return
        e = self.estimate
        yield "rate", f"c = {e.c:.5g}  [{e.c_low:.5g}, {e.c_high:.5g}]  an iteration"
        yield "", f"from the losses of x({e.from_iter:g}) to x({e.to_iter:g})"
        if e.problem:
            yield "", f"NOT LINEAR: {e.problem}"
            yield "", "so the bounds below are no more than an orientation"

    def to_json(self) -> dict[str, Any]:
        """Fields that JSON can hold."""
        e = self.estimate
        return {
            "c": self.c,
            "low": self.low,
            "high": self.high,
            "is_given": e is None,
            "is_linear": e.is_linear if e else None,
            "problem": e.problem if e else None,
            "from_iter": e.from_iter if e else None,
            "to_iter": e.to_iter if e else None,
        }


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What was read."""

    url: str
    curves: list[LossCurve]
    stale: Staleness
    recoveries: list[PastRecovery]
    iteration_s: float | None
    n_blocks: int
    interval_iters: float | None
    sets_all_back: bool

    def rate(self, given: float | None) -> KnownRate:
        """The user's c, or the rate of the longest curve that no recovery interrupts.

        Raises:
            UsageError: the losses do not show one.
        """
        if given is not None:
            return KnownRate.given(given)
        longest = max(reversed(self.curves), key=lambda c: len(c.losses), default=LossCurve((), ()))
        try:
            e = rate_from_losses(longest.losses, longest.iterations)
        except UsageError as problem:
            raise UsageError(
                f"the losses of {self.url} do not show a rate of convergence: {problem}; give it with --c"
            ) from None
        low, c, high = (min(max(x, ABOVE_0), BELOW_1) for x in (e.c_low, e.c, e.c_high))
        return KnownRate(c, low, high, e)

    def ages(self) -> tuple[NDArray[Any], list[tuple[str, str]]]:
        """Of every block that counts, in iterations, and in words.

        Blocks that were never saved are left out: policies save what has moved, so these hardly have. Of a run that has
        ended with everything saved nothing is old; the question is then what losses cost while it goes on, and the
        interval C answers it.

        Raises:
            UsageError: nothing is saved, and the run does not say how often it saves.
        """
        at = f"x({self.stale.iteration})"
        if self.stale.is_complete or not len(self.stale.ages_iters):
            now = "everything, as the run ended" if self.stale.is_complete else "nothing yet"
            if self.interval_iters is None:
                raise UsageError(f"{self.url}: {now}; how old are saved values while it goes on? Give --age")
            text = f"{now}, at {at}; while it goes on, values are up to about {self.interval_iters:g} iterations old"
            return np.array([self.interval_iters]), [("saved", text), ("", "(the interval C), which is taken here")]
        ages = self.stale.ages_iters
        n_old = f"at {at} {ages.mean():.3g} iterations old on average, {ages.max()} the oldest"
        rows = [("saved", f"{counted(len(ages), 'block')}, {n_old}")]
        if self.stale.n_never:
            rows.append(("", f"{self.stale.n_never:,} never: taken for blocks that do not move"))
        return ages, rows


def read_run(url: str) -> RunFacts:
    """Read the event log and the versions of what is saved.

    Raises:
        UsageError: there is no run.
        StoreError: it cannot be read.
    """
    from scarml.cli.open_run import open_run

    run = open_run(url)
    events = run.read_events()
    checkpoint = run.description.get("checkpoint")
    checkpoint = checkpoint if isinstance(checkpoint, dict) else {}
    stale = staleness(run.store, run.description, events)
    return RunFacts(
        url=url,
        curves=loss_curves(events),
        stale=stale,
        recoveries=past_recoveries(events),
        iteration_s=iteration_seconds(events),
        n_blocks=len(stale.ages_iters) + stale.n_never,
        interval_iters=_interval(checkpoint),
        sets_all_back=checkpoint.get("recovery") == "full",
    )


def _interval(checkpoint: dict[str, Any]) -> float | None:
    try:
        return float(Fraction(str(checkpoint["interval_iters"])))
    except (KeyError, ValueError, ZeroDivisionError):
        return None

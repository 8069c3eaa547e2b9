"""The answers of ``scarml bound``: a question, what is known, and the bound for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scarml.cli.bound_run import KnownRate, RunFacts, read_run
from scarml.cli.wording import counted
from scarml.errors import UsageError
from scarml.storage.loss_history import PastRecovery
from scarml.theory import (
    effective_age,
    every_iteration_cost_bound,
    expected_partial_norm,
    irreducible_error,
    perturbation_cost_bound,
    stale_cost_bound,
)

__all__ = ["Answer", "Cost", "Question", "answer"]

USUAL_FRACTIONS = (0.1, 0.25, 0.5, 1.0)
"""Asked for where the user names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the user asks, as given; see the options of the command."""

    run: str | None = None
    lost_fraction: str | None = None
    c: float | None = None
    age_iters: float | None = None
    direction: Literal["straight", "any"] = "straight"
    deltas: tuple[str, ...] = ()
    distance: float | None = None
    x0_distance: float | None = None
    every_iteration: float | None = None
    eps: float | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """A bound in iterations: at c, and the least and the most over its interval. ``what`` names the loss."""

    what: str
    lost_fraction: float | None
    iters: float
    low: float
    high: float

    def in_words(self, iteration_s: float | None) -> str:
        """As ``2.1 [2.0, 2.3]``, with the time that it takes if that is known."""
        interval = f"  [{self.low:.3g}, {self.high:.3g}]" if f"{self.low:.3g}" != f"{self.high:.3g}" else ""
        seconds = f"  {self.iters * iteration_s:,.3g} s" if iteration_s else ""
        return f"{self.iters:.3g}{interval}{seconds}"


@dataclass(slots=True)
class Answer:
    """The rate, the bounds, and in words what they rest on."""

    rate: KnownRate
    costs: list[Cost] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    past: list[dict[str, Any]] = field(default_factory=list)
    iteration_s: float | None = None

    def rows(self) -> Iterator[tuple[str, str]]:
        """Labels and texts."""
        yield from self.rate.rows()
        yield from self.notes
        seconds = " (and seconds)" if self.iteration_s else ""
        yield "lost", f"costs at most so many iterations{seconds}, on average over what is lost"
        width = max(len(cost.what) for cost in self.costs)
        for cost in self.costs:
            yield "", f"{cost.what:<{width}}  {cost.in_words(self.iteration_s)}"
        for loss in self.past:
            yield "", loss["in_words"]

    def to_json(self) -> dict[str, Any]:
        """Fields that JSON can hold."""
        return {
            "rate": self.rate.to_json(),
            **self.numbers,
            "costs": [asdict(cost) for cost in self.costs],
            "past": [{k: v for k, v in loss.items() if k != "in_words"} for loss in self.past],
            "iteration_s": self.iteration_s,
        }


def answer(q: Question) -> Answer:
    """Bound what the user asks about.

    Raises:
        UsageError: something is missing, out of range, or does not go together.
        StoreError: the run cannot be read.
    """
    _check(q)
    facts = read_run(q.run) if q.run is not None else None
    rate = facts.rate(q.c) if facts else KnownRate.given(q.c)
    if q.every_iteration is not None:
        return _every_iteration(q, rate)
    if q.deltas:
        return _perturbations(q, rate, facts)
    return _saved_values(q, rate, facts)


def _check(q: Question) -> None:
    if q.run is None and q.c is None:
        raise UsageError("the rate of convergence is missing: name a run, whose losses show it, or give --c")
    if q.every_iteration is not None:
        if q.deltas or q.age_iters is not None or q.lost_fraction is not None:
            raise UsageError("--every-iteration stands alone: no --delta, --age or --lost-fraction with it")
        if q.x0_distance is None or q.eps is None:
            raise UsageError("--every-iteration needs --x0-distance and --eps, the distance to reach")
    elif q.eps is not None:
        raise UsageError("--eps goes with --every-iteration: a perturbation that is over costs the same for every eps")
    elif q.deltas and q.age_iters is not None:
        raise UsageError("--delta and --age: give the size of the perturbation, or the age of what is saved")
    elif not q.deltas and q.age_iters is None and q.run is None:
        raise UsageError(
            "what is lost? Give --age, how old saved values are, or --delta, how large the perturbation is"
        )


def _over(rate: KnownRate, bound: Callable[[float], ArrayLike]) -> tuple[float, float, float]:
    """The bound at c, and the least and the most of it there and at the ends of the interval of c."""
    at, *ends = [float(np.asarray(bound(c))) for c in (rate.c, rate.low, rate.high)]
    return at, min(at, *ends), max(at, *ends)


def _saved_values(q: Question, rate: KnownRate, facts: RunFacts | None) -> Answer:
    ages, notes = _ages(q, facts)
    sets_all_back = facts is not None and facts.sets_all_back
    if sets_all_back:
        notes.append(("", "recovery is full: whatever is lost, everything is set back"))

    def cost(p: float) -> Cost:
        def bound(c: float) -> ArrayLike:
            return stale_cost_bound(effective_age(ages, c), 1.0 if sets_all_back else p, c, q.direction)

        return Cost(_percent(p), p, *_over(rate, bound))

    found = Answer(rate, [cost(p) for p in _fractions(q.lost_fraction)], notes)
    found.numbers["age_iters"] = float(effective_age(ages, rate.c))
    if facts is not None:
        found.iteration_s = facts.iteration_s
        found.numbers |= {"iteration": facts.stale.iteration, "n_never_saved": facts.stale.n_never}
        found.past = [_past(facts, loss, rate, q) for loss in facts.recoveries]
    return found


def _ages(q: Question, facts: RunFacts | None) -> tuple[NDArray[Any], list[tuple[str, str]]]:
    if q.age_iters is not None or facts is None:
        return np.array([q.age_iters]), [("saved", f"{q.age_iters:g} iterations ago")]
    return facts.ages()


def _past(facts: RunFacts, loss: PastRecovery, rate: KnownRate, q: Question) -> dict[str, Any]:
    part = 1.0 if loss.kind == "full" else min(loss.lost_blocks / facts.n_blocks, 1.0) if facts.n_blocks else 1.0
    text = f"x({loss.iteration}): {counted(loss.lost_blocks, 'block')} lost ({_percent(part)})"
    cost: float | None = None
    if q.x0_distance is not None and loss.perturbation is not None:
        cost = float(perturbation_cost_bound([loss.perturbation], [loss.iteration], q.x0_distance, rate.c))
        text += f", perturbation {loss.perturbation:.3g}: at most {cost:.3g}"
    elif loss.mean_age_iters is not None:
        cost = float(stale_cost_bound(loss.mean_age_iters, part, rate.c, q.direction))
        text += f", restored values {loss.mean_age_iters:.3g} iterations old on average: about {cost:.3g}"
    return {**asdict(loss), "lost_fraction": part, "iters": cost, "in_words": text}


def _perturbations(q: Question, rate: KnownRate, facts: RunFacts | None) -> Answer:
    found = Answer(rate, iteration_s=facts.iteration_s if facts else None)
    pushes = [_push(text) for text in q.deltas]
    late = [at for _, at in pushes if at is not None]
    if late and len(late) < len(pushes):
        raise UsageError("either every --delta says when, as NORM@K, or none does")
    start, name = (q.x0_distance, "--x0-distance") if late else (q.distance, "--distance")
    if start is None:
        of = "‖x(0) − x*‖" if late else "how far the state is from the optimum now; or say when, as --delta NORM@K"
        raise UsageError(f"--delta needs {name}, {of}")
    norms, at = [norm for norm, _ in pushes], [at or 0.0 for _, at in pushes]
    if not late and len(pushes) > 1:
        raise UsageError("several perturbations need --delta NORM@K each: the later weigh more")
    what = q.deltas[0] if len(norms) == 1 else f"all {len(norms)}"
    for p in (1.0,) if q.lost_fraction is None else _fractions(q.lost_fraction):
        part = "" if q.lost_fraction is None else f", {_percent(p)} of it lost"
        found.costs.append(Cost(what + part, p, *_over(rate, partial(_bound_of_pushes, norms, at, start, p))))
    found.numbers |= {
        "norms": norms,
        "at_iters": at if late else None,
        "distance" if not late else "x0_distance": start,
    }
    return found


def _bound_of_pushes(norms: list[float], at: list[float], start: float, p: float, c: float) -> ArrayLike:
    return perturbation_cost_bound(expected_partial_norm(norms, p), at, start, c)


def _every_iteration(q: Question, rate: KnownRate) -> Answer:
    assert q.every_iteration is not None
    assert q.eps is not None
    assert q.x0_distance is not None
    delta, eps, start = q.every_iteration, q.eps, q.x0_distance
    error = float(irreducible_error(delta, rate.c))
    notes = [("reachable", f"a distance of {error:.4g}, c / (1 − c) times the perturbation; asked for: {eps:g}")]
    cost = _over(rate, lambda c: every_iteration_cost_bound(delta, eps, start, c))
    return Answer(rate, [Cost(f"{delta:g} an iteration", None, *cost)], notes, {"irreducible_error": error})


def _fractions(text: str | None) -> tuple[float, ...]:
    if text is None:
        return USUAL_FRACTIONS
    try:
        p = Fraction(text.removesuffix("%").strip()) / (100 if text.endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"--lost-fraction {text!r} is not a part; expected for example 30%, 0.3 or 3/10") from None
    if not 0 <= p <= 1:
        percent = f"; for {text} percent write {text}%" if 1 < p <= 100 else ""
        raise UsageError(f"--lost-fraction {text!r} is not between 0 and 1{percent}")
    return (float(p),)


def _percent(p: float) -> str:
    return f"{p * 100:.3g} %"


def _push(text: str) -> tuple[float, float | None]:
    norm, has_at, at = text.partition("@")
    try:
        parsed = float(norm), float(at) if has_at else None
    except ValueError:
        raise UsageError(f"--delta {text!r}: expected NORM or NORM@K, for example 1.2@50") from None
    if not all(math.isfinite(x) and x >= 0 for x in parsed if x is not None):
        raise UsageError(f"--delta {text!r}: expected finite numbers of at least 0")
    return parsed

"""What the event log tells of convergence: loss curves between recoveries, past recoveries, seconds an iteration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from scarml.storage.json_text import number_in

__all__ = ["LossCurve", "PastRecovery", "iteration_seconds", "loss_curves", "past_recoveries"]


@dataclass(frozen=True, slots=True)
class LossCurve:
    """Summed losses, and the iterations that they are of, ascending: of a stretch that nothing perturbed."""

    iterations: tuple[int, ...]
    losses: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PastRecovery:
    """A loss of blocks that training went on from.

    Args:
        iteration: of the failure.
        kind: of the recovery: ``partial``, ``repair`` or ``full``.
        lost_blocks: how many were lost.
        mean_age_iters: of what was restored; None if it was not noted.
        perturbation: ‖δ‖; None if it is unknown.
    """

    iteration: int
    kind: str
    lost_blocks: int
    mean_age_iters: float | None
    perturbation: float | None


def loss_curves(events: Iterable[Mapping[str, Any]]) -> list[LossCurve]:
    """The losses of a run, cut where a recovery or a rollback changed the state. What is odd counts for nothing.

    Example:
        >>> found = loss_curves([{"event": "loss_evaluated", "iteration": 0, "loss_sum": 3.5}])
        >>> found[0].iterations, found[0].losses
        ((0,), (3.5,))
    """
    curves: list[dict[int, float]] = [{}]
    for event in events:
        if _perturbs(event):
            curves.append({})
        iteration, loss = event.get("iteration"), _number(event, "loss_sum")
        if event.get("event") != "loss_evaluated" or type(iteration) is not int or loss is None:
            continue
        if iteration < max(curves[-1], default=0):
            curves.append({})
        curves[-1][iteration] = loss
    return [LossCurve(tuple(c), tuple(c.values())) for c in curves if c]


def past_recoveries(events: Iterable[Mapping[str, Any]]) -> list[PastRecovery]:
    """The recoveries of a run that restored something, in their order.

    Example:
        >>> past_recoveries([{"event": "recovery_completed", "kind": "start", "lost_blocks": 0}])
        []
    """
    found = []
    for event in events:
        iteration, lost = event.get("iteration"), event.get("lost_blocks")
        if (
            event.get("event") != "recovery_completed"
            or type(iteration) is not int
            or type(lost) is not int
            or not lost
        ):
            continue
        age, norm = _number(event, "mean_age_iters"), _number(event, "perturbation")
        found.append(PastRecovery(iteration, str(event.get("kind")), lost, age, norm))
    return found


def iteration_seconds(events: Iterable[Mapping[str, Any]]) -> float | None:
    """The median time between successive commits; None where there are not two.

    Example:
        >>> iteration_seconds([{"event": "iteration_committed", "iteration": k, "t_s": 0.5 * k} for k in range(9)])
        0.5
    """
    gaps: list[float] = []
    before: float | None = None
    for event in events:
        if event.get("event") in ("run_started", "recovery_completed", "rolled_back"):
            before = None
        if event.get("event") == "iteration_committed" and (at := _number(event, "t_s")) is not None:
            gaps += [at - before] if before is not None and at >= before else []
            before = at
    return median(gaps) if gaps else None


def _perturbs(event: Mapping[str, Any]) -> bool:
    """A resume from what was saved at the very end changes nothing, and has an age of 0."""
    if event.get("event") == "rolled_back":
        return True
    return event.get("event") == "recovery_completed" and bool(event.get("lost_blocks") or event.get("mean_age_iters"))


def _number(event: Mapping[str, Any], name: str) -> float | None:
    number = number_in(event, name)
    return number if number is not None and math.isfinite(number) else None

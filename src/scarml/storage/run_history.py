"""What the event log tells of a run, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scarml.storage.json_text import number_in

__all__ = ["RunHistory", "read_history"]


@dataclass(slots=True)
class RunHistory:
    """A run's history.

    Args:
        starts: how often it was started or resumed.
        executed: iterations done in all, repeated ones too.
        iteration: the last one that was noted. The log is written with saves, so a killed run may have been further.
        nodes_lost, recoveries: and how often what was lost was restored.
        saves_committed, saves_failed, saves_given_up, saves_skipped: failed ones were tried again or given up.
        rollbacks: how often it went back to a full save.
        loss_sum: the last.
        metrics, metrics_iteration: the last ones on held-out data, and that they are of x(metrics_iteration).
        outcome, reason: of the last start that came to its end.
    """

    starts: int = 0
    executed: int = 0
    iteration: int = 0
    nodes_lost: int = 0
    recoveries: int = 0
    saves_committed: int = 0
    saves_failed: int = 0
    saves_given_up: int = 0
    saves_skipped: int = 0
    rollbacks: int = 0
    loss_sum: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    metrics_iteration: int | None = None
    outcome: str | None = None
    reason: str | None = None


def read_history(events: Iterable[Mapping[str, Any]]) -> RunHistory:
    """From the events of a run. They come from files: what is missing or odd in them counts for nothing.

    Example:
        >>> read_history([{"event": "run_started"}, {"event": "node_lost"}]).nodes_lost
        1
    """
    seen: Counter[str] = Counter()
    result = RunHistory()
    for event in events:
        name = str(event.get("event"))
        is_start_of_run = name == "recovery_completed" and event.get("kind") == "start"
        seen[name] += not is_start_of_run
        match name:
            case "iteration_committed":
                result.iteration = _number(event.get("iteration"), result.iteration)
                result.executed = max(result.executed, _number(event.get("executed"), 0))
            case "rolled_back":
                result.iteration = _number(event.get("iteration"), result.iteration)
            case "loss_evaluated":
                loss = number_in(event, "loss_sum")
                result.loss_sum = result.loss_sum if loss is None else loss
            case "metrics_evaluated":
                metrics, iteration = event.get("metrics"), event.get("iteration")
                if isinstance(metrics, Mapping) and type(iteration) is int:
                    numbers = {str(name): number_in(metrics, name) for name in metrics}
                    result.metrics = {name: value for name, value in numbers.items() if value is not None}
                    result.metrics_iteration = iteration
            case "run_started":
                result.outcome = result.reason = None
            case "run_finished":
                result.outcome, result.reason = str(event.get("outcome")), str(event.get("reason"))
    result.starts, result.nodes_lost, result.recoveries = (
        seen[name] for name in ("run_started", "node_lost", "recovery_completed")
    )
    result.saves_committed, result.saves_failed, result.saves_given_up, result.saves_skipped = (
        seen[f"save_{what}"] for what in ("committed", "failed", "given_up", "skipped")
    )
    result.rollbacks = seen["rolled_back"]
    return result


def _number(value: object, default: int) -> int:
    return value if type(value) is int else default

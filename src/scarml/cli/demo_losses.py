"""What losses of real processes came to: how long each step of a recovery took, from the records of the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scarml.cli.wording import joined, perturbation_in_words
from scarml.control.history import Record

__all__ = ["Loss", "LossTimes", "as_table"]


@dataclass(slots=True)
class Loss:
    """Nodes that were lost together, and the way back.

    Args:
        iteration: on x(iteration).
        by_us: whether this program has killed them.
        reason: how the controller knows of the first one, in words.
        nodes: their names.
        lost_blocks: how many they held.
        detection_ms: from the signal until the controller knew of the last of them; None if nobody knows when it was sent.
        view_ms: until every block had a new owner.
        load_ms: until the owners had read what was lost.
        next_commit_ms: until the iteration was done again.
        perturbation, perturbation_is_exact, perturbation_age_iters: as in ``recovery_completed``.
    """  # noqa: E501 - a sentence that does not break well

    iteration: int
    by_us: bool
    reason: str = ""
    nodes: list[str] = field(default_factory=list)
    lost_blocks: int = 0
    detection_ms: float | None = None
    view_ms: float | None = None
    load_ms: float | None = None
    next_commit_ms: float | None = None
    perturbation: float | None = None
    perturbation_is_exact: bool = False
    perturbation_age_iters: int | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return dataclasses.asdict(self)


class LossTimes:
    """Takes the times of every loss.

    Example:
        >>> times = LossTimes()
        >>> for name, fields, t_s in [
        ...     ("nodes_killed", {"iteration": 21, "processes": []}, 1.0),
        ...     ("node_lost", {"node": "server-2", "killed": True}, 1.004),
        ...     ("recovery_started", {"lost_blocks": 196}, 1.005),
        ...     ("recovery_completed", {"kind": "partial", "iteration": 21, "perturbation": 0.5}, 1.025),
        ...     ("iteration_committed", {"iteration": 22}, 1.055),
        ... ]:
        ...     times.take_in(Record(name, fields, t_s))
        >>> [loss.nodes for loss in times.losses], round(times.losses[0].load_ms)
        ([['server-2']], 20)
    """

    def __init__(self) -> None:
        self.losses: list[Loss] = []
        self._open: Loss | None = None
        self._iteration = 0
        self._killed_at_s: float | None = None
        self._last_s = 0.0

    def take_in(self, record: Record) -> None:
        """Note what a record says."""
        f = record.fields
        match record.name:
            case "nodes_killed":
                self._killed_at_s = record.t_s
            case "node_lost":
                self._lost(record)
            case "recovery_started" if self._open is not None:
                self._open.lost_blocks = f["lost_blocks"]
                self._open.view_ms = self._since_last_ms(record)
            case "recovery_completed" if self._open is not None:
                self._open.load_ms = self._since_last_ms(record)
                self._open.iteration = f["iteration"]
                self._open.perturbation = f.get("perturbation")
                self._open.perturbation_is_exact = f.get("perturbation_is_exact", False)
                self._open.perturbation_age_iters = f.get("perturbation_age_iters")
            case "iteration_committed":
                self._iteration = f["iteration"]
                if self._open is not None and self._open.load_ms is not None:
                    self._open.next_commit_ms = self._since_last_ms(record)
                    self._open = None

    def _lost(self, record: Record) -> None:
        by_us = bool(record.fields.get("killed"))
        if self._open is None:
            self._open = Loss(self._iteration, by_us, record.fields.get("reason", ""))
            self.losses.append(self._open)
        self._open.nodes.append(record["node"])
        self._open.by_us = self._open.by_us and by_us
        self._open.detection_ms = None
        if self._open.by_us and self._killed_at_s is not None:
            self._open.detection_ms = 1000 * (record.t_s - self._killed_at_s)
        self._last_s = record.t_s

    def _since_last_ms(self, record: Record) -> float:
        since_ms, self._last_s = 1000 * (record.t_s - self._last_s), record.t_s
        return since_ms


def as_table(losses: Sequence[Loss], iterations: int) -> list[str]:
    """For people: a column a loss."""
    if not losses:
        return [f"iterations     {iterations}", "lost           nothing"]
    rows = [
        ("", [f"on x({x.iteration}), {_how(x)}" for x in losses]),
        ("nodes", [joined(x.nodes) for x in losses]),
        ("lost blocks", [f"{x.lost_blocks:,}" for x in losses]),
        ("noticed after", [_ms(x.detection_ms) for x in losses]),
        ("+ new owners", [_ms(x.view_ms) for x in losses]),
        ("+ loaded", [_ms(x.load_ms) for x in losses]),
        ("+ next commit", [_ms(x.next_commit_ms) for x in losses]),
        ("perturbation", [_perturbation(x) for x in losses]),
    ]
    first = max(len(label) for label, _ in rows)
    widths = [max(len(cells[i]) for _, cells in rows) for i in range(len(losses))]
    lines = [
        "  ".join([f"{label:<{first}}", *(f"{c:<{w}}" for c, w in zip(cells, widths, strict=True))]).rstrip()
        for label, cells in rows
    ]
    return [*lines[:1], "─" * max(map(len, lines)), *lines[1:], "", f"{iterations} iterations in all"]


def _how(loss: Loss) -> str:
    if loss.by_us:
        return "killed by us"
    return "killed by you" if "has died" in loss.reason else "silent"


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f} ms"


def _perturbation(loss: Loss) -> str:
    return perturbation_in_words(
        {
            "perturbation": loss.perturbation,
            "perturbation_is_exact": loss.perturbation_is_exact,
            "perturbation_age_iters": loss.perturbation_age_iters,
        }
    )

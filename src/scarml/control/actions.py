"""Actions: what `Controller.handle` returns, for an engine to carry out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scarml.checkpoint.version_index import Version
from scarml.control.history import Record
from scarml.control.orders import NodeOrder
from scarml.control.view import NodeId

__all__ = [
    "AT_BOUNDARY",
    "Action",
    "ClaimTerm",
    "CompleteUnit",
    "Finish",
    "NodeKind",
    "Outcome",
    "Report",
    "Send",
    "SetTimer",
    "StartNode",
    "StopNode",
    "report",
]

NodeKind = Literal["server", "worker"]


@dataclass(frozen=True, slots=True, eq=False)
class Send:
    """Deliver an order to a node."""

    node: NodeId
    order: NodeOrder


@dataclass(frozen=True, slots=True)
class ClaimTerm:
    """Claim a new term based on the full save ``unit`` (None: on nothing, that is x(0)); then `TermClaimed`."""

    unit: Version | None


@dataclass(frozen=True, slots=True)
class CompleteUnit:
    """Record that a full save is complete; then `UnitCommitted` or `UnitFailed`."""

    save_id: int
    version: Version
    segments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StartNode:
    """Start this node, which holds nothing; then `NodeJoined`, or `NodeLost` if it cannot be started."""

    node: NodeId
    kind: NodeKind


@dataclass(frozen=True, slots=True)
class StopNode:
    """The node has left the view and may end."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Bring `TimerFired` with this token after ``delay_s``."""

    token: int
    delay_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Tell the event log and the user."""

    record: Record


def report(name: str, **fields: object) -> Report:
    """A `Report` of one record."""
    return Report(Record(name, dict(fields)))


Outcome = Literal["converged", "stopped-early", "max-iters", "stopped", "superseded", "nodes-lost", "store-down"]

AT_BOUNDARY: tuple[Outcome, ...] = ("converged", "stopped-early", "max-iters", "stopped")
"""Ends of the training, as opposed to ends of what it needs: there is a last state."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over. ``saved``: whether every changed block is durable."""

    outcome: Outcome
    reason: str
    saved: bool


Action = Send | ClaimTerm | CompleteUnit | StartNode | StopNode | SetTimer | Report | Finish

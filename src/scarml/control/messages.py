"""Everything that is said between the controller, the nodes and the engine, as frozen values.

Three kinds:

* *orders* go from the controller to a node, or (`Push`) from a worker to a server;
* *events* come to the controller, from nodes or from the engine;
* *actions* are what `Controller.handle` returns; an engine carries them out.

``view`` fences: orders and events of another view are dropped. Completions of I/O are matched by (node, save id)
instead, since a save outlives a view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.version_index import Version
from scarml.control.history import Record
from scarml.control.view import NodeId, View
from scarml.core.block import Ids
from scarml.core.model import Context, Update

__all__ = [
    "REBUILD",
    "Action",
    "BlocksStaged",
    "ClaimTerm",
    "CommitPhase",
    "Committed",
    "CompleteUnit",
    "ComputePhase",
    "DistancesMeasured",
    "DrainRequested",
    "EvaluateLoss",
    "Event",
    "Finish",
    "GiveUpSave",
    "Heartbeat",
    "InstallView",
    "LoadFailed",
    "LossComputed",
    "MeasureDistances",
    "NodeJoined",
    "NodeKind",
    "NodeLost",
    "NodeOrder",
    "Outcome",
    "Prepared",
    "Push",
    "Report",
    "RetrySave",
    "SaveBlocks",
    "SaveCommitted",
    "SaveFailed",
    "ScaleRequested",
    "Send",
    "SetTimer",
    "Start",
    "StartNode",
    "StopNode",
    "StopRequested",
    "Superseded",
    "TermClaimed",
    "TermFailed",
    "Tick",
    "TimerFired",
    "UnitCommitted",
    "UnitFailed",
    "ViewInstalled",
    "report",
]

NodeKind = Literal["server", "worker"]

REBUILD = -1
"""`Context.phase` of the pseudo-phase in which derived tables are rebuilt."""


# ---------------------------------------------------------------------------------------------------- orders to nodes
@dataclass(frozen=True, slots=True, eq=False)
class InstallView:
    """Obey this view; load from the running checkpoint what is listed.

    Args:
        view: the membership.
        term: of the run; versions of saves carry it.
        commit: the state is the one after this commit.
        load: per table the blocks that this node must load, as ``term`` sees the store.
        fetch: per node that holds them, and table, the blocks that it hands over, with their caches. This node has the
            rest.
    """

    view: View
    term: int
    commit: int
    load: Mapping[str, Ids]
    fetch: Mapping[NodeId, Mapping[str, Ids]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ComputePhase:
    """To a worker: compute your shards of this phase and push the updates; it will be commit number ``commit``."""

    view: int
    commit: int
    ctx: Context


@dataclass(frozen=True, slots=True, eq=False)
class Push:
    """From a worker to a server: one shard's updates to the blocks that this server owns; may be empty."""

    view: int
    commit: int
    ctx: Context
    shard: int
    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class CommitPhase:
    """Decided: make the prepared phase visible."""

    view: int
    commit: int
    ctx: Context


@dataclass(frozen=True, slots=True)
class EvaluateLoss:
    """To a worker: the loss of each of your shards at the present state."""

    view: int
    commit: int


@dataclass(frozen=True, slots=True)
class MeasureDistances:
    """Step 1 of a save: how far has each of your blocks moved since it was saved?

    ``changed_only`` asks instead for the blocks whose bytes differ from the durable ones (a graceful stop).
    """

    view: int
    save_id: int
    changed_only: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SaveBlocks:
    """Step 3 of a save: copy these blocks into the cache, then store them in the background.

    ``unit``: it is a complete full save, all of whose segments count together. ``exact``: store the blocks bit by bit,
    whatever encodings are set: the last save of a graceful stop.
    """

    view: int
    save_id: int
    version: Version
    ids: Mapping[str, Ids]
    unit: bool
    exact: bool = False


@dataclass(frozen=True, slots=True)
class RetrySave:
    """Try again to store what was staged for this save."""

    save_id: int


@dataclass(frozen=True, slots=True)
class GiveUpSave:
    """Forget what was staged for this save; its blocks come first in the next."""

    save_id: int


NodeOrder = (
    InstallView
    | ComputePhase
    | Push
    | CommitPhase
    | EvaluateLoss
    | MeasureDistances
    | SaveBlocks
    | RetrySave
    | GiveUpSave
)


# -------------------------------------------------------------------------------------------- events to the controller
@dataclass(frozen=True, slots=True)
class Start:
    """The engine is ready: ``term`` has been claimed; the store's newest state is (commit, iteration), or (0, 0).

    ``executed`` counts the iterations done before, ``unit`` is the newest complete full save.
    """

    term: int
    commit: int = 0
    iteration: int = 0
    executed: int = 0
    unit: Version | None = None


@dataclass(frozen=True, slots=True)
class ViewInstalled:
    """A node obeys the view and has loaded what it had to.

    Args:
        restored: blocks loaded with a stored value.
        from_x0: blocks that the store did not have: x(0).
        oldest, newest: iterations of the loaded values; both None if nothing was loaded.
        sum_iterations: the iterations of all loaded values, added.
        damaged: sentences about stored copies that could not be used.
        loaded: per table the blocks loaded, and the iterations of their values.
    """

    node: NodeId
    view: int
    restored: int = 0
    from_x0: int = 0
    oldest: int | None = None
    newest: int | None = None
    sum_iterations: int = 0
    damaged: tuple[str, ...] = ()
    loaded: Mapping[str, tuple[Ids, NDArray[np.int64]]] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """A node could not load from the store."""

    node: NodeId
    view: int
    cause: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A node holds all it needs to commit: a server every shard's update, a worker its shards' new blocks."""

    node: NodeId
    view: int
    commit: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A node has made the commit visible."""

    node: NodeId
    view: int
    commit: int


@dataclass(frozen=True, slots=True)
class LossComputed:
    """The loss of one shard."""

    node: NodeId
    view: int
    commit: int
    shard: int
    loss: float


@dataclass(frozen=True, slots=True, eq=False)
class DistancesMeasured:
    """Step 2 of a save: per table ids and distances of the blocks of one node."""

    node: NodeId
    save_id: int
    distances: Mapping[str, tuple[Ids, NDArray[np.float64]]] = field(repr=False)  # printing it takes 5 ms, once a save


@dataclass(frozen=True, slots=True)
class BlocksStaged:
    """Step 4 of a save, first half: the caches are up to date and training may go on.

    ``left_out`` counts blocks that were not finite and so were not saved.
    """

    node: NodeId
    save_id: int
    size_bytes: int
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class SaveCommitted:
    """Step 4, second half: the store holds this node's part of the save. ``segment`` is None if it had no part."""

    node: NodeId
    save_id: int
    segment: str | None
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class SaveFailed:
    """The store did not take this node's part of the save."""

    node: NodeId
    save_id: int
    cause: str


@dataclass(frozen=True, slots=True)
class UnitCommitted:
    """A complete full save has been recorded as such."""

    save_id: int


@dataclass(frozen=True, slots=True)
class UnitFailed:
    """A complete full save could not be recorded."""

    save_id: int
    cause: str


@dataclass(frozen=True, slots=True)
class TermClaimed:
    """A new term, based on the full save that was asked for."""

    term: int


@dataclass(frozen=True, slots=True)
class TermFailed:
    """The store did not take the claim of a term."""

    cause: str


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node is gone, and why, in words."""

    node: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A node that was to be started is ready, and holds nothing yet."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class ScaleRequested:
    """Somebody wants so many servers and workers; None: as many as there are."""

    servers: int | None = None
    workers: int | None = None


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """A node is to hand over all that it holds, and leave; and why, in words."""

    node: NodeId
    reason: str
    replace: bool = False
    """It did not leave of the user's will: another one may take its place."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A node gave a sign of life, at ``now_s`` of the engine's clock."""

    node: NodeId
    now_s: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: who has been silent for too long?"""

    now_s: float


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that the controller had set."""

    token: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Somebody wants the run to end at the next boundary, everything saved."""

    reason: str


@dataclass(frozen=True, slots=True)
class Superseded:
    """A newer term exists: this run is no longer ours."""

    cause: str


Event = (
    Start
    | ViewInstalled
    | LoadFailed
    | Prepared
    | Committed
    | LossComputed
    | DistancesMeasured
    | BlocksStaged
    | SaveCommitted
    | SaveFailed
    | UnitCommitted
    | UnitFailed
    | TermClaimed
    | TermFailed
    | NodeLost
    | NodeJoined
    | ScaleRequested
    | DrainRequested
    | Heartbeat
    | Tick
    | TimerFired
    | StopRequested
    | Superseded
)


# ------------------------------------------------------------------------------------------------ actions of an engine
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


Outcome = Literal["converged", "max-iters", "stopped", "superseded", "nodes-lost", "store-down"]


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over. ``saved``: whether every changed block is durable."""

    outcome: Outcome
    reason: str
    saved: bool


Action = Send | ClaimTerm | CompleteUnit | StartNode | StopNode | SetTimer | Report | Finish

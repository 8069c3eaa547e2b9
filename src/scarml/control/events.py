"""Events: what comes to the controller, from nodes or from the engine.

``view`` fences: an event of another view is dropped. Completions of I/O are matched by (node, save id) instead, since a
save outlives a view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.policy import Quantity
from scarml.checkpoint.version_index import Version
from scarml.control.early_stopping import BestSoFar
from scarml.control.view import NodeId
from scarml.core.block import Ids

__all__ = [
    "BlocksMeasured",
    "BlocksStaged",
    "Committed",
    "DrainRequested",
    "Event",
    "Heartbeat",
    "LoadFailed",
    "LossComputed",
    "MetricsComputed",
    "NodeJoined",
    "NodeLost",
    "Prepared",
    "SaveCommitted",
    "SaveFailed",
    "ScaleRequested",
    "Start",
    "StopRequested",
    "Superseded",
    "TermClaimed",
    "TermFailed",
    "Tick",
    "TimerFired",
    "UnitCommitted",
    "UnitFailed",
    "ViewInstalled",
]


@dataclass(frozen=True, slots=True)
class Start:
    """The engine is ready: ``term`` has been claimed; the store's newest state is (commit, iteration), or (0, 0).

    ``executed`` counts the iterations done before, ``unit`` is the newest complete full save, ``best`` what early
    stopping knew.
    """

    term: int
    commit: int = 0
    iteration: int = 0
    executed: int = 0
    unit: Version | None = None
    best: BestSoFar | None = None


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
    """A node holds all it needs to commit: a server every shard's update, a worker its shards' new blocks.

    ``n_examples``: those that a worker has gone through.
    """

    node: NodeId
    view: int
    commit: int
    n_examples: int = 0


@dataclass(frozen=True, slots=True)
class Committed:
    """A node has made the commit visible."""

    node: NodeId
    view: int
    commit: int


@dataclass(frozen=True, slots=True)
class LossComputed:
    """The losses of a worker's shards."""

    node: NodeId
    view: int
    commit: int
    losses: Mapping[int, float] = field(hash=False)


@dataclass(frozen=True, slots=True)
class MetricsComputed:
    """Of each of a worker's held-out shards the sum over its examples, for each metric."""

    node: NodeId
    view: int
    commit: int
    sums: Mapping[int, Mapping[str, float]] = field(hash=False)


@dataclass(frozen=True, slots=True, eq=False)
class BlocksMeasured:
    """Step 2 of a save: per table ids of the blocks of one node, and what was measured of them, by quantity."""

    node: NodeId
    save_id: int
    ids: Mapping[str, Ids] = field(repr=False)
    values: Mapping[Quantity, Mapping[str, NDArray[np.float64]]] = field(repr=False)  # which would take 5 ms a save


@dataclass(frozen=True, slots=True)
class BlocksStaged:
    """Step 4 of a save, first half: the caches are up to date and training may go on.

    ``left_out`` has the ids of blocks that were not finite, or too large for their encoding, and so were not saved.
    """

    node: NodeId
    save_id: int
    size_bytes: int
    left_out: Mapping[str, Ids] = field(default_factory=dict, compare=False)

    @property
    def n_left_out(self) -> int:
        """How many that are."""
        return sum(map(len, self.left_out.values()))


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
    | MetricsComputed
    | BlocksMeasured
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

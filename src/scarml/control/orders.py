"""Orders: what the controller tells a node, and (`Push`) a worker a server.

``view`` fences: an order of another view is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scarml.checkpoint.policy import Quantity
from scarml.checkpoint.version_index import Version
from scarml.control.view import NodeId, View
from scarml.core.block import Ids
from scarml.core.model import Context, Update

__all__ = [
    "REBUILD",
    "CommitPhase",
    "ComputePhase",
    "EvaluateLoss",
    "EvaluateMetrics",
    "GiveUpSave",
    "InstallView",
    "MeasureBlocks",
    "NodeOrder",
    "Push",
    "RetrySave",
    "SaveBlocks",
]

REBUILD = -1
"""`Context.phase` of the pseudo-phase in which derived tables are rebuilt."""


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
    """To a worker: compute your shards of this phase and push the updates; it will be commit number ``commit``.

    ``lost``: in a repair, per table the blocks to be mended: work on the part of each shard that they need.
    """

    view: int
    commit: int
    ctx: Context
    lost: Mapping[str, Ids] = field(default_factory=dict, compare=False, repr=False)


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
class EvaluateMetrics:
    """To a worker: the metrics of the held-out shards with the numbers of your shards, at the present state."""

    view: int
    commit: int


@dataclass(frozen=True, slots=True)
class MeasureBlocks:
    """Step 1 of a save: how far has each of your blocks moved since it was saved, or how often was it used?

    ``needs`` is what the policy goes by. ``changed_only`` asks instead for the blocks whose bytes differ from the
    durable ones (a graceful stop).
    """

    view: int
    save_id: int
    needs: tuple[Quantity, ...] = ("distance",)
    changed_only: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SaveBlocks:
    """Step 3 of a save: copy these blocks into the cache, then store them in the background.

    ``unit``: it is a complete full save, all of whose segments count together. ``exact``: store the blocks bit by bit,
    whatever encodings are set: the last save of a graceful stop. ``extra`` is stored beside them: what the controller
    wants to know again when a run goes on from this save.
    """

    view: int
    save_id: int
    version: Version
    ids: Mapping[str, Ids]
    unit: bool
    exact: bool = False
    extra: Mapping[str, Any] | None = None


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
    | EvaluateMetrics
    | MeasureBlocks
    | SaveBlocks
    | RetrySave
    | GiveUpSave
)

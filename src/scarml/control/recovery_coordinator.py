"""The recovery coordinator: who takes over what, from the store or from its holder (section 4.3 of the paper).

Recovery is an idempotent function of view and commit. For every partition there is at most one live node that *holds*
it: that has its blocks as of the last commit. A partition is *unsettled* from the moment it is given to another node
than its holder until its new owner reports the view installed. It is fetched from its holder if that lives, and loaded
from the running checkpoint if it was lost. A failure in between just makes another view.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from scarml.control.view import Layout, NodeId, View, first_view, next_view
from scarml.core.block import Ids

__all__ = ["RecoveryCoordinator", "Takeover"]

Parts = dict[NodeId, dict[str, Ids]]
"""Per node and table, block ids."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """What one node takes over in a view.

    Args:
        load: per table the ids that it loads from the running checkpoint.
        fetch: per holder and table the ids that it fetches from there.
    """

    load: dict[str, Ids] = field(default_factory=dict)
    fetch: Parts = field(default_factory=dict)


class RecoveryCoordinator:
    """Keeps the view, and knows who holds what.

    Args:
        layout: what there is to own.
        servers, workers: the nodes of the first view.
    """

    def __init__(self, layout: Layout, servers: Sequence[NodeId], workers: Sequence[NodeId]) -> None:
        self._layout = layout
        self.view: View = first_view(layout, servers, workers)
        self._owner_indexes: dict[str, tuple[View, Ids]] = {}
        self._holders: dict[str, list[NodeId | None]] = {
            t.name: [None] * len(layout.partitions[t.name]) for t in layout.saved_tables
        }

    def lose(self, nodes: Collection[NodeId], servers: Sequence[NodeId] = (), workers: Sequence[NodeId] = ()) -> None:
        """Make the view without ``nodes``, and with new ones; what ``nodes`` held is lost."""
        for holders in self._holders.values():
            holders[:] = [None if h in nodes else h for h in holders]
        self.view = next_view(self.view, nodes, servers, workers)

    def reshape(self, leaving: Collection[NodeId], servers: Sequence[NodeId], workers: Sequence[NodeId]) -> None:
        """Make the view without those that leave, which go on holding what they hold, and with new nodes."""
        self.view = next_view(self.view, leaving, servers, workers)

    def holds(self, node: NodeId) -> bool:
        """Whether blocks would be lost with this node."""
        return any(node in holders for holders in self._holders.values())

    def unsettle_all(self) -> None:
        """Everything must be loaded again."""
        for holders in self._holders.values():
            holders[:] = [None] * len(holders)

    def lost_blocks(self) -> dict[str, Ids]:
        """Per table the saved blocks that nobody holds: they must be loaded."""
        lost: dict[str, Ids] = {}
        for name, holders in self._holders.items():
            parts = [ids for h, ids in zip(holders, self._layout.partitions[name], strict=True) if h is None]
            lost[name] = np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
        return lost

    def takeovers(self) -> dict[NodeId, Takeover]:
        """For every node of the view what it takes over."""
        wanted: dict[tuple[NodeId, NodeId | None, str], list[Ids]] = {}
        for name, holders in self._holders.items():
            owners = self.view.owners(self._layout, name)
            for holder, owner, ids in zip(holders, owners, self._layout.partitions[name], strict=True):
                if holder != owner:
                    wanted.setdefault((owner, holder, name), []).append(ids)
        takeovers = {node: Takeover() for node in self.view.nodes}
        for (owner, holder, name), parts in wanted.items():
            mine = takeovers[owner]
            into = mine.load if holder is None else mine.fetch.setdefault(holder, {})
            into[name] = np.sort(np.concatenate(parts))
        return takeovers

    def settle(self, node: NodeId) -> None:
        """``node`` holds all that it owns in the present view."""
        for name, holders in self._holders.items():
            for p, owner in enumerate(self.view.owners(self._layout, name)):
                if owner == node:
                    holders[p] = node

    def split_by_owner(self, chosen: Mapping[str, Ids]) -> Parts:
        """Per node its part of the blocks ``chosen``; nodes with none are left out."""
        parts: Parts = {}
        for name, ids in chosen.items():
            index = self._owner_index(name)[ids]
            order = np.argsort(index, kind="stable")  # of small integers, so that this takes linear time
            counts = np.bincount(index, minlength=len(self.view.nodes))
            for node, group in zip(self.view.nodes, np.split(order, np.cumsum(counts)[:-1]), strict=True):
                if len(group):
                    parts.setdefault(node, {})[name] = ids[group]
        return parts

    def _owner_index(self, table: str) -> Ids:
        """For each block the position of its owner among the view's nodes; made once a view."""
        view, index = self._owner_indexes.get(table, (None, None))
        if index is None or view is not self.view:
            index = self.view.owner_index(self._layout, table).astype(np.min_scalar_type(len(self.view.nodes)))
            self._owner_indexes[table] = (self.view, index)
        return index

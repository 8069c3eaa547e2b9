"""The recovery coordinator: who takes over what was lost, and who has yet to load it (section 4.3 of the paper).

Recovery is an idempotent function of view and commit. A partition is *unsettled* from the moment it is handed over
until its new owner reports the view installed; a failure in between just makes another view, in which whatever is
unsettled is loaded again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scarml.control.view import Layout, NodeId, View, first_view, next_view
from scarml.core.block import Ids

__all__ = ["RecoveryCoordinator"]

Loads = dict[NodeId, dict[str, Ids]]


class RecoveryCoordinator:
    """Keeps the view and knows which partitions are settled.

    Args:
        layout: what there is to own.
        servers, workers: the nodes of the first view.
    """

    def __init__(self, layout: Layout, servers: Sequence[NodeId], workers: Sequence[NodeId]) -> None:
        self._layout = layout
        self.view: View = first_view(layout, servers, workers)
        self._owner_indexes: dict[str, tuple[View, Ids]] = {}
        self._settled = {t.name: np.zeros(len(layout.partitions[t.name]), bool) for t in layout.saved_tables}

    def lose(self, nodes: Sequence[NodeId]) -> None:
        """Make the view without ``nodes``; what they owned is unsettled."""
        for name, settled in self._settled.items():
            settled[[owner in nodes for owner in self.view.owners(self._layout, name)]] = False
        self.view = next_view(self.view, nodes)

    def unsettle_all(self) -> None:
        """Everything must be loaded again."""
        for settled in self._settled.values():
            settled[:] = False

    @property
    def n_unsettled_blocks(self) -> int:
        """Saved blocks that their owners have yet to load."""
        return sum(
            len(self._layout.partitions[name][p])
            for name, settled in self._settled.items()
            for p in np.flatnonzero(~settled).tolist()
        )

    def loads(self) -> Loads:
        """For every node of the view, per table the ids that it must load."""
        loads: Loads = {node: {} for node in self.view.nodes}
        for name, settled in self._settled.items():
            owners = self.view.owners(self._layout, name)
            wanted: dict[NodeId, list[Ids]] = {}
            for p in np.flatnonzero(~settled).tolist():
                wanted.setdefault(owners[p], []).append(self._layout.partitions[name][p])
            for node, ids in wanted.items():
                loads[node][name] = np.sort(np.concatenate(ids))
        return loads

    def settle(self, node: NodeId) -> None:
        """``node`` holds all that it owns in the present view."""
        for name, settled in self._settled.items():
            owners = self.view.owners(self._layout, name)
            settled[[p for p, owner in enumerate(owners) if owner == node]] = True

    def split_by_owner(self, chosen: Mapping[str, Ids]) -> Loads:
        """Per node its part of the blocks ``chosen``; nodes with none are left out."""
        parts: Loads = {}
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

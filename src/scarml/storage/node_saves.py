"""One node's part in every save: measuring, staging, and what becomes of what was staged.

Servers, workers and the library save through this one class. It does no I/O: a staged segment is handed out to be
stored by whoever runs the node, and the outcome is brought back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.block_cache import BlockCache
from scarml.checkpoint.encoding import Encodings, stored_block_bytes
from scarml.checkpoint.policy import Quantity
from scarml.control import messages as m
from scarml.control.view import NodeId
from scarml.core.block import Blocks, Ids
from scarml.storage.background_writer import Outcome, WriteFailed
from scarml.storage.segment import Segment
from scarml.storage.segment_extra import Extra

__all__ = ["NodeSaves"]


class NodeSaves:
    """The saves of one node.

    Args:
        name: of the node.
        blocks: its current blocks by table; looked into at every call.
        caches: the running checkpoint of each of these tables.
        encodings: how their fields are stored; the caches round accordingly.
        score: gives the distances of a table's blocks; by default its cache measures all of them.
    """

    def __init__(
        self,
        name: NodeId,
        blocks: Mapping[str, Blocks],
        caches: Mapping[str, BlockCache],
        encodings: Encodings | None = None,
        score: Callable[[str], NDArray[np.float64]] | None = None,
    ) -> None:
        self._name = name
        self._blocks = blocks
        self._caches = caches
        self._encodings: Encodings = encodings or {}
        self._score = score or (lambda table: caches[table].score(blocks[table]))
        self._staged: Segment | None = None

    def measure(self, order: m.MeasureBlocks) -> m.BlocksMeasured:
        """Step 1 of a save: what the policy goes by, of all blocks; or just which have changed."""
        if order.changed_only:
            changed = {name: cache.changed(self._blocks[name]) for name, cache in self._caches.items()}
            return m.BlocksMeasured(self._name, order.save_id, changed, {})
        measure: dict[Quantity, Callable[[str], NDArray[np.float64]]] = {
            "distance": self._score,
            "n_uses": lambda table: self._caches[table].uses(),
        }
        values = {what: {name: measure[what](name) for name in self._caches} for what in order.needs}
        ids = {name: cache.ids for name, cache in self._caches.items()}
        return m.BlocksMeasured(self._name, order.save_id, ids, values)

    def stage(self, order: m.SaveBlocks, extra: Extra | None = None) -> tuple[list[m.Event], Segment | None]:
        """Step 4: copy the chosen blocks.

        Args:
            order: says which.
            extra: state to save beside them, instead of what the order has; it must not change any more.

        Returns:
            What to tell the controller, and what to store, if anything.
        """
        if self._staged is not None:
            self.give_up(self._staged.save_id)
        staged: dict[str, Blocks] = {}
        left_out: dict[str, Ids] = {}
        for name, ids in order.ids.items():
            cache = self._caches[name]
            blocks, not_saved = cache.stage(self._blocks[name], ids, order.version, order.save_id, order.exact)
            if len(not_saved):
                left_out[name] = not_saved
            if len(blocks):
                staged[name] = blocks
        encodings: Encodings = {} if order.exact else self._encodings
        size_bytes = sum(
            int(stored_block_bytes(b.table, encodings.get(name, {}), b.ids).sum()) for name, b in staged.items()
        )
        events: list[m.Event] = [m.BlocksStaged(self._name, order.save_id, size_bytes, left_out)]
        if not staged:
            return [*events, m.SaveCommitted(self._name, order.save_id, None, 0)], None
        v, extra = order.version, order.extra if extra is None else extra
        self._staged = Segment(
            v.term, v.commit, v.iteration, self._name, order.save_id, order.unit, staged, encodings, extra
        )
        return events, self._staged

    def retry(self, save_id: int) -> Segment | None:
        """What was staged for this save, if it is still to be stored."""
        return self._staged if self._is_staged(save_id) else None

    def stored(self, save_id: int, outcome: Outcome) -> m.Event | None:
        """What became of a staged segment. Returns what to tell the controller."""
        if self._staged is None or self._staged.save_id != save_id:
            return None
        if isinstance(outcome, WriteFailed):
            if outcome.kind == "superseded":
                return m.Superseded(outcome.cause)
            return m.SaveFailed(self._name, save_id, outcome.cause)
        for cache in self._caches.values():
            cache.mark_durable(save_id)
        name, self._staged = self._staged.name, None
        return m.SaveCommitted(self._name, save_id, name, outcome.size_bytes)

    def give_up(self, save_id: int) -> None:
        """This save will never be durable here: its blocks come first in the next."""
        for cache in self._caches.values():
            cache.give_up(save_id)
        if self._is_staged(save_id):
            self._staged = None

    def _is_staged(self, save_id: int) -> bool:
        return self._staged is not None and self._staged.save_id == save_id

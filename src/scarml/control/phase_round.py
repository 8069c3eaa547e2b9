"""One phase on its way: every node prepares it, it is decided, and every node commits it."""

from __future__ import annotations

from collections.abc import Mapping

from scarml.control import messages as m
from scarml.control.view import NodeId, View
from scarml.core.block import Ids
from scarml.core.model import Context

__all__ = ["PhaseRound"]


class PhaseRound:
    """Atomic: until it is decided it can be dropped, and then nothing has happened; afterwards it is finished.

    Args:
        view: who takes part.
        commit: its number.
        ctx: which phase.
        lost: in a repair, per table the blocks to be mended.
    """

    def __init__(self, view: View, commit: int, ctx: Context, lost: Mapping[str, Ids]) -> None:
        self.ctx = ctx
        self.waiting: set[NodeId] = set(view.nodes)
        """Who has still to prepare it, or when it is decided to commit it."""
        self._view = view
        self._commit = commit
        self._lost = lost

    def begin(self) -> list[m.Action]:
        """The workers compute; servers wait for what they push."""
        order = m.ComputePhase(self._view.number, self._commit, self.ctx, self._lost)
        return [m.Send(worker, order) for worker in self._view.workers]

    def decide(self) -> list[m.Action]:
        """It is prepared everywhere: from now on it is not undone."""
        self.waiting = set(self._view.nodes)
        order = m.CommitPhase(self._view.number, self._commit, self.ctx)
        return [m.Send(node, order) for node in self._view.nodes]

    def awaits(self, event: m.Prepared | m.Committed) -> bool:
        """Whether it is about this phase, and new."""
        return (event.view, event.commit) == (self._view.number, self._commit) and event.node in self.waiting

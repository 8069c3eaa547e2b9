"""When and where things run: what differs between threads, virtual time, and processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from scarml.control import messages as m
from scarml.control.view import NodeId

__all__ = ["Scheduler"]


class Scheduler(Protocol):
    """When and where things run."""

    def now_s(self) -> float:
        """Seconds on the clock of this scheduler."""
        ...

    def deliver(self, source: NodeId, node: NodeId, task: Callable[[], None], may_repeat: bool = False) -> None:
        """Run ``task`` on the node's own lane: one at a time, and in order of sending from each source.

        ``may_repeat``: the receiver drops repeats, so a network may deliver it twice.
        """
        ...

    def compute(self, node: NodeId, shard: int, commit: int, task: Callable[[], None]) -> None:
        """Run ``task`` beside other shards; lower shards of a commit first."""
        ...

    def folded(self, commit: int, n_shards: int) -> None:
        """All servers have folded so many shards of a commit."""
        ...

    def write(self, node: NodeId, task: Callable[[], None]) -> None:
        """Run ``task`` in the background."""
        ...

    def post(self, event: m.Event, delay_s: float = 0.0) -> None:
        """Bring an event to the controller."""
        ...

"""What a job knows of an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from scarml.control import messages as m
from scarml.control.view import NodeId
from scarml.core.block import Blocks

__all__ = ["Engine"]


class Engine(Protocol):
    """Runs one cluster to its end."""

    def run(self, start: m.Start) -> m.Finish:
        """Train until the controller says that it is over. Raises whatever a model or a node raised."""
        ...

    def post(self, event: m.Event) -> None:
        """Bring an event to the controller, from any thread or a signal handler."""
        ...

    def write(self, task: Callable[[], None]) -> None:
        """Run a task beside training, one after the other."""
        ...

    def state(self) -> dict[str, Blocks]:
        """Per table all blocks, after an end at a boundary."""
        ...

    def place(self, name: NodeId) -> tuple[int | None, str | None]:
        """Number and host of the process of a node, where it has one of its own."""
        ...

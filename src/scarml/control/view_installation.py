"""Installing a view: every node obeys it and loads what it lacks; a store that cannot be read is tried again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from scarml.checkpoint.selection import Recovery
from scarml.control import messages as m
from scarml.control.view import NodeId
from scarml.core.block import Ids

__all__ = ["ATTEMPTS", "Purpose", "ViewInstallation", "wait_for_store"]

ATTEMPTS = 12
FIRST_RETRY_S = 0.2
LONGEST_RETRY_S = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class Purpose:
    """Why a view is installed.

    Args:
        kind: the start, a hand-over, or how what was lost is recovered.
        lost: of a recovery, per table the lost blocks.
        n_moved: of a hand-over, how many blocks move.
    """

    kind: Recovery | Literal["start", "hand-over"]
    lost: Mapping[str, Ids] = field(default_factory=dict)
    n_moved: int = 0

    @property
    def is_recovery(self) -> bool:
        """Whether something was lost."""
        return self.kind not in ("start", "hand-over")

    @property
    def n_lost(self) -> int:
        """How many blocks are lost."""
        return sum(map(len, self.lost.values()))


class ViewInstallation:
    """One view on its way to all its nodes.

    Args:
        orders: what each node is told.
        purpose: of the view.
        new_timer: gives a fresh token for a timer.
    """

    def __init__(self, orders: Mapping[NodeId, m.InstallView], purpose: Purpose, new_timer: Callable[[], int]) -> None:
        self.purpose = purpose
        self._orders = orders
        self._new_timer = new_timer
        self._installed: dict[NodeId, m.ViewInstalled] = {}
        self._attempts: dict[NodeId, int] = {}
        self._retries: dict[int, NodeId] = {}

    def begin(self) -> list[m.Action]:
        """Tell every node."""
        return [m.Send(node, order) for node, order in self._orders.items()]

    def awaits(self, node: NodeId, view: int) -> bool:
        """Whether this node has still to install this view."""
        return node in self._orders and self._orders[node].view.number == view and node not in self._installed

    @property
    def awaited_nodes(self) -> set[NodeId]:
        """The nodes that do not obey it yet."""
        return set(self._orders) - set(self._installed)

    @property
    def is_complete(self) -> bool:
        """Whether all nodes obey the view."""
        return len(self._installed) == len(self._orders)

    def on_installed(self, event: m.ViewInstalled) -> list[m.Action]:
        """A node obeys."""
        self._installed[event.node] = event
        return [m.report("copy_damaged", node=event.node, detail=text) for text in event.damaged]

    def on_failed(self, event: m.LoadFailed) -> list[m.Action] | None:
        """A node could not load. Returns None if it has tried often enough."""
        n = self._attempts[event.node] = self._attempts.get(event.node, 0) + 1
        if n >= ATTEMPTS:
            return None
        token = self._new_timer()
        self._retries[token] = event.node
        return wait_for_store(event.node, event.cause, n, token)

    def on_timer(self, token: int) -> list[m.Action]:
        """Time for a node to try again."""
        node = self._retries.pop(token, None)
        if node is None or node in self._installed:
            return []
        return [m.Send(node, self._orders[node])]

    def completed(self, iteration: int, perturbation: Mapping[str, Any]) -> m.Report:
        """What there is to say when all nodes obey the view, with training at x(``iteration``).

        ``perturbation``: what is known of it, as fields of ``recovery_completed``.
        """
        view = next(iter(self._orders.values())).view.number
        if self.purpose.kind == "hand-over":
            moved = self.purpose.n_moved
            return m.report("handover_completed", view=view, moved_blocks=moved, iteration=iteration)
        what = {"view": view, "kind": self.purpose.kind, "lost_blocks": self.purpose.n_lost}
        return m.report("recovery_completed", **what, **self._loaded(iteration), iteration=iteration, **perturbation)

    def _loaded(self, iteration: int) -> dict[str, Any]:
        """What was loaded, over all nodes: fields of ``recovery_completed``."""
        installed = self._installed.values()
        spans = [i for e in installed for i in (e.oldest, e.newest) if i is not None]
        n = sum(e.restored for e in installed)
        return {
            "restored": n,
            "from_x0": sum(e.from_x0 for e in installed),
            "oldest": min(spans, default=None),
            "newest": max(spans, default=None),
            "mean_age_iters": round(iteration - sum(e.sum_iterations for e in installed) / n, 3) if n else None,
        }


def wait_for_store(node: NodeId, cause: str, attempt: int, token: int) -> list[m.Action]:
    """Say that the store cannot be read, and try again later, each time after a longer while."""
    return [
        m.report("recovery_waiting", node=node, cause=cause, attempt=attempt),
        m.SetTimer(token, min(FIRST_RETRY_S * 2 ** (attempt - 1), LONGEST_RETRY_S)),
    ]

"""Who is to join and who is to leave: nodes on their way into a view, and out of it.

A node goes through these stations; from each it may be lost::

    starting → ready → in the view → leaving → departing → gone

It is *starting* until its process runs, *ready* until a view takes it in, *leaving* when it is to hand over all that it
holds (still in the view, still at work), and *departing* when a view without it exists: it only keeps what its
successors have yet to fetch. The view itself is kept by the `RecoveryCoordinator`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from scarml.control import messages as m
from scarml.control.view import NodeId, View

__all__ = ["Change", "Membership"]

MOST_FAILED_STARTS = 3
KINDS: tuple[m.NodeKind, ...] = ("server", "worker")


@dataclass(frozen=True, slots=True)
class Change:
    """What the next view changes: who leaves, and who joins."""

    leaving: tuple[NodeId, ...] = ()
    servers: tuple[NodeId, ...] = ()
    workers: tuple[NodeId, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not (self.leaving or self.servers or self.workers)


class Membership:
    """Nodes on their way in and out.

    Args:
        servers, workers: the nodes of the first view.
        replaces: a lost or preempted node is replaced by a new one.
    """

    def __init__(self, servers: Sequence[NodeId], workers: Sequence[NodeId], *, replaces: bool = False) -> None:
        self._replaces = replaces
        self._kinds: dict[NodeId, m.NodeKind] = {**dict.fromkeys(servers, "server"), **dict.fromkeys(workers, "worker")}
        self.starting: list[NodeId] = []
        self.ready: list[NodeId] = []
        self.leaving: dict[NodeId, str] = {}
        """And why."""
        self.departing: list[NodeId] = []
        self._n_failed = dict.fromkeys(KINDS, 0)

    def coming(self, kind: m.NodeKind) -> list[NodeId]:
        """The nodes of a kind that are starting or ready."""
        return [n for n in (*self.ready, *self.starting) if self._kinds[n] == kind]

    def change(self, view: View) -> Change:
        """What the next view may change: nodes leave only as far as somebody of their kind is left."""
        joining = {kind: tuple(n for n in self.ready if self._kinds[n] == kind) for kind in KINDS}
        leaving: list[NodeId] = []
        for there, new in ((view.servers, joining["server"]), (view.workers, joining["worker"])):
            left = len(there) + len(new)
            for node in (n for n in there if n in self.leaving):
                if left > 1:
                    leaving.append(node)
                    left -= 1
        return Change(tuple(leaving), joining["server"], joining["worker"])

    def made(self, change: Change) -> None:
        """A view with this change exists."""
        self.ready = [n for n in self.ready if n not in (*change.servers, *change.workers)]
        for node in change.leaving:
            del self.leaving[node]
            self.departing.append(node)

    def release(self) -> list[NodeId]:
        """Everybody obeys the view: those who departed may go."""
        gone, self.departing = self.departing, []
        return gone

    # ------------------------------------------------------------------------------------------------------- requests
    def scale(self, view: View, lost: Collection[NodeId], servers: int | None, workers: int | None) -> list[m.Action]:
        """Start or drain nodes until there are so many; the newest leave first."""
        for kind, wanted in zip(KINDS, (servers, workers), strict=True):
            if wanted is not None and wanted < 1:
                why = f"{wanted} {kind}s are too few; expected at least 1"
                return [m.report("request_refused", request="scale", reason=why)]
        actions: list[m.Action] = [m.report("scale_requested", servers=servers, workers=workers)]
        for kind, wanted, there in zip(KINDS, (servers, workers), (view.servers, view.workers), strict=True):
            if wanted is None:
                continue
            staying = [n for n in there if n not in lost and n not in self.leaving]
            staying += [n for n in self.coming(kind) if n not in self.leaving]
            for _ in range(wanted - len(staying)):
                actions += self._start(kind)
            for node in staying[wanted:]:
                self.leaving[node] = f"scaled down to {wanted} {kind}s"
        return actions

    def drain(self, view: View, node: NodeId, reason: str, *, replace: bool) -> list[m.Action]:
        """Let a node leave."""
        if node not in view.nodes:
            there = ", ".join(view.nodes)
            why = f"there is no node {node}; there are {there}"
            return [m.report("request_refused", request=f"drain {node}", reason=why)]
        if node in self.leaving:
            return []
        self.leaving[node] = reason
        actions: list[m.Action] = [m.report("drain_requested", node=node, reason=reason)]
        kind = self._kinds[node]
        if replace and self._replaces:
            return actions + self._start(kind)
        peers = view.servers if kind == "server" else view.workers
        if all(n in self.leaving for n in peers) and not self.coming(kind):
            del self.leaving[node]
            why = f"{node} is the last {kind}; add another one first, or stop the run"
            return [*actions, m.report("request_refused", request=f"drain {node}", reason=why)]
        return actions

    # ------------------------------------------------------------------------------------------------ life and death
    def joined(self, node: NodeId) -> list[m.Action]:
        """A node's process runs. One that is not wanted any more may end."""
        if node not in self.starting:
            return []
        self.starting.remove(node)
        if node in self.leaving:
            del self.leaving[node]
            return [m.StopNode(node)]
        self.ready.append(node)
        return [m.report("node_joined", node=node)]

    def lose(self, node: NodeId) -> list[m.Action]:
        """A node is gone, wherever it stood. Returns what is done to replace it."""
        was_leaving = self.leaving.pop(node, None) is not None
        failed_to_start = node in self.starting
        for stage in (self.starting, self.ready, self.departing):
            if node in stage:
                stage.remove(node)
        kind = self._kinds[node]
        if was_leaving or not self._replaces:
            return []
        self._n_failed[kind] += 1
        if self._n_failed[kind] > MOST_FAILED_STARTS:
            what = "could not be started" if failed_to_start else "were lost"
            why = f"{self._n_failed[kind]} {kind}s {what} without an iteration in between"
            return [m.report("request_refused", request=f"replace {node}", reason=why)]
        return self._start(kind)

    def progressed(self) -> None:
        """An iteration has been committed."""
        self._n_failed = dict.fromkeys(KINDS, 0)

    def knows(self, node: NodeId) -> bool:
        """Whether a node is on its way in or out."""
        return node in self.starting or node in self.ready or node in self.departing

    def _start(self, kind: m.NodeKind) -> list[m.Action]:
        numbers = [int(found[0]) for n, k in self._kinds.items() if k == kind and (found := re.findall(r"\d+$", n))]
        node = f"{kind}-{max(numbers, default=-1) + 1}"
        self._kinds[node] = kind
        self.starting.append(node)
        return [m.StartNode(node, kind)]

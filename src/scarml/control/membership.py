"""Who is to join and who is to leave: nodes on their way into a view, and out of it.

A node goes through these stations; from each it may be lost::

    starting → ready → in the view → leaving → departing → gone

It is *starting* until its process runs, *ready* until a view takes it in, *leaving* when it is to hand over all that it
holds (still in the view, still at work), and *departing* when a view without it exists: it only keeps what its
successors have yet to fetch. The view itself is kept by the `RecoveryCoordinator`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from scarml.control import messages as m
from scarml.control.view import NodeId, View

__all__ = ["Change", "Membership"]

MOST_FAILED_STARTS = 3
SCALED_DOWN = "scaled down"
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
        """In the view, or starting; and why."""
        self.departing: list[NodeId] = []
        self._untried: set[NodeId] = set()
        """Started here, and not yet part of an iteration."""
        self._given_up: set[NodeId] = set()
        """Taken for lost before they had joined."""
        self._n_failed = dict.fromkeys(KINDS, 0)

    def coming(self, kind: m.NodeKind) -> list[NodeId]:
        """The nodes of a kind that are ready or starting, and wanted."""
        return [n for n in (*self.ready, *self.starting) if self._kinds[n] == kind and n not in self.leaving]

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
        """Start nodes or let them leave until there are so many; the newest leave first.

        What an earlier request had decided of a kind, and is not done yet, is decided anew.
        """
        wanted = {kind: n for kind, n in zip(KINDS, (servers, workers), strict=True) if n is not None}
        for kind, n in wanted.items():
            if n < 1:
                return [_refused("scale", f"{n} {kind}s are too few; expected at least 1")]
        actions: list[m.Action] = [m.report("scale_requested", servers=servers, workers=workers)]
        for kind, n in wanted.items():
            self.leaving = {
                node: why for node, why in self.leaving.items() if why != SCALED_DOWN or self._kinds[node] != kind
            }
            staying = self._staying(view, lost, kind)
            for _ in range(n - len(staying)):
                actions += self._start(kind)
            for node in staying[n:]:
                actions += self._leave(node, SCALED_DOWN)
        return actions

    def drain(
        self, view: View, lost: Collection[NodeId], node: NodeId, reason: str, *, replace: bool
    ) -> list[m.Action]:
        """Let a node leave; one that is on its way out already just goes on."""
        if node in self.leaving or node in self.departing:
            return []
        there = [n for n in (*view.nodes, *self.ready, *self.starting) if n not in lost]
        if node not in there:
            there.sort(key=lambda n: (self._kinds[n], _number(n)))
            return [_refused(f"drain {node}", f"there is no node {node}; there are {', '.join(there)}")]
        kind = self._kinds[node]
        replace = replace and self._replaces
        if not replace and self._staying(view, lost, kind) == [node]:
            return [_refused(f"drain {node}", f"{node} is the last {kind}; add another one first, or stop the run")]
        start = self._start(kind) if replace else []
        return [m.report("drain_requested", node=node, reason=reason), *start, *self._leave(node, reason)]

    # ------------------------------------------------------------------------------------------------ life and death
    def joined(self, node: NodeId) -> list[m.Action]:
        """A node's process runs. One that is not wanted any more may end."""
        if node in self._given_up:
            return [m.StopNode(node)]
        if node not in self.starting:
            return []
        self.starting.remove(node)
        self.ready.append(node)
        if node in self.leaving:
            return self._leave(node, self.leaving.pop(node))
        return [m.report("node_joined", node=node)]

    def lose(self, view: View, lost: Collection[NodeId], node: NodeId) -> list[m.Action]:
        """A node is gone, wherever it stood. Returns what is done to replace it.

        Args:
            view, lost: who is there, without those who are lost, ``node`` among them.
            node: the one.
        """
        was_to_go = self.leaving.pop(node, None) is not None or node in self.departing
        was_starting, was_untried = node in self.starting, node in self._untried
        if was_starting:
            self._given_up.add(node)
        self._untried.discard(node)
        for stage in (self.starting, self.ready, self.departing):
            if node in stage:
                stage.remove(node)
        kind = self._kinds[node]
        actions: list[m.Action] = []
        if not was_to_go:
            self._n_failed[kind] += was_untried
            if not self._replaces:
                actions = [_refused(f"replace {node}", "it could not be started")] if was_starting else []
            elif was_untried and self._n_failed[kind] > MOST_FAILED_STARTS:
                why = f"{self._n_failed[kind]} new {kind}s in a row were lost before they had done an iteration"
                actions = [_refused(f"replace {node}", why)]
            else:
                actions = self._start(kind)
        return actions + self._keep_one(view, lost, kind)

    def progressed(self, view: View) -> None:
        """An iteration has been committed: the new nodes that were part of it are no failures."""
        for node in self._untried.intersection(view.nodes):
            self._untried.remove(node)
            self._n_failed[self._kinds[node]] = 0

    def knows(self, node: NodeId) -> bool:
        """Whether a node is on its way in or out."""
        return node in self.starting or node in self.ready or node in self.departing

    # ---------------------------------------------------------------------------------------------------------- steps
    def _staying(self, view: View, lost: Collection[NodeId], kind: m.NodeKind) -> list[NodeId]:
        """The nodes of a kind that are there or coming and are not to leave, oldest first."""
        there = view.servers if kind == "server" else view.workers
        return [*(n for n in there if n not in lost and n not in self.leaving), *self.coming(kind)]

    def _keep_one(self, view: View, lost: Collection[NodeId], kind: m.NodeKind) -> list[m.Action]:
        """If all who are left of a kind were to leave, one of them has to stay."""
        if self._staying(view, lost, kind):
            return []
        for node in (*view.nodes, *self.starting):
            if node in self.leaving and self._kinds[node] == kind and node not in lost:
                del self.leaving[node]
                return [_refused(f"drain {node}", f"{node} is the last {kind} now")]
        return []

    def _leave(self, node: NodeId, reason: str) -> list[m.Action]:
        """A node that holds nothing goes at once. One that is starting ends when it has started."""
        if node in self.ready:
            self.ready.remove(node)
            self._untried.discard(node)
            return [m.report("node_left", node=node), m.StopNode(node)]
        self.leaving[node] = reason
        return []

    def _start(self, kind: m.NodeKind) -> list[m.Action]:
        numbers = [_number(n) for n, k in self._kinds.items() if k == kind]
        node = f"{kind}-{max(numbers, default=-1) + 1}"
        self._kinds[node] = kind
        self.starting.append(node)
        self._untried.add(node)
        return [m.StartNode(node, kind)]


def _refused(request: str, reason: str) -> m.Report:
    return m.report("request_refused", request=request, reason=reason)


def _number(node: NodeId) -> int:
    """The number that a name ends in; -1 if it has none."""
    digits = node[len(node.rstrip("0123456789")) :]
    return int(digits) if digits else -1

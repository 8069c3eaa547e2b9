"""What one step of compaction is to do, from what is live where. Decides; reads and writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from scarml.core.block import Ids
from scarml.storage.occupancy import SegmentUse
from scarml.storage.segment import SegmentId
from scarml.storage.segment_layout import TableForm

__all__ = ["Limits", "Plan", "Stored", "make_plan"]

RowBytes = Callable[[SegmentId, str, Ids], Ids]
"""What rows of a segment's table take, shape (n,)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When to compact, and how much at once.

    Args:
        piece_bytes: live bytes that one step copies at most, or a single block if that is larger.
        slack_bytes: dead bytes that do not count: a tiny model would be compacted after every save.
        max_segments_per_node: more are merged, even if all in them is live.
    """

    piece_bytes: int = 64 << 20
    slack_bytes: int = 4 << 20
    max_segments_per_node: int = 64

    def max_segments(self, live_nodes: Collection[str]) -> int:
        """For so many nodes."""
        return self.max_segments_per_node * max(1, len(live_nodes))


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """What is stored.

    Args:
        uses: the segments that count.
        kept: names of those that must stay as they are.
        garbage: names and sizes of segments that do not count.
    """

    uses: Sequence[SegmentUse]
    kept: Collection[str]
    garbage: Sequence[tuple[str, int]]

    @property
    def free(self) -> list[SegmentUse]:
        """The segments that may go, once what is live in them is elsewhere."""
        return [u for u in self.uses if u.id.name not in self.kept]

    @property
    def live_bytes(self) -> int:
        """Of all blocks together."""
        return sum(u.live_bytes for u in self.uses)

    @property
    def dead_bytes(self) -> int:
        """What could be freed."""
        return sum(u.dead_bytes for u in self.free) + sum(size for _, size in self.garbage)


@dataclass(slots=True, eq=False)
class Plan:
    """What to do: rows to copy per table and segment; whose extra state; and which segments may go then."""

    taken: dict[str, dict[SegmentId, Ids]] = field(default_factory=dict)
    forms: dict[str, TableForm] = field(default_factory=dict)
    extra: SegmentId | None = None
    emptied: list[str] = field(default_factory=list)
    copied_bytes: int = 0
    freed_bytes: int = 0
    n_emptied_by_copying: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.taken or self.emptied)

    def copy(self) -> Plan:
        """A plan to try something with, before anything is taken."""
        return Plan(emptied=list(self.emptied), freed_bytes=self.freed_bytes)


def make_plan(stored: Stored, limits: Limits, live_nodes: Collection[str], row_bytes: RowBytes) -> Plan:
    """Choose what to copy and what to delete; an empty plan if it is not worth while.

    When dead bytes exceed live ones: the segments with the smallest part live, until half of that excess is gone. When
    segments are too many: those of nodes that are gone, then the smallest, until half as many are left.
    """
    most = limits.max_segments(live_nodes)
    tolerated = stored.live_bytes + limits.slack_bytes
    is_wasteful = stored.dead_bytes > tolerated
    n_segments = len(stored.free) + len(stored.garbage)
    if not (is_wasteful or n_segments > most):
        return Plan()
    plan = Plan()
    for name, size in [*stored.garbage, *((u.id.name, u.size_bytes) for u in stored.free if not u.is_live)]:
        plan.emptied.append(name)
        plan.freed_bytes += size
    live = [u for u in stored.free if u.is_live]
    if is_wasteful and stored.dead_bytes - plan.freed_bytes > tolerated // 2:
        return _take_the_emptiest(plan, live, stored.dead_bytes - tolerated // 2, limits, row_bytes)
    if not is_wasteful and n_segments > most and len(live) > most // 2:
        live.sort(key=lambda u: (u.id.node in live_nodes, u.live_bytes))
        return _take_many(plan, live, len(live) - most // 2, limits, row_bytes)
    return plan


def _take_the_emptiest(
    plan: Plan, uses: list[SegmentUse], free_bytes: int, limits: Limits, row_bytes: RowBytes
) -> Plan:
    """Take segments until so much is freed in all; none if that would only be moving what is live."""
    tried = plan.copy()
    for u in sorted(uses, key=lambda u: (not u.has_dead, u.live_bytes / u.size_bytes)):
        if tried.freed_bytes - tried.copied_bytes >= free_bytes or not _take(tried, u, limits, row_bytes):
            break
    sources = {s for taken in tried.taken.values() for s in taken} | {tried.extra}
    gains = any(u.has_dead for u in uses if u.id in sources)
    return tried if gains or tried.n_emptied_by_copying >= 2 else plan


def _take_many(plan: Plan, uses: list[SegmentUse], n: int, limits: Limits, row_bytes: RowBytes) -> Plan:
    """Take enough segments that n fewer are left; at least two, or none. Those of unlike forms cannot be joined."""
    for first in range(len(uses) - 1):
        tried = plan.copy()
        for u in uses[first:]:
            if tried.n_emptied_by_copying > n or not _take(tried, u, limits, row_bytes):
                break
        if tried.n_emptied_by_copying >= 2:
            return tried
    return plan


def _take(plan: Plan, use: SegmentUse, limits: Limits, row_bytes: RowBytes) -> bool:
    """Add what is live in a segment to the plan, if the piece has room for it; whether there may be room for more.

    Only one that is larger than a whole piece is copied in parts. If others were, each step could leave a part of a
    segment behind, dead, for the next one to clear away, and so on for ever.
    """
    if any(plan.forms.get(t, f) != f for t, f in use.forms.items()):
        return True
    if plan.taken and plan.copied_bytes + use.live_bytes > limits.piece_bytes:
        return False
    for table, form in use.forms.items():
        rows = use.live[table]
        sizes = np.cumsum(row_bytes(use.id, table, rows))
        n = int(np.searchsorted(sizes, limits.piece_bytes - plan.copied_bytes, side="right"))
        n = max(n, 1) if not plan.taken else n
        if n:
            plan.taken.setdefault(table, {})[use.id] = rows[:n]
            plan.forms[table] = form
            plan.copied_bytes += int(sizes[n - 1])
        if n < len(rows):
            return False
    if use.has_newest_extra:
        plan.extra = use.id
    plan.emptied.append(use.id.name)
    plan.freed_bytes += use.size_bytes
    plan.n_emptied_by_copying += 1
    return plan.copied_bytes < limits.piece_bytes

"""Compaction: giving back the space of blocks that have been saved again, while training and reading go on.

`Compactor.step` is one bounded piece of it::

    1  check the term; list what is stored; find what is live
    2  read the live blocks of the segments with the least in them, and check them
    3  check the term; delete the records of full saves older than the last whole one
    4  store what was read as one new segment, durably
    5  check the term
    6  delete the segments that have nothing live left

Whatever it dies at, nothing that was reported is lost: before 5 no segment is deleted, and after it every block is in
the new segment, or in one that stays and is durable. (Storing the new one also makes the names durable that were
listed beside it; where nothing is to be copied, `RunFolder.settle` does.) What it leaves behind, the next compactor
finds dead.

**One that was superseded harms no one.** Say term t compacts and t + 1 is claimed. Either the claim is there at 5: then
t deletes no segment. Or it is not: then it is made later, and what t + 1 can see is listed later still (a claim lists
after it is made), so t + 1 sees the new segment, and also every segment that stays; the deleted ones held nothing that
these do not. Rolling back to a full save: the last whole one, and one in progress, are never touched. An older one has
lost its record at 3, before 5, so a later claim does not find it and fails, harming nothing; while a claim that was
earlier stops t at 5, with the segments still there, and needs no record: its own base lists them.

Copies keep the versions that their blocks were saved under, so a late segment of a lost node still finds its place. A
block that fails its checksum is not copied: an older good copy counts in its place, and the bad one stays for people to
see until the block is saved again. Unreadable segments stay too.

What is kept: of full saves the last whole one; of extra state the newest; every term record; the event log.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from scarml.core.block import Ids
from scarml.errors import DamagedError, NotFoundError, StoreError
from scarml.storage.compaction_plan import Limits, Plan, Stored, make_plan
from scarml.storage.merging import BadRows, MergedTable, encode_merged, merge_table
from scarml.storage.occupancy import SegmentUse, measure, row_bytes
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment import COMPACTOR, SegmentId
from scarml.storage.segment_catalog import SegmentCatalog, UnreadableError
from scarml.storage.segment_extra import StoredExtra
from scarml.storage.segment_header import SaveKey
from scarml.storage.segment_rows import read_extra
from scarml.storage.terms import Terms
from scarml.storage.unit import FullSave, is_older_unit

__all__ = ["Compactor", "Limits", "Step"]

_log = logging.getLogger(__name__)

_NODE = f"{COMPACTOR}-0"
_MAX_TRIES = 1000  # each one finds something damaged that was not known


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did.

    Args:
        written: name of the new segment; None if nothing had to be copied.
        deleted: names of the segments that were deleted.
        copied_bytes: live bytes copied.
        freed_bytes: sizes of the segments that were deleted.
    """

    written: str | None
    deleted: tuple[str, ...]
    copied_bytes: int
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class _Look:
    """What the last exact look at the store found: neither live bytes nor what must be kept become less meanwhile."""

    live_bytes: int = 0
    kept_bytes: int = 0
    n_kept: int = 0


class Compactor:
    """Compacts one run in the name of one term, in the process that owns the run. Use it in one thread at a time.

    Args:
        run: the run.
        term: of the process.
        limits: when, and how much at once; a step needs memory for one piece.

    Example:
        >>> compactor = Compactor(run, term)                      # doctest: +SKIP
        >>> while compactor.step(live_nodes) is not None:         # doctest: +SKIP
        ...     pass                                              # beside training, after each save
    """

    def __init__(self, run: RunFolder, term: int, limits: Limits | None = None) -> None:
        self._run, self._term = run, term
        self._limits = limits if limits is not None else Limits()
        self._terms = Terms(run.store)
        self._catalog = SegmentCatalog(run.store, lambda: self._terms.visible_segments(term))
        self._bad: dict[str, dict[SegmentId, Ids]] = {}
        self._bad_extra: set[SegmentId] = set()
        self._sizes: dict[str, int] = {}
        self._look = _Look()
        self._nothing_to_do: list[str] | None = None

    def is_due(self, live_nodes: Collection[str] = ()) -> bool:
        """Whether `step` may find something to do: dead bytes exceed live ones, or segments are too many.

        Quick: the store is listed, and asked for the sizes of new segments. Raises StoreError.
        """
        names = self._run.store.list("segments/")
        if names == self._nothing_to_do:
            return False
        self._sizes = {n: self._sizes[n] if n in self._sizes else self._size(n) for n in names}
        if len(names) - self._look.n_kept > self._limits.max_segments(live_nodes):
            return True
        dead_bytes = sum(self._sizes.values()) - self._look.live_bytes - self._look.kept_bytes
        return dead_bytes > self._look.live_bytes + self._limits.slack_bytes

    def step(self, live_nodes: Collection[str] = ()) -> Step | None:
        """One piece.

        Args:
            live_nodes: names of the nodes that save now, as segments name them.

        Returns:
            What was done; None if nothing is to be done now.

        Raises:
            SupersededError: the term is not the last one any more; stop for good.
            StoreError: the store failed; nothing is lost, try again later.
        """
        if not self.is_due(live_nodes):
            return None
        self._run.check_term(self._term)
        return self._catalog.retrying(lambda: self._attempt(live_nodes))

    def _attempt(self, live_nodes: Collection[str]) -> Step | None:
        for _ in range(_MAX_TRIES):
            names = self._terms.stored_segments()
            self._catalog.relist()
            last = self._run.last_unit(self._term)
            plan = self._plan(names, last, live_nodes)
            if plan.is_empty:
                self._nothing_to_do = names
                return None
            try:
                tables = [merge_table(self._catalog, plan.forms[t], taken) for t, taken in plan.taken.items()]
                extra = self._read_extra(plan.extra)
            except BadRows as e:
                self._note_bad(e)
            except DamagedError as e:
                _log.warning("extra state is not copied: %s", e)
                self._bad_extra |= {plan.extra} if plan.extra is not None else set()
            else:
                return self._carry_out(plan, tables, extra, last, names)
        raise StoreError(f"compaction found something damaged {_MAX_TRIES} times; look at the run with scarml verify")

    def _plan(self, names: list[str], last: FullSave | None, live_nodes: Collection[str]) -> Plan:
        uses = measure(self._catalog, self._bad, self._bad_extra)
        counted = {u.id.name for u in uses} | {s.name for s in self._catalog.unreadable}
        garbage = [(n, self._sizes.get(n) or self._size(n)) for n in names if n not in counted and self._is_ours(n)]
        stored = Stored(uses, self._kept(uses, last), garbage)
        kept = [u for u in uses if u.id.name in stored.kept]
        unreadable_bytes = sum(self._sizes.get(s.name, 0) for s in self._catalog.unreadable)
        self._look = _Look(
            stored.live_bytes,
            sum(u.dead_bytes for u in kept) + unreadable_bytes,
            len(kept) + len(self._catalog.unreadable),
        )
        return make_plan(stored, self._limits, live_nodes, lambda s, t, rows: row_bytes(self._catalog, s, t, rows))

    def _kept(self, uses: list[SegmentUse], last: FullSave | None) -> set[str]:
        """Segments that must stay as they are: of the last full save, of one in progress, and evidence of damage."""
        in_term = [u for u in uses if u.header.unit and u.header.term == self._term]
        newest = max((u.header.save_id for u in in_term), default=None)
        in_progress = {u.id.name for u in in_term if u.header.save_id == newest}
        return {*(last.segments if last else ()), *in_progress, *(u.id.name for u in uses if u.has_only_copy)}

    def _carry_out(
        self,
        plan: Plan,
        tables: list[MergedTable],
        extra: tuple[SaveKey, StoredExtra] | None,
        last: FullSave | None,
        names: list[str],
    ) -> Step:
        self._delete_older_units(last)
        written = None
        if tables or extra is not None:
            written = self._next_id(tables, extra, names)
            self._run.store.put(written.name, encode_merged(written, tables, extra))
        else:
            self._run.settle("segments")
        self._run.check_term(self._term)
        for name in plan.emptied:
            self._run.store.delete(name)
        return Step(written.name if written else None, tuple(plan.emptied), plan.copied_bytes, plan.freed_bytes)

    def _delete_older_units(self, last: FullSave | None) -> None:
        if last is None:
            return
        older = [n for n in self._run.store.list("units/") if is_older_unit(n, last)]
        if older:
            self._run.settle("units")
            self._run.check_term(self._term)
        for name in older:  # the oldest first: the base of a term that is claimed now is the last to lose its record
            self._run.store.delete(name)

    def _next_id(
        self, tables: list[MergedTable], extra: tuple[SaveKey, StoredExtra] | None, names: list[str]
    ) -> SegmentId:
        commit = max([t.newest.commit for t in tables] + ([extra[0].commit] if extra is not None else []))
        earlier = [i for i in map(SegmentId.parse, names) if i is not None and i.node == _NODE and i.term == self._term]
        return SegmentId(self._term, commit, 1 + max((i.save_id for i in earlier), default=0), _NODE)

    def _read_extra(self, segment: SegmentId | None) -> tuple[SaveKey, StoredExtra] | None:
        if segment is None:
            return None
        header = self._catalog.header(segment)
        try:
            extra = read_extra(self._run.store, header)
        except NotFoundError as e:
            raise UnreadableError(segment, e) from e
        return (header.extra.key, extra) if header.extra is not None and extra is not None else None

    def _note_bad(self, found: BadRows) -> None:
        known = self._bad.setdefault(found.table, {})
        for s, rows in found.rows.items():
            _log.warning("%d blocks of table %s in %s are damaged and not copied", len(rows), found.table, s.name)
            known[s] = np.union1d(known.get(s, np.zeros(0, np.int64)), rows)

    def _is_ours(self, name: str) -> bool:
        """Whether a name is a segment's, of no later term than ours."""
        parsed = SegmentId.parse(name)
        return parsed is not None and parsed.term <= self._term

    def _size(self, name: str) -> int:
        try:
            return self._run.store.size(name)
        except NotFoundError:
            return 0

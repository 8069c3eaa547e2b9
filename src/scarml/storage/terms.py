"""Terms: who may write, and from which segments a run goes on.

A term is claimed in two steps. First the claim, an exclusive create, so that of two racing starts one wins. Then, and
only then, a look at what is stored, and the *base record*: the exact list of segments that this term starts from.
Visible in a term are the segments of its base and its own, nothing else: so whatever a writer of an older term stores
late, an abandoned timeline cannot come back.

Why a reported commit is never missed: a writer stores its segment, then looks for a newer claim, then reports. If it
finds none, the newer claim comes later, and the look for the new base comes later still, and sees the segment.

A claim without a base record belongs to a start that died between the two steps; it never acted and is passed over.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scarml.errors import AlreadyExistsError, DamagedError, NotFoundError, RunInUseError, StoreError, SupersededError
from scarml.storage.owner import Owner
from scarml.storage.record import decode_record, encode_record
from scarml.storage.segment import SegmentId
from scarml.storage.segment_header import read_header
from scarml.storage.store import Store
from scarml.storage.unit import FullSave, unit_name, unit_names

__all__ = ["Base", "TermRecord", "Terms"]

_log = logging.getLogger(__name__)

_CLAIM = re.compile(r"terms/(\d{8})\.claim")
_BASE = re.compile(r"terms/(\d{8})\.base")

_MAX_LISTINGS = 1000

Base = Literal["new", "parent"] | FullSave
"""What a term starts from: nothing; all that its parent, the last term with a base record, sees; or one full save."""


@dataclass(frozen=True, slots=True)
class TermRecord:
    """A base record: what a term started from.

    Args:
        term: of the run, from 1.
        kind: ``new``, ``parent`` or ``unit``.
        parent: the term that it continues, None for ``new``.
        segments: names of the segments it starts from.
        units: names of the full saves it can see, the newest first.
    """

    term: int
    kind: Literal["new", "parent", "unit"]
    parent: int | None
    segments: tuple[str, ...]
    units: tuple[str, ...]


class Terms:
    """The terms of one run.

    Args:
        store: where the run is.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records: dict[int, TermRecord] = {}  # they never change
        self._tokens: dict[int, str] = {}  # of our own claims

    def claim(
        self, base: Base, after: int | None = None, *, seen: int | None = None, owner: Owner | None = None
    ) -> int:
        """Claim the next term. See `scarml.storage.run_folder.RunFolder.claim_term`.

        Args:
            base, after: see there.
            seen: the last claim that the caller has seen, and found to be nobody's any more; no later one is overtaken.
            owner: who claims it.
        """
        self._base_record(0, base)  # an error that can be found before the claim must not supersede anybody
        if after is not None:
            while self._is_ours(after + 1):  # a claim of ours that got no further
                after += 1
            self.check(after)
            seen = after
        term = 1 + (self.last_claim() if seen is None else seen)
        try:
            self._create_claim(term, owner)
        except RunInUseError:
            if after is not None:
                self.check(after)
            raise
        record = self._base_record(term, base)
        body = {
            "term": term, "kind": record.kind, "parent": record.parent,
            "segments": list(record.segments), "units": list(record.units),
        }  # fmt: skip
        self._store.create(_base_name(term), [encode_record("base", body)])
        return term

    def check(self, term: int) -> None:
        """Raise SupersededError if a newer term has been claimed."""
        try:
            self._store.size(_claim_name(term + 1))  # terms have no gaps
        except NotFoundError:
            return
        raise SupersededError(
            f"term {term} of this run was superseded by term {term + 1}: another process has taken the run over. "
            "What this one writes no longer counts; it must stop"
        )

    def check_owner(self, term: int, owner: Owner) -> None:
        """Raise SupersededError if a term newer than ``term`` has been claimed by anybody but ``owner``."""
        while True:
            try:
                self.check(term)
            except SupersededError:
                if self.claimed_by(term + 1) != owner:
                    raise
                term += 1  # a claim of our own that got no further
            else:
                return

    def claimed(self) -> list[int]:
        """All terms that were claimed, whether they could act or not, ascending."""
        return sorted(int(m[1]) for m in map(_CLAIM.fullmatch, self._store.list("terms/")) if m)

    def last_claim(self) -> int:
        """The last term that was claimed; 0 if there is none."""
        return max(self.claimed(), default=0)

    def claimed_by(self, term: int) -> Owner | None:
        """Who claimed a term; None if the claim names nobody, or cannot be read as one."""
        try:
            claim = decode_record("claim", _claim_name(term), self._store.get(_claim_name(term)))
        except (NotFoundError, DamagedError) as e:
            _log.debug("the claim of term %d cannot be read: %s", term, e)
            return None
        return Owner.parse(claim.get("owner"))

    def last(self) -> int | None:
        """The last term that has a base record, and so may have acted."""
        found = (_BASE.fullmatch(name) for name in self._store.list("terms/"))
        return max((int(m[1]) for m in found if m), default=None)

    def record(self, term: int) -> TermRecord:
        """A term's base record.

        Raises:
            NotFoundError: the term has none.
            DamagedError: it cannot be read.
        """
        if term not in self._records:
            self._records[term] = self._read(term)
        return self._records[term]

    def visible_segments(self, term: int) -> list[SegmentId]:
        """The segments that count in a term and are there, from the oldest to the newest.

        Those of the base that are not there any more were merged into others, of this term.
        """
        base = set(self.record(term).segments)
        own = f"segments/{term:08d}-"
        names = (n for n in self.stored_segments() if n in base or n.startswith(own))
        return sorted(i for i in map(SegmentId.parse, names) if i is not None)

    def stored_segments(self) -> list[str]:
        """The names of all segments that are there, while others may be merging some.

        A listing takes a while: it may miss a segment that has gone by then, and also the new one into which that was
        merged. So it is made again until nothing has gone since the one before.
        """
        before = set(self._store.list("segments/"))
        for _ in range(_MAX_LISTINGS):
            names = self._store.list("segments/")
            if before <= set(names):
                return names
            before = set(names)
        raise StoreError(f"segments kept vanishing while they were listed, {_MAX_LISTINGS} times; try again")

    def visible_units(self, term: int) -> list[str]:
        """Names of the full saves that count in a term and are there, the newest first."""
        there = set(self._store.list("units/"))
        return [*unit_names(self._store, term), *(name for name in self.record(term).units if name in there)]

    def base_unit(self, term: int) -> FullSave | None:
        """The full save that a term started from, if it did; also when its record has gone, see `compaction`."""
        record = self.record(term)
        ids = [i for i in map(SegmentId.parse, record.segments) if i is not None]
        if record.kind != "unit" or not ids:
            return None
        try:
            iteration = read_header(self._store, ids[0].name).iteration
        except (NotFoundError, DamagedError) as e:
            _log.warning("the full save that term %d started from cannot be used: %s", term, e)
            return None
        return FullSave(ids[0].term, ids[0].commit, iteration, ids[0].save_id, record.segments)

    def _create_claim(self, term: int, owner: Owner | None) -> None:
        self._tokens[term] = token = secrets.token_hex(8)
        named = {"owner": owner.to_json()} if owner is not None else {}
        claim = encode_record("claim", {"term": term, "token": token, **named})
        try:
            self._store.create(_claim_name(term), [claim])
        except AlreadyExistsError:
            if self._is_ours(term):
                return
            raise RunInUseError(
                f"another process claimed term {term} of this run at the same time. One process may work on a run: "
                "leave it to the other one, or wait until that has ended"
            ) from None

    def _is_ours(self, term: int) -> bool:
        """Whether a claim that is there already is our own: a store may repeat a request whose answer was lost."""
        if term not in self._tokens:
            return False
        try:
            claim = decode_record("claim", _claim_name(term), self._store.get(_claim_name(term)))
        except StoreError as e:
            _log.debug("the claim of term %d cannot be read: %s", term, e)
            return False
        return claim.get("token") == self._tokens[term]

    def _base_record(self, term: int, base: Base) -> TermRecord:
        if base == "new":
            return TermRecord(term, "new", None, (), ())
        parent = self.last()
        if parent is None:
            raise NotFoundError("there is no earlier term in this run to continue; start it anew")
        units = self.visible_units(parent)
        if base == "parent":
            names = tuple(i.name for i in self.visible_segments(parent))
            return TermRecord(term, "parent", parent, names, tuple(units))
        if unit_name(base) not in units:
            raise NotFoundError(
                f"{unit_name(base)} is no full save that term {parent} can see; it cannot go back to it"
            )
        return TermRecord(term, "unit", parent, base.segments, tuple(units[units.index(unit_name(base)) :]))

    def _read(self, term: int) -> TermRecord:
        name = _base_name(term)
        body = decode_record("base", name, self._store.get(name))
        kind, parent = body.get("kind", ""), body.get("parent")
        is_described = body.get("term") == term and kind in ("new", "parent", "unit")
        if not is_described or not (parent is None or isinstance(parent, int)):
            raise DamagedError(f"{name} is damaged: it does not say what term {term} starts from")
        return TermRecord(term, kind, parent, _names(name, body.get("segments")), _names(name, body.get("units")))


def _names(record: str, names: object) -> tuple[str, ...]:
    if not isinstance(names, Sequence) or isinstance(names, str) or not all(isinstance(n, str) for n in names):
        raise DamagedError(f"{record} is damaged: expected a list of names")
    return tuple(names)


def _claim_name(term: int) -> str:
    return f"terms/{term:08d}.claim"


def _base_name(term: int) -> str:
    return f"terms/{term:08d}.base"

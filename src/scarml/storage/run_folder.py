"""A run's folder: all that is kept of a run, and the order in which it is written.

::

    SCAR-RUN                               the marker: here is a run; and its description
    README.txt                             how to open it without SCAR
    run.json                               the run's description for people: configuration, tables, seed
    owner.json, owner.lock                 who works on it now: see `ownership`
    status.json                            how far it is: see `live_status`
    commands/…                             what people want of it: see `commands`
    terms/00000001.claim, 00000001.base    who may write, and from which segments it started: see `terms`
    segments/….safetensors                 the blocks: see `segment`
    units/00000001-000000000008.json       complete full saves: see `unit`
    events/00000001-000000.jsonl           the event log
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from scarml.checkpoint.version_index import Version
from scarml.core.block import Ids, Table
from scarml.errors import (
    AlreadyExistsError,
    DamagedError,
    NotFoundError,
    RunExistsError,
    StoreError,
    UsageError,
)
from scarml.storage.event_log import EventLog
from scarml.storage.ownership import Ownership, Timing
from scarml.storage.readme import README_TEXT
from scarml.storage.record import decode_record, encode_record
from scarml.storage.segment import Segment, SegmentId, encode_segment
from scarml.storage.segment_reader import Restored, SegmentReader
from scarml.storage.store import Chunk, Store, settle
from scarml.storage.terms import Base, Terms
from scarml.storage.unit import FullSave, read_unit, unit_problem, write_unit

__all__ = ["RunFolder"]

_log = logging.getLogger(__name__)

_MARKER, _README, _DESCRIPTION = "SCAR-RUN", "README.txt", "run.json"


class RunFolder:
    """A run on a store. Make one with `create`, `open`.

    Example:
        >>> from scarml.storage.memory import MemoryStore
        >>> run = RunFolder.create(MemoryStore(), {"model": "mlr", "seed": 0})
        >>> run.claim_term("new")
        1
    """

    def __init__(self, store: Store, description: Mapping[str, Any]) -> None:
        self.store = store
        self._description = dict(description)
        self._terms = Terms(store)
        self._events = EventLog(store)
        self._ownership: Ownership | None = None
        self.claimed_term: int | None = None  # the last one that this object has claimed

    @classmethod
    def create(cls, store: Store, description: Mapping[str, Any]) -> RunFolder:
        """Make a run.

        Args:
            store: where; it may have leftovers of a creation that was cut short.
            description: what can be written as JSON.

        Raises:
            RunExistsError: there is a run already.
            DamagedError: there was one, and its marker is gone.
        """
        terms = store.list("terms/")  # before the look for the marker, which is written before any term
        if cls.is_run(store):
            raise _exists(store)
        if terms:
            raise DamagedError(
                f"{_MARKER} in {store} is missing, but {terms[0]} is there: this was a run, and is not begun anew. "
                f"Bring {_MARKER} back, or choose another folder"
            )
        text = encode_record("run", {"description": dict(description)})
        store.put(_README, [README_TEXT.encode()])
        marker = {"description": dict(description), "description_crc32": zlib.crc32(text)}
        try:
            store.create(_MARKER, [encode_record("marker", marker)])
        except AlreadyExistsError:
            raise _exists(store) from None
        store.put(_DESCRIPTION, [text])  # not before: of two creators only the one who won may write it
        return cls(store, description)

    @classmethod
    def open(cls, store: Store) -> RunFolder:
        """Open the run that is on a store.

        Raises:
            UsageError: there is none.
            DamagedError: its marker or description is damaged, or of a newer format.
        """
        try:
            marker = decode_record("marker", _MARKER, store.get(_MARKER))
        except NotFoundError:
            raise UsageError(
                f"there is no run in {store}: it has no {_MARKER}. Check the path, or start a run there"
            ) from None
        try:
            text = store.get(_DESCRIPTION)
        except NotFoundError:  # its creator died before it came to it
            description = marker.get("description")
        else:
            if zlib.crc32(text) != marker.get("description_crc32"):
                raise DamagedError(
                    f"{_DESCRIPTION} in {store} is not what the run was created with; it must not be edited"
                )
            description = decode_record("run", _DESCRIPTION, text).get("description")
        if not isinstance(description, dict):
            raise DamagedError(f"{_DESCRIPTION} in {store} has no description")
        return cls(store, description)

    @staticmethod
    def is_run(store: Store) -> bool:
        """Whether there is a run on a store."""
        try:
            store.size(_MARKER)
        except NotFoundError:
            return False
        return True

    @property
    def description(self) -> dict[str, Any]:
        """What the run was created with."""
        return dict(self._description)

    @contextmanager
    def owned(self, on_lost: Callable[[str], None] = lambda _: None, timing: Timing | None = None) -> Iterator[None]:
        """Own the run for a while: until the end of the block no other process takes it over.

        A killed owner never blocks the next one; on a store without locks it is waited for, two leases long. What it
        was writing when it was killed is removed.

        Args:
            on_lost: told, once, why the run is no longer this process's; in another thread.
            timing: of the lease.

        Raises:
            RunInUseError: a living process owns it.
        """
        self._ownership = Ownership.acquire(self.store, self._terms, timing, on_lost)
        try:
            self._sweep()
            yield
        finally:
            self._ownership.release()

    def _sweep(self) -> None:
        try:
            n = self.store.sweep()
        except StoreError as e:  # it only wastes space
            _log.debug("what killed writers left behind stays: %s", e)
        else:
            _log.debug("%d leftovers of killed writers were removed", n)

    def claim_term(self, base: Base, after: int | None = None) -> int:
        """Claim the next term, durably: from now on no older one can report a commit.

        Args:
            base: ``"new"``: from x(0). ``"parent"``: from all that counts in the last term that acted. A `FullSave`:
                from exactly that full save; it must count in the last term.
            after: the caller's own term, which must still be the last; None for a start, which takes over from any.

        Returns:
            The term.

        Raises:
            RunInUseError: another process claimed it at the same time.
            NotFoundError: there is nothing to start from.
            DamagedError: the full save is not whole.
        """
        if isinstance(base, FullSave):
            problem = unit_problem(self.store, base)
            if problem is not None:
                raise DamagedError(f"the full save at iteration {base.iteration} cannot be used: {problem}")
        if self._ownership is None:
            self.claimed_term = self._terms.claim(base, after)
        else:
            self._complete_creation()
            self.claimed_term = self._ownership.claim(base, after)
        return self.claimed_term

    def check_term(self, term: int) -> None:
        """See that a term may still write, and delete.

        Raises:
            SupersededError: a newer term has been claimed, or the run is no longer this process's.
            StoreError: that cannot be known now.
        """
        self._terms.check(term)
        if self._ownership is not None:
            self._ownership.check()

    def last_term(self) -> int | None:
        """The last term that may have acted; None in a run that never started.

        Raises:
            DamagedError: a later one has acted, and its record is gone.
        """
        stored = [i.term for i in map(SegmentId.parse, self.store.list("segments/")) if i is not None]
        last = self._terms.last()  # looked for after the segments, which are written after the record
        if max(stored, default=0) > (last or 0):
            raise DamagedError(
                f"the record of term {max(stored)} in {self.store} is missing, but segments of it are there; going "
                "on from an older term would drop them"
            )
        return last

    def write_segment(self, segment: Segment) -> int:
        """Store a segment durably, and make sure that it counts.

        Returns:
            Bytes written.

        Raises:
            StoreError: it could not be stored; storing it again is safe.
            SupersededError: a newer term has been claimed; the segment may be there and does not count.
        """
        size_bytes = 0

        def counted() -> Iterator[Chunk]:
            nonlocal size_bytes
            for chunk in encode_segment(segment):
                size_bytes += len(chunk)
                yield chunk

        self.store.put(segment.name, counted())
        self.check_term(segment.term)
        return size_bytes

    def write_unit(self, unit: FullSave) -> None:
        """Say that a full save is complete, once all its segments are stored. Raises as `write_segment`."""
        write_unit(self.store, unit)
        self.check_term(unit.term)

    def units(self, term: int) -> Iterator[FullSave]:
        """The full saves that count in a term, the newest first. One that is not whole is left out, with a warning."""
        base = self._terms.base_unit(term)
        for name in self._terms.visible_units(term):
            try:
                unit = read_unit(self.store, name)
                problem = unit_problem(self.store, unit)
            except (NotFoundError, DamagedError) as e:
                problem = str(e)
            else:
                if problem is None:
                    base = None if unit == base else base
                    yield unit
                    continue
            _log.warning("the full save %s cannot be used: %s", name, problem)
        if base is not None and unit_problem(self.store, base) is None:
            yield base

    def last_unit(self, term: int) -> FullSave | None:
        """The newest full save that counts in a term and is whole."""
        return next(self.units(term), None)

    def settle(self, folder: str) -> None:
        """Make durable what is listed in ``segments`` or ``units``: see `scarml.storage.store.settle`."""
        settle(self.store, folder)

    def reader(self, term: int) -> SegmentReader:
        """Reads the running checkpoint as it counts in a term."""
        return SegmentReader(self.store, lambda: self._terms.visible_segments(term))

    def read_unit(self, unit: FullSave, table: Table, ids: Ids) -> Restored:
        """Read blocks of one full save, and of nothing else."""
        segments = sorted(s for s in map(SegmentId.parse, unit.segments) if s is not None)
        return SegmentReader(self.store, lambda: segments).read_newest(table, ids)

    def newest_commit(self, term: int) -> Version | None:
        """The newest version among the segments that count in a term; None if there is no segment."""
        return self.reader(term).newest_version()

    def append_events(self, term: int, records: Sequence[Mapping[str, Any]]) -> None:
        """Store events durably. After a StoreError some may be there twice when they are stored again."""
        self._events.append(term, records)

    def read_events(self) -> list[dict[str, Any]]:
        """All events of the run, in order."""
        return self._events.read()

    def _complete_creation(self) -> None:
        """Write the description for people, if it is not there."""
        try:
            self.store.size(_DESCRIPTION)
        except NotFoundError:
            self.store.put(_DESCRIPTION, [encode_record("run", {"description": self._description})])


def _exists(store: Store) -> RunExistsError:
    return RunExistsError(f"there is a run in {store} already; resume it (--resume auto), or choose another folder")

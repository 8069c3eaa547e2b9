"""Verifying the segments of a run, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scarml.core.block import Ids
from scarml.errors import NotFoundError
from scarml.storage.findings import Finding, OnProgress, OtherCopy, Verification
from scarml.storage.row_check import CheckedRows, check_rows
from scarml.storage.segment import SegmentId
from scarml.storage.segment_catalog import SegmentCatalog, UnreadableError, guarding
from scarml.storage.segment_rows import read_extra
from scarml.storage.store import Store
from scarml.storage.terms import Terms

__all__ = ["SegmentVerification"]

_MOST_FINDINGS = 1000
"""For each table of each segment; of more there is only the number."""


@dataclass(frozen=True, slots=True, eq=False)
class _BadRow:
    segment: SegmentId
    table: str
    row: int
    expected: int
    found: int


class SegmentVerification:
    """Verifies all segments that count in a term.

    Args:
        store: where the run is.
        terms: its terms.
        term: which counts.
        result: gets what is found.
        on_progress: is told how far it is.
    """

    def __init__(self, store: Store, terms: Terms, term: int, result: Verification, on_progress: OnProgress) -> None:
        self._store = store
        self._terms = terms
        self._term = term
        self._result = result
        self._on_progress = on_progress
        self._catalog = SegmentCatalog(store, lambda: terms.visible_segments(term))
        self._bad: list[_BadRow] = []
        self._bad_rows: dict[tuple[SegmentId, str], Ids] = {}
        self._seen: set[SegmentId] = set()
        self._good: list[SegmentId] = []
        """Whose blocks could be read, each by itself right or wrong."""

    def verify(self) -> None:
        """Read them all. Of a run that is still going, those that count when this begins."""
        self._note_missing()
        self._catalog.refresh()
        while todo := [s for s in self._catalog.readable() if s not in self._seen]:
            total = self._result.read_bytes + sum(self._size_bytes(s) for s in todo)
            for s in todo:
                self._seen.add(s)
                self._verify(s, total)
        self._result.damaged += [self._finding(bad) for bad in self._bad]
        for (s, table), rows in self._bad_rows.items():
            if len(rows) > _MOST_FINDINGS:
                n = len(rows) - _MOST_FINDINGS
                self._result.damaged.append(Finding(s.name, f"{n} more blocks of table {table!r} are damaged", table))
        self._note_orphans()

    def _verify(self, s: SegmentId, total: int) -> None:
        try:
            with guarding(s):
                self._read(s, total)
        except UnreadableError as e:
            if isinstance(e.cause, NotFoundError):
                self._catalog.relist()
                if s not in self._catalog.readable():
                    return  # merged into another, which is now listed and will be read
            self._result.damaged.append(Finding(s.name, str(e)))
        else:
            self._good.append(s)
            self._result.n_segments += 1

    def _size_bytes(self, s: SegmentId) -> int:
        try:
            return self._catalog.header(s).size_bytes
        except UnreadableError:
            return 0

    def _read(self, s: SegmentId, total: int) -> None:
        header = self._catalog.header(s)
        for table, stored in header.tables.items():
            for part in check_rows(self._store, header, stored, self._catalog.index(s, table)):
                self._note_bad(s, table, part)
                self._result.n_blocks += len(part.positions)
                self._result.read_bytes += part.size_bytes
                self._on_progress(self._result.read_bytes, total)
        read_extra(self._store, header)

    def _note_bad(self, s: SegmentId, table: str, part: CheckedRows) -> None:
        bad = np.flatnonzero(part.rows.is_bad)
        if not len(bad):
            return
        known = self._bad_rows.get((s, table), np.zeros(0, np.int64))
        self._bad_rows[s, table] = np.concatenate([known, part.positions[bad]])
        for i in bad[: max(_MOST_FINDINGS - len(known), 0)].tolist():
            expected, found = int(part.rows.expected[i]), int(part.rows.found[i])
            self._bad.append(_BadRow(s, table, int(part.positions[i]), expected, found))

    def _finding(self, bad: _BadRow) -> Finding:
        block = int(self._catalog.index(bad.segment, bad.table).ids[bad.row])
        return Finding(
            bad.segment.name,
            f"the checksum of block {block} of table {bad.table!r} is {bad.found:08x}; expected {bad.expected:08x}",
            bad.table,
            block,
            bad.expected,
            bad.found,
            self._other_copy(bad, block),
        )

    def _other_copy(self, bad: _BadRow, block: int) -> OtherCopy | None:
        """The newest good copy of a block whose copy is bad."""
        copies = sorted(self._good_copies(bad.table, block))
        if not copies:
            return None
        (term, commit, iteration), segment = copies[-1]
        mine = self._version(bad.segment, bad.table, bad.row)
        return OtherCopy(segment.name, iteration, (term, commit) > mine[:2])

    def _good_copies(self, table: str, block: int) -> Iterator[tuple[tuple[int, int, int], SegmentId]]:
        for s in self._good:
            if table not in self._catalog.header(s).tables:
                continue
            ids = self._catalog.index(s, table).ids
            row = int(np.searchsorted(ids, block))
            if row < len(ids) and ids[row] == block and not self._is_bad(s, table, row):
                yield self._version(s, table, row), s

    def _is_bad(self, s: SegmentId, table: str, row: int) -> bool:
        rows = self._bad_rows.get((s, table), np.zeros(0, np.int64))
        at = int(np.searchsorted(rows, row))
        return at < len(rows) and int(rows[at]) == row

    def _version(self, s: SegmentId, table: str, row: int) -> tuple[int, int, int]:
        """Term, commit and iteration of a row."""
        v = self._catalog.versions_of(s, self._catalog.index(s, table), np.array([row]))
        return int(v.term[0]), int(v.commit[0]), int(v.iteration[0])

    def _note_missing(self) -> None:
        """Segments that the term started from and that are gone, though it has merged none.

        Compaction deletes a segment without merging it if all that was in it has been saved again. So what is gone, and
        newer than all that is left, is damage; of anything older one cannot know.
        """
        stored = self._store.list("segments/")
        own = [s for s in map(SegmentId.parse, stored) if s is not None and s.term == self._term]
        if any(s.is_compacted for s in own):
            return
        base = self._terms.record(self._term).segments
        left = [s for s in map(SegmentId.parse, {*base, *(s.name for s in own)} & {*stored}) if s is not None]
        for name in sorted({*base} - {*stored}):
            gone = SegmentId.parse(name)
            if gone is None:
                continue
            self._seen.add(gone)
            why = f"it is gone, though term {self._term} started from it"
            if left and gone < max(left):
                self._result.notes.append(Finding(name, f"{why}; as it should be if all in it had been saved again"))
            else:
                self._result.damaged.append(Finding(name, why))

    def _note_orphans(self) -> None:
        counts = self._seen | set(self._terms.visible_segments(self._term))
        for name in self._store.list("segments/"):
            segment = SegmentId.parse(name)
            if segment is None:
                self._result.notes.append(Finding(name, "it is no segment; SCAR has not made it"))
            elif segment not in counts:
                why = "it is of a timeline that was given up, or was written too late: it does not count"
                self._result.notes.append(Finding(name, why))

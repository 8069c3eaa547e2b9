"""Looking into a run: what it is, what is saved and how old that is, who works on it. Reads only, takes no lock."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scarml.errors import DamagedError, NotFoundError
from scarml.storage.census import TableCensus, census_of_run
from scarml.storage.owner import read_beat
from scarml.storage.ownership import Timing
from scarml.storage.run_folder import RunFolder
from scarml.storage.run_history import RunHistory, read_history
from scarml.storage.segment import SegmentId
from scarml.storage.store import Store
from scarml.storage.terms import Terms
from scarml.storage.unit import read_unit, unit_problem

__all__ = [
    "AgeBin",
    "Inspection",
    "OwnerState",
    "SegmentState",
    "TableState",
    "TermState",
    "UnitState",
    "inspect",
    "owner_state",
]

_MOST_BINS = 8


@dataclass(frozen=True, slots=True)
class AgeBin:
    """So many blocks are between ``youngest`` and ``oldest`` iterations older than the newest one, both included."""

    youngest: int
    oldest: int
    n_blocks: int


@dataclass(slots=True)
class TableState:
    """What is saved of a table.

    Args:
        name, n_blocks, home, derived: as the run describes it; derived tables are never saved.
        fields: by name, dtype, shape of a block (None if ragged) and the encodings in use.
        n_saved: blocks that were ever saved.
        live_bytes: of their newest copies.
        oldest, median, newest: iterations of these; None if there are none.
        ages: how far they are behind the newest iteration of the run.
    """

    name: str
    n_blocks: int
    home: str
    derived: bool
    fields: dict[str, dict[str, Any]]
    n_saved: int = 0
    live_bytes: int = 0
    oldest: int | None = None
    median: float | None = None
    newest: int | None = None
    ages: list[AgeBin] = field(default_factory=list)


@dataclass(slots=True)
class SegmentState:
    """The segments: those that count, and those that do not. ``live_bytes`` are values that are the newest copies."""

    n: int = 0
    n_compacted: int = 0
    size_bytes: int = 0
    live_bytes: int = 0
    dead_bytes: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)
    n_not_counting: int = 0
    not_counting_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TermState:
    """A term: from what it started, and who claimed it. ``kind`` is None if it never acted."""

    term: int
    kind: str | None
    parent: int | None
    n_segments: int
    owner: str | None


@dataclass(frozen=True, slots=True)
class UnitState:
    """A full save that counts; ``problem`` says why it cannot be used."""

    term: int
    commit: int
    iteration: int
    n_segments: int
    problem: str | None


@dataclass(frozen=True, slots=True)
class OwnerState:
    """Who works on the run, or did last.

    Args:
        name: in words.
        silent_s: since its last sign of life, as far as clocks agree; None if it gave none.
        state: ``alive``; ``ended``, it let the run go; ``silent``: longer than a lease, so probably dead.
    """

    name: str
    silent_s: float | None
    state: str


@dataclass(slots=True)
class Inspection:
    """All that there is to know of a run without its model and data.

    Args:
        description: what the run was created with.
        owner: None if it never had one.
        term: that counts; None if nothing was ever done.
        iteration: of the newest save; None if there is none.
        tables, segments, terms, units, history: see there.
    """

    description: dict[str, Any]
    owner: OwnerState | None
    term: int | None
    iteration: int | None
    tables: list[TableState]
    segments: SegmentState
    terms: list[TermState]
    units: list[UnitState]
    history: RunHistory


def inspect(store: Store, now_s: float | None = None) -> Inspection:
    """Look into a run, whether it is going on or not.

    Args:
        store: where it is.
        now_s: seconds since 1970; the clock's by default.

    Raises:
        UsageError: there is no run.
        DamagedError: its description, or what its last term started from, cannot be read.
        StoreError: the store cannot be read now.
    """
    run, terms = RunFolder.open(store), Terms(store)
    last = terms.last()
    census, catalog, count = census_of_run(store, terms)
    newest = max((int(t.versions.iteration.max()) for t in census.values() if len(t.ids)), default=None)
    segments = SegmentState(
        count.n, count.n_compacted, count.size_bytes, count.live_bytes, count.dead_bytes, count.unreadable
    )
    _count_others(store, {s.name for s in catalog.readable()} | set(count.unreadable), segments)
    return Inspection(
        description=run.description,
        owner=owner_state(store, terms, time.time() if now_s is None else now_s),
        term=last,
        iteration=newest,
        tables=_tables(run.description.get("tables"), census, newest or 0),
        segments=segments,
        terms=[_term(terms, term) for term in terms.claimed()],
        units=_units(store, terms, last),
        history=read_history(run.read_events()),
    )


def owner_state(store: Store, terms: Terms, now_s: float) -> OwnerState | None:
    """Who works on a run, or did last; None if nobody ever did. For people: it compares clocks."""
    claimed = terms.last_claim()
    claimer, beat = (terms.claimed_by(claimed) if claimed else None), read_beat(store)
    if beat is None or (claimer is not None and claimer != beat.owner):
        return OwnerState(str(claimer), None, "silent") if claimer is not None else None
    silent_s = max(now_s - beat.at_s, 0.0)
    alive = "alive" if silent_s <= Timing().lease_s else "silent"
    return OwnerState(str(beat.owner), round(silent_s, 1), "ended" if beat.ended else alive)


def _tables(described: object, census: Mapping[str, TableCensus], newest: int) -> list[TableState]:
    entries = described if isinstance(described, Sequence) and not isinstance(described, str) else []
    states = [_table(e) for e in entries if isinstance(e, Mapping)]
    names = {s.name for s in states}
    states += [TableState(name, len(c.ids), "", False, {}) for name, c in census.items() if name not in names]
    for state in states:
        if state.name in census:
            _fill_in(state, census[state.name], newest)
    return states


def _table(entry: Mapping[str, Any]) -> TableState:
    listed, n_blocks = entry.get("fields"), entry.get("n_blocks")
    fields = {
        str(f.get("name")): {"dtype": f.get("dtype"), "shape": None if f.get("ragged") else f.get("shape")}
        for f in (listed if isinstance(listed, list) else [])
        if isinstance(f, Mapping)
    }
    n = n_blocks if type(n_blocks) is int else 0
    return TableState(str(entry.get("name")), n, str(entry.get("home")), entry.get("derived") is True, fields)


def _fill_in(state: TableState, census: TableCensus, newest: int) -> None:
    for name, encodings in census.encodings.items():
        shape = {"shape": None} if name in census.ragged else {}  # what a run says of its tables may leave it out
        state.fields.setdefault(name, {}).update(**shape, encodings=dict(encodings))
    state.n_saved, state.live_bytes = len(census.ids), census.live_bytes
    iterations = census.versions.iteration
    if len(iterations):
        state.oldest, state.newest = int(iterations.min()), int(iterations.max())
        state.median = float(np.median(iterations))
        state.ages = _ages(newest - iterations)


def _ages(ages: np.ndarray[Any, np.dtype[np.int64]]) -> list[AgeBin]:
    """In bins of equal width, from the youngest on; none of them empty at either end."""
    first = int(ages.min())
    width = max(1, -(-(int(ages.max()) - first + 1) // _MOST_BINS))
    counts = np.bincount((ages - first) // width)
    return [AgeBin(first + i * width, first + (i + 1) * width - 1, n) for i, n in enumerate(counts.tolist())]


def _count_others(store: Store, counting: set[str], state: SegmentState) -> None:
    for name in store.list("segments/"):
        if name in counting or SegmentId.parse(name) is None:
            continue
        try:
            state.not_counting_bytes += store.size(name)
        except NotFoundError:
            continue
        state.n_not_counting += 1


def _term(terms: Terms, term: int) -> TermState:
    owner = terms.claimed_by(term)
    name = str(owner) if owner is not None else None
    try:
        record = terms.record(term)
    except (NotFoundError, DamagedError):
        return TermState(term, None, None, 0, name)
    return TermState(term, record.kind, record.parent, len(record.segments), name)


def _units(store: Store, terms: Terms, last: int | None) -> list[UnitState]:
    states = []
    for name in terms.visible_units(last) if last is not None else ():
        try:
            unit = read_unit(store, name)
        except NotFoundError:
            continue  # given up meanwhile
        except DamagedError as e:
            term, commit = name.removeprefix("units/").removesuffix(".json").split("-")
            states.append(UnitState(int(term), int(commit), 0, 0, str(e)))
            continue
        problem = unit_problem(store, unit)
        states.append(UnitState(unit.term, unit.commit, unit.iteration, len(unit.segments), problem))
    return states

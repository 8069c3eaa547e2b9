"""Verifying a run: every checksum of everything that counts. Reads only; a run that is still going is not disturbed."""

from __future__ import annotations

import json
import re

from scarml.errors import DamagedError, NotFoundError
from scarml.storage.findings import Finding, OnProgress, Verification
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment_verification import SegmentVerification
from scarml.storage.store import Store
from scarml.storage.terms import Terms
from scarml.storage.unit import read_unit, unit_problem

__all__ = ["verify"]

_OBJECT = re.compile(
    r"SCAR-RUN|README\.txt|(run|owner|status)\.json|owner\.lock|(terms|segments|units|events|commands)/.+"
)


def verify(store: Store, on_progress: OnProgress = lambda _done, _total: None) -> Verification:
    """Read everything that counts in a run, and compare every checksum.

    Args:
        store: where the run is.
        on_progress: is told how far it is.

    Raises:
        UsageError: there is no run.
        StoreError: the store cannot be read now.
    """
    result = Verification()
    try:
        RunFolder.open(store)
    except DamagedError as e:
        result.damaged.append(Finding("run.json" if "run.json" in str(e) else "SCAR-RUN", str(e)))
    terms = Terms(store)
    last = _verify_terms(terms, result)
    if last is not None:
        _verify_units(store, terms, last, result)
        SegmentVerification(store, terms, last, result, on_progress).verify()
    _verify_events(store, result)
    _note_strangers(store, result)
    return result


# ---------------------------------------------------------------------------------------------------------- the records
def _verify_terms(terms: Terms, result: Verification) -> int | None:
    """The last term that acted, if its base can be read."""
    claimed, last, is_readable = terms.claimed(), terms.last(), True
    for term in claimed:
        try:
            terms.record(term)
        except NotFoundError:
            why = "a start under way, or one that died" if term == claimed[-1] else "a start that died"
            result.notes.append(Finding(f"terms/{term:08d}.claim", f"it is of {why} before it had done anything"))
        except DamagedError as e:
            finding = Finding(f"terms/{term:08d}.base", str(e))
            (result.damaged if term == last else result.notes).append(finding)
            is_readable &= term != last
        else:
            result.n_terms += 1
    if last is None:
        result.notes.append(Finding("terms/", "no term has acted: nothing was saved yet"))
    return last if is_readable else None


def _verify_units(store: Store, terms: Terms, term: int, result: Verification) -> None:
    for name in terms.visible_units(term):
        result.n_units += 1
        try:
            problem = unit_problem(store, read_unit(store, name))
        except (NotFoundError, DamagedError) as e:
            problem = str(e)
        if problem is not None and name in terms.visible_units(term):  # else it was given up meanwhile
            result.damaged.append(Finding(name, f"the full save cannot be used: {problem}"))


def _verify_events(store: Store, result: Verification) -> None:
    for name in store.list("events/"):
        bad = sum(not _is_event(line) for line in store.get(name).splitlines())
        if bad:
            result.notes.append(Finding(name, f"{bad} of its lines cannot be read; nothing is restored from them"))


def _is_event(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _note_strangers(store: Store, result: Verification) -> None:
    for name in store.list():
        if not _OBJECT.fullmatch(name):
            result.notes.append(Finding(name, "SCAR has not made it"))

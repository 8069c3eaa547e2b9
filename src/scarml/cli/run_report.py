"""How a run is doing, put together from what is in its folder."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from scarml.errors import DamagedError
from scarml.storage.event_log import EventLog
from scarml.storage.inspection import OwnerState, owner_state
from scarml.storage.live_status import NodeStatus, Status, read_status
from scarml.storage.owner import read_beat
from scarml.storage.ownership import Timing
from scarml.storage.run_history import RunHistory, read_history
from scarml.storage.store import Store
from scarml.storage.terms import Terms

__all__ = ["RunReport", "report_on"]

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class RunReport:
    """How a run is doing.

    Args:
        run: as the user named it.
        owner: who works on it, or did last; None if nobody ever did.
        status: what it last said of itself; None if it never did.
        is_current: whether the present owner said that, and not the one of an earlier start.
        as_of_s: how long ago it said so, as far as clocks agree.
        problem: why ``status`` is missing, if it is damaged.
        history: what its event log tells, where that is needed: nobody works on it, or ``status`` is missing.
    """

    run: str
    owner: OwnerState | None
    status: Status | None
    is_current: bool
    as_of_s: float | None
    problem: str | None
    history: RunHistory | None

    @property
    def is_alive(self) -> bool:
        """Whether somebody works on it."""
        return self.owner is not None and self.owner.state == "alive"

    @property
    def is_going_on(self) -> bool:
        """Whether it may still change: somebody works on it, or was silent for no longer than the dead are."""
        if self.owner is None or self.owner.state == "ended":
            return False
        return self.owner.silent_s is None or self.owner.silent_s <= 2 * Timing().lease_s

    def nodes(self, kind: str) -> list[NodeStatus]:
        """The nodes of a kind that it told of."""
        return [n for n in self.status.nodes if n.kind == kind] if self.status is not None else []

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "schema_version": SCHEMA_VERSION,
            "run": self.run,
            "is_alive": self.is_alive,
            "owner": dataclasses.asdict(self.owner) if self.owner is not None else None,
            "status": self.status.to_json() if self.status is not None else None,
            "is_current": self.is_current,
            "as_of_s": self.as_of_s,
            "problem": self.problem,
            "history": dataclasses.asdict(self.history) if self.history is not None else None,
        }


def report_on(store: Store, run: str, now_s: float) -> RunReport:
    """Look at a run.

    Args:
        store: where it is.
        run: as the user named it.
        now_s: seconds since 1970.

    Raises:
        StoreError: the store cannot be read now.
    """
    terms, problem, status = Terms(store), None, None
    owner = owner_state(store, terms, now_s)
    try:
        status = read_status(store)
    except DamagedError as e:
        problem = str(e)
    is_current = status is not None and _is_of_this_start(store, terms, status)
    needs_history = not is_current or owner is None or owner.state != "alive"
    return RunReport(
        run=run,
        owner=owner,
        status=status,
        is_current=is_current,
        as_of_s=round(max(now_s - status.updated_unix_s, 0.0), 1) if status is not None else None,
        problem=problem,
        history=read_history(EventLog(store).read()) if needs_history else None,
    )


def _is_of_this_start(store: Store, terms: Terms, status: Status) -> bool:
    beat = read_beat(store)
    if beat is None or status.term > beat.term:
        return False
    if status.term == beat.term:
        return True
    claimer = terms.claimed_by(status.term)  # a start may claim several terms
    return claimer is not None and claimer.token == beat.owner.token

"""Who owns a run: what an owner says about itself, and how others tell from it whether the owner is alive.

While it works on a run, an owner keeps putting the object ``owner.json`` with a counter that grows. Nobody compares
clocks of different machines: a counter that moves, on the watcher's own clock, is a living owner.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import platform
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scarml.errors import DamagedError, NotFoundError
from scarml.storage.record import decode_record, encode_record
from scarml.storage.store import LockReach, Store

__all__ = ["BEATS_A_LEASE", "OWNER_OBJECT", "Beat", "Owner", "Reading", "owner_is_alive", "read_beat", "write_beat"]

_log = logging.getLogger(__name__)

OWNER_OBJECT = "owner.json"

BEATS_A_LEASE = 3
"""An owner beats, and a watcher looks, so often in the time of a lease."""

_SILENT_LEASES = 2
_MOVES_OF_THE_LIVING = 2
_PROCESS = secrets.token_hex(8)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that owns a run, or did.

    Args:
        token: unique among all owners.
        machine: the running system that it is a process of; another one after a reboot.
        process: the process; unlike its number, never used again.
        host: its name.
        pid: number of the process.
        since: when it took the run over, UTC, for people.
    """

    token: str
    machine: str
    process: str
    host: str
    pid: int
    since: str

    @classmethod
    def this_process(cls) -> Owner:
        """This process, as a new owner."""
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return cls(secrets.token_hex(8), _machine(), _PROCESS, platform.node(), os.getpid(), since)

    @classmethod
    def parse(cls, body: object) -> Owner | None:
        """From a record's body; None if it is no owner's."""
        if not isinstance(body, Mapping):
            return None
        values: list[Any] = [body.get(f.name) for f in dataclasses.fields(cls)]
        is_owner = all(isinstance(v, int if f.name == "pid" else str) for f, v in _paired(cls, values))
        return cls(*values) if is_owner else None

    def sees_our_locks(self, reach: LockReach) -> bool:
        """Whether it is near enough for locks that reach so far to keep the two of us apart."""
        return self.process == _PROCESS if reach == "process" else self.machine == _machine()

    def to_json(self) -> dict[str, Any]:
        """For a record."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life: the contents of ``owner.json``.

    Args:
        owner: who gave it.
        term: the last one that the owner had claimed.
        counter: grows with each beat.
        at_s: on the owner's own clock, seconds since 1970; for people, not for decisions.
        ended: whether the owner has let the run go.
    """

    owner: Owner
    term: int
    counter: int
    at_s: float
    ended: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """What a watcher saw: ``mark`` changes with every sign of life; ``at_s`` is on the watcher's own clock."""

    mark: object
    at_s: float


def owner_is_alive(readings: Sequence[Reading], lease_s: float) -> bool | None:
    """Whether an owner is alive, from what was seen of it so far; None while that cannot be said.

    Two moves are a living owner; one may be the last request of a dead one, which a slow store carried out late. No
    move over two leases is a dead one. Both the time and the number of looks count: a watcher that was itself suspended
    has seen no silence.

    Example:
        >>> owner_is_alive([Reading(7, 0.0), Reading(8, 3.0), Reading(9, 6.0)], lease_s=9.0)
        True
        >>> owner_is_alive([Reading(7, 3.0 * i) for i in range(7)], lease_s=9.0)
        False
    """
    moves = [i for i in range(1, len(readings)) if readings[i].mark != readings[i - 1].mark]
    if len(moves) >= _MOVES_OF_THE_LIVING:
        return True
    silent = readings[moves[-1] if moves else 0 :]
    is_long = bool(silent) and silent[-1].at_s - silent[0].at_s >= _SILENT_LEASES * lease_s
    return False if is_long and len(silent) > _SILENT_LEASES * BEATS_A_LEASE else None


def read_beat(store: Store) -> Beat | None:
    """The last sign of life on a store; None if there is none that can be read."""
    try:
        body = decode_record("owner", OWNER_OBJECT, store.get(OWNER_OBJECT))
    except NotFoundError:
        return None
    except DamagedError as e:
        _log.debug("%s", e)
        return None
    owner = Owner.parse(body.get("owner"))
    term, counter, at_s, ended = (body.get(k) for k in ("term", "counter", "at_s", "ended"))
    if owner is None or not (isinstance(term, int) and isinstance(counter, int) and isinstance(at_s, (int, float))):
        return None
    return Beat(owner, term, counter, float(at_s), ended is True)


def write_beat(store: Store, beat: Beat) -> None:
    """Give a sign of life."""
    body = {"owner": beat.owner.to_json(), "term": beat.term, "counter": beat.counter, "at_s": beat.at_s}
    store.put(OWNER_OBJECT, [encode_record("owner", {**body, "ended": beat.ended})])


def _machine() -> str:
    """Tells running systems apart, not containers of one system: they share its locks."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return platform.node()


def _paired(cls: type[Owner], values: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(dataclasses.fields(cls), values, strict=True))

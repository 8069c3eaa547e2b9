"""``status.json``: how far a run is, for people who look at it from elsewhere. Nothing is restored from it."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from scarml.errors import DamagedError, NotFoundError, ScarError
from scarml.storage.json_text import finite
from scarml.storage.record import decode_record, encode_record
from scarml.storage.run_folder import RunFolder
from scarml.storage.store import Store

__all__ = ["STATUS_OBJECT", "LiveStatus", "NodeStatus", "SavesStatus", "Status", "read_status"]

_log = logging.getLogger(__name__)

STATUS_OBJECT = "status.json"
SCHEMA_VERSION = 1

_MIN_PAUSE_S = 2.0
_MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node.

    Args:
        name: of it, for example ``server-3``.
        kind: ``server`` or ``worker``.
        alive: whether it is; of those that are not only the last need be told.
        pid, host: its process, where it has one of its own.
    """

    name: str
    kind: str
    alive: bool = True
    pid: int | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class SavesStatus:
    """What is saved.

    Args:
        n: saves that this start has committed.
        size_bytes: of block values, in all of them.
        iteration: of the newest.
        median_age_iters, oldest_age_iters: how far the saved values are behind training; None where that is not known.
        trouble: that the store makes now, in words.
    """

    n: int = 0
    size_bytes: int = 0
    iteration: int | None = None
    median_age_iters: int | None = None
    oldest_age_iters: int | None = None
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """Where a run stands.

    Args:
        iteration: the state is x(iteration).
        executed: iterations done in all.
        loss: the last ones by name, ``loss_sum`` and ``loss_mean``.
        metrics: the last ones on held-out data, by name.
        metrics_iteration: they are of x(metrics_iteration); None where there are none.
        activity: in words, for example ``training``.
        nodes: of the view, and the last ones that were lost.
        saves: see there.
        term: of the start that says so; filled in by `LiveStatus`.
        updated_unix_s: when it said so, on its own clock; filled in by `LiveStatus`.
    """

    iteration: int = 0
    executed: int = 0
    loss: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    metrics_iteration: int | None = None
    activity: str = "starting"
    nodes: tuple[NodeStatus, ...] = ()
    saves: SavesStatus = field(default_factory=SavesStatus)
    term: int = 0
    updated_unix_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; a number that is not finite is null."""
        ready: dict[str, Any] = finite({"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)})
        return ready


class LiveStatus:
    """Keeps ``status.json`` up to date beside training: when something changed, every two seconds at most.

    A store that fails is left alone until the next time; nothing here raises.

    Args:
        folder: the run; it is this process's.
        in_background: runs a task on another thread, soon.
        clock_s: this process's clock.
        unix_s: seconds since 1970, for people.

    Example:
        >>> from scarml.storage.memory import MemoryStore
        >>> folder = RunFolder.create(MemoryStore(), {})
        >>> folder.claim_term("new")
        1
        >>> live = LiveStatus(folder, in_background=lambda task: task())
        >>> live.publish(Status(iteration=7, executed=7))
        >>> read_status(folder.store).iteration
        7
    """

    def __init__(
        self,
        folder: RunFolder,
        in_background: Callable[[Callable[[], None]], None],
        clock_s: Callable[[], float] = time.monotonic,
        unix_s: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._in_background = in_background
        self._clock_s = clock_s
        self._unix_s = unix_s
        self._due_s = clock_s()
        self._newest: Status | None = None
        self._written: Status | None = None
        self._is_writing = False
        self._mutex = Lock()

    @property
    def is_due(self) -> bool:
        """Whether what is published now would be written: for callers to whom a `Status` is work."""
        return not self._is_writing and self._clock_s() >= self._due_s

    def publish(self, status: Status) -> None:
        """Note where the run stands. Returns at once."""
        with self._mutex:
            self._newest = status
            if status == self._written or not self.is_due:
                return
            self._is_writing = True
        self._in_background(self._write)

    def close(self) -> None:
        """Write what was published last, now."""
        if self._newest != self._written:
            self._write()

    def _write(self) -> None:
        status, term = self._newest, self._folder.claimed_term
        try:
            if status is not None and term is not None:
                self._folder.check_term(term)  # a process that was superseded must not speak for the new one
                dated = dataclasses.replace(status, term=term, updated_unix_s=round(self._unix_s(), 3))
                self._folder.store.put(STATUS_OBJECT, [encode_record("status", dated.to_json())])
                self._written = status
        except ScarError as e:
            _log.debug("%s is not up to date: %s", STATUS_OBJECT, e)
        finally:
            with self._mutex:
                self._is_writing = False
                self._due_s = self._clock_s() + _MIN_PAUSE_S


def read_status(store: Store) -> Status | None:
    """Where a run stood when it last said so; None if it never did.

    Raises:
        DamagedError: that cannot be understood.
        StoreError: it cannot be read now.
    """
    try:
        if store.size(STATUS_OBJECT) > _MAX_BYTES:
            raise DamagedError(f"{STATUS_OBJECT} is longer than {_MAX_BYTES} bytes: it is not what SCAR writes")
        body = decode_record("status", STATUS_OBJECT, store.get(STATUS_OBJECT))
    except NotFoundError:
        return None
    try:
        return _parse(body)
    except (KeyError, TypeError, ValueError, OverflowError) as e:
        raise DamagedError(f"{STATUS_OBJECT} cannot be understood: {e!r:.200}") from None


def _parse(body: Mapping[str, Any]) -> Status:
    """Raises KeyError, TypeError, ValueError, OverflowError."""
    saves = body["saves"]
    return Status(
        iteration=_count(body["iteration"]),
        executed=_count(body["executed"]),
        loss=_numbers(body["loss"]),
        metrics=_numbers(body.get("metrics", {})),
        metrics_iteration=_maybe(_count, body.get("metrics_iteration")),
        activity=_text(body["activity"]),
        nodes=tuple(_node(n) for n in body["nodes"]),
        saves=SavesStatus(
            _count(saves["n"]),
            _count(saves["size_bytes"]),
            _maybe(_count, saves["iteration"]),
            _maybe(_count, saves["median_age_iters"]),
            _maybe(_count, saves["oldest_age_iters"]),
            _maybe(_text, saves["trouble"]),
        ),
        term=_count(body["term"]),
        updated_unix_s=_number(body["updated_unix_s"]),
    )


def _numbers(body: Any) -> dict[str, float]:
    return {_text(k): math.nan if v is None else _number(v) for k, v in dict(body).items()}


def _node(body: Mapping[str, Any]) -> NodeStatus:
    name, kind = _text(body["name"]), _text(body["kind"])
    return NodeStatus(name, kind, body["alive"] is True, _maybe(_count, body["pid"]), _maybe(_text, body["host"]))


def _maybe(check: Callable[[Any], Any], value: object) -> Any:
    return None if value is None else check(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r:.40} is no count")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{value!r:.40} is no number")
    return float(value)


def _text(value: Any) -> str:
    """For a terminal: nothing in it that would control one."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return "".join(c if c.isprintable() else " " for c in value)

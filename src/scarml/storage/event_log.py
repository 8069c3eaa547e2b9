"""The event log: immutable numbered chunks of JSON lines, for people and programs. Nothing is restored from it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from scarml.errors import AlreadyExistsError, DamagedError, NotFoundError, StoreError
from scarml.storage.json_text import to_json_text
from scarml.storage.store import Store

__all__ = ["BufferedEventLog", "EventLog"]

_log = logging.getLogger(__name__)
_NAME = re.compile(r"events/(\d{8})-(\d{6,9})\.jsonl")


class EventLog:
    """The events of one run.

    Args:
        store: where the run is.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next: dict[int, int] = {}

    def append(self, term: int, records: Sequence[Mapping[str, Any]]) -> None:
        """Store some events, one JSON object each, as the next chunk of a term. Without any nothing is stored."""
        if not records:
            return
        text = "".join(to_json_text(r) + "\n" for r in records).encode()
        number = self._next[term] if term in self._next else 1 + max(self._numbers(term), default=-1)
        while True:
            try:
                self._store.create(f"events/{term:08d}-{number:06d}.jsonl", [text])
                break
            except AlreadyExistsError:
                number += 1
        self._next[term] = number + 1

    def read(self) -> list[dict[str, Any]]:
        """All events of all terms, in the order of terms and chunks. Lines that cannot be read are left out."""
        found = [m for m in map(_NAME.fullmatch, self._store.list("events/")) if m]
        events = []
        for m in sorted(found, key=lambda m: (int(m[1]), int(m[2]))):
            try:
                text = self._store.get(m[0])
            except (NotFoundError, DamagedError) as e:
                _log.warning("events are left out: %s", e)
                continue
            for line in text.splitlines():
                try:
                    event = json.loads(line)
                except (ValueError, RecursionError):
                    _log.warning("a line of %s is damaged and is left out", m[0])
                    continue
                if isinstance(event, dict) and isinstance(event.get("event"), str):
                    events.append(event)
        return events

    def _numbers(self, term: int) -> list[int]:
        found = (_NAME.fullmatch(name) for name in self._store.list(f"events/{term:08d}-"))
        return [int(m[2]) for m in found if m]


class BufferedEventLog:
    """Keeps events back until it is told to store them, as one chunk, beside training.

    A store that fails loses none of them: they are stored with the next ones.

    Args:
        append: stores some events; raises StoreError.
        in_background: runs a task on another thread.
    """

    def __init__(
        self, append: Callable[[list[dict[str, Any]]], None], in_background: Callable[[Callable[[], None]], None]
    ) -> None:
        self._append = append
        self._in_background = in_background
        self._kept: list[dict[str, Any]] = []
        self._mutex = Lock()

    def add(self, event: dict[str, Any]) -> None:
        """Keep an event."""
        with self._mutex:
            self._kept.append(event)

    def flush_soon(self) -> None:
        """Store what is kept, in the background."""
        self._in_background(self.flush)

    def flush(self) -> None:
        """Store what is kept, now."""
        with self._mutex:
            events, self._kept = self._kept, []
        try:
            self._append(events)
        except StoreError as e:
            _log.warning("%d events could not be stored yet: %s", len(events), e)
            with self._mutex:
                self._kept = events + self._kept

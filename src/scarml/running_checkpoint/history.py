"""What has happened so far: counted, kept in the run's event log, and told to the user's ``on_event``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from scarml.control.history import Record
from scarml.storage.event_log import BufferedEventLog

__all__ = ["History"]

_log = logging.getLogger(__name__)

_FLUSH_AFTER = 256
"""Events that are kept back: a chunk of the log for each of thousands of saves would be thousands of files."""


class History:
    """Takes in every record.

    Args:
        log: the run's event log.
        on_event: the user's hook; what it raises is logged and goes no further.
    """

    def __init__(self, log: BufferedEventLog, on_event: Callable[[Record], None] | None) -> None:
        self._log = log
        self._on_event = on_event
        self._start_s = time.perf_counter()
        self._n_kept = 0
        self._untold: list[tuple[str, bool]] = []
        self._has_left_out = False
        self.n_saves = self.n_skipped = self.n_failed = self.stored_bytes = self.durable_iteration = 0
        self.last_error: str | None = None
        self.given_up: str | None = None
        """Why the last save was given up; None if it was not."""

    def tell(self, name: str, **fields: Any) -> None:
        """Take in a record of the library's own."""
        self.take_in(Record(name, fields))

    def take_in(self, record: Record) -> None:
        """Take in a record; without its time."""
        record = Record(record.name, record.fields, time.perf_counter() - self._start_s)
        self._count(record)
        self._log.add({"event": record.name, "t_s": round(record.t_s, 6), **record.fields})
        self._n_kept += 1
        if self._n_kept >= _FLUSH_AFTER:
            self._n_kept = 0
            self._log.flush_soon()
        if self._on_event is not None:
            try:
                self._on_event(record)
            except Exception:  # noqa: BLE001 - the user's, and in whichever thread
                _log.exception("on_event failed at %s", record.name)

    def flush(self) -> None:
        """Store the events that are kept, now."""
        self._log.flush()

    def untold(self) -> list[tuple[str, bool]]:
        """What went wrong with saves since this was last asked, in words; and whether one was given up."""
        untold, self._untold = self._untold, []
        return untold

    def _count(self, record: Record) -> None:
        fields = record.fields
        match record.name:
            case "save_started":
                self.given_up = None
            case "save_committed":
                self.n_saves += 1
                self.stored_bytes += fields["stored_bytes"]
                if fields["stored_bytes"]:
                    self.durable_iteration = fields["iteration"]
                if fields["whole"]:
                    self.last_error = None
            case "save_skipped":
                self.n_skipped += 1
            case "blocks_not_finite":
                if not self._has_left_out:
                    what = "with NaN, infinity, or too large for their encoding"
                    self._untold.append((f"blocks {what} are not saved, {fields['n_blocks']} in this save", False))
                self._has_left_out = True
            case "save_failed":
                if self.last_error is None:
                    self._untold.append((f"the store refuses a save, which is tried again: {fields['cause']}", False))
                self.last_error = fields["cause"]
            case "save_given_up":
                self.n_failed += 1
                self.last_error = self.given_up = fields["cause"]
                self._untold.append((f"a save was given up: {fields['cause']}", True))

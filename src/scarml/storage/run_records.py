"""What becomes of a run's records: the event log, whoever watches from elsewhere, and the user get them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scarml.control.history import Record
from scarml.storage.event_log import BufferedEventLog
from scarml.storage.live_control import LiveControl

__all__ = ["RunRecords"]


class RunRecords:
    """Passes on the records of one start.

    Args:
        complete: returns a record with what follows from earlier ones.
        log: the event log.
        on_event: the user's, if there is one.
    """

    def __init__(
        self,
        complete: Callable[[Record], Record],
        log: BufferedEventLog,
        on_event: Callable[[Record], None] | None,
    ) -> None:
        self._complete = complete
        self._log = log
        self._on_event = on_event
        self.control: LiveControl | None = None
        """For commands and the live status, where others can reach the run."""

    def take_in(self, record: Record) -> None:
        """A record, in the order of the run."""
        record = self._complete(record)
        self._log.add({"event": record.name, "t_s": round(record.t_s, 6), **record.fields})
        if record.name == "save_committed":
            self._log.flush_soon()
        if self.control is not None:
            self.control.take_in(record)
        if self._on_event is not None:
            self._on_event(record)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While commands are obeyed."""
        if self.control is None:
            yield
            return
        with self.control.listening():
            yield

    def close(self, how: str) -> None:
        """There are no more; ``how`` the run has ended is what those are told who watch."""
        self._log.flush()
        if self.control is not None:
            self.control.close(how)

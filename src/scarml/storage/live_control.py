"""A live run seen and steered from outside, through its folder: what the driver does for it beside training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Any

from scarml.control import messages as m
from scarml.control.history import Record
from scarml.storage.command_answers import CommandAnswers
from scarml.storage.command_inbox import CommandInbox
from scarml.storage.live_status import LiveStatus
from scarml.storage.run_folder import RunFolder
from scarml.storage.run_progress import Place, RunProgress, SavedAges

__all__ = ["LiveControl"]

_LISTEN_S = 0.5


class LiveControl:
    """Takes commands to the controller, answers them, and keeps ``status.json`` up to date.

    Args:
        folder: the run; it is this process's.
        term: the first one of this start.
        post: brings an event to the controller.
        in_background: runs a task on another thread, soon.
        place: of a node.
        saved_iterations: per table the iterations of the durable values.
    """

    def __init__(
        self,
        folder: RunFolder,
        term: int,
        *,
        post: Callable[[m.Event], None],
        in_background: Callable[[Callable[[], None]], None],
        place: Place,
        saved_iterations: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._inbox = CommandInbox(folder, term)
        self._answers = CommandAnswers(self._inbox.answer)
        self._progress = RunProgress()
        self._status = LiveStatus(folder, in_background)
        self._post = post
        self._in_background = in_background
        self._place = place
        self._saved_iterations = saved_iterations
        self._is_looking = False
        self._mutex = Lock()  # of what records and the listener both touch

    def take_in(self, record: Record) -> None:
        """Something has happened in the run."""
        self._answers.take_in(record)
        with self._mutex:
            self._progress.take_in(record)
            if self._status.is_due:
                self._progress.saved_ages = SavedAges.of(self._saved_iterations(), self._progress.iteration)
                self._status.publish(self._progress.status(self._place))
        self._look_if_due()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While this lasts, commands are heard also when nothing happens in the run: it may be waiting for a node."""
        is_over = Event()

        def listen() -> None:
            while not is_over.wait(_LISTEN_S):
                self.look()

        thread = Thread(target=listen, daemon=True, name="scarml-commands")
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def look(self) -> None:
        """Look for commands, and put the status into the folder, if it is time for that."""
        with self._mutex:
            if self._status.is_due:
                self._status.publish(self._progress.status(self._place))
        self._look_if_due()

    def _look_if_due(self) -> None:
        with self._mutex:
            if self._is_looking or not self._inbox.is_due:
                return
            self._is_looking = True
        self._in_background(self._look)

    def _look(self) -> None:
        try:
            for command, event in self._inbox.take_new():
                self._answers.expect(command)
                self._post(event)
        finally:
            self._is_looking = False

    def close(self, reason: str) -> None:
        """The run has ended: nobody waits for an answer any more, and the last status is there."""
        self._status.publish(self._progress.status(self._place))
        self._status.close()
        self._inbox.close(reason)

"""A live run seen and steered from outside, through its folder: what the driver does for it beside training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scarml.control import messages as m
from scarml.control.history import Record
from scarml.storage.command_answers import CommandAnswers
from scarml.storage.command_inbox import CommandInbox
from scarml.storage.live_status import LiveStatus
from scarml.storage.run_folder import RunFolder
from scarml.storage.run_progress import Place, RunProgress, SavedAges

__all__ = ["LiveControl"]


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

    def take_in(self, record: Record) -> None:
        """Something has happened in the run."""
        self._answers.take_in(record)
        self._progress.take_in(record)
        if self._status.is_due:
            self._progress.saved_ages = SavedAges.of(self._saved_iterations(), self._progress.iteration)
            self._status.publish(self._progress.status(self._place))
        if self._inbox.is_due and not self._is_looking:
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

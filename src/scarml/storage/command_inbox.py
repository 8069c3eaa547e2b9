"""The driver's side of commands: what is new, as events for the controller; and answers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock

from scarml.control import messages as m
from scarml.errors import DamagedError, NotFoundError, StoreError
from scarml.storage.commands import COMMANDS_FOLDER, Answer, Command, CommandName, read_command, write_answer
from scarml.storage.run_folder import RunFolder

__all__ = ["CommandInbox", "event_of"]

_log = logging.getLogger(__name__)

_MOST_AT_ONCE = 64
_MOST_ANSWERS_KEPT = 64
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.2, 5.0
_PAUSE_PER_LOOK = 20
"""A look takes at most so small a part of the time: 0.2 s apart on a disk, about a second on an object store."""


class CommandInbox:
    """Commands to the start of a run that this process is.

    `take_new` and `close` use the store and belong into the background; `answer` only notes, and may be called from any
    thread. Nothing here raises: a store that fails is asked again with the next look, and training goes on.

    Args:
        folder: the run; it is this process's.
        term: the first one of this start. What was for an earlier one is removed.
        clock_s: this process's clock.

    Example:
        >>> from scarml.storage.memory import MemoryStore
        >>> from scarml.storage.commands import post_command
        >>> folder = RunFolder.create(MemoryStore(), {})
        >>> inbox = CommandInbox(folder, folder.claim_term("new"))
        >>> name = CommandName.new(term=1, unix_s=1e9)
        >>> post_command(folder.store, Command(name, "scale", {"servers": 6}, "somebody"))
        >>> [(command, event)] = inbox.take_new()
        >>> event
        ScaleRequested(servers=6, workers=None)
        >>> inbox.answer(command, "6 servers, 2 workers", done=True)
        >>> inbox.take_new()  # sends the answer
        []
        >>> folder.store.list("commands/") == [name.answer]
        True
    """

    def __init__(self, folder: RunFolder, term: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._first_term = term
        self._clock_s = clock_s
        self._due_s = clock_s()
        self._seen: set[CommandName] = set()
        self._open: dict[CommandName, Command] = {}
        self._to_send: dict[CommandName, Answer] = {}
        self._mutex = Lock()  # of the two above

    @property
    def is_due(self) -> bool:
        """Whether it is time for another look."""
        return self._clock_s() >= self._due_s

    def take_new(self) -> list[tuple[Command, m.Event]]:
        """Send answers; then look for commands that have not been seen before, the oldest first, and remove them.

        A command that cannot be understood is answered here, and logged.
        """
        begin_s = self._clock_s()
        try:
            self._send()
            return self._look()
        finally:
            end_s = self._clock_s()
            self._due_s = end_s + min(max(_PAUSE_PER_LOOK * (end_s - begin_s), _MIN_PAUSE_S), _MAX_PAUSE_S)

    def answer(self, command: Command, outcome: str, done: bool) -> None:
        """Say what became of a command; the next look sends it. The first answer counts.

        Args:
            command: it.
            outcome: in words, for who posted it.
            done: it was carried out; else it was refused, or could not be.
        """
        with self._mutex:
            if self._open.pop(command.name, None) is not None:
                self._to_send[command.name] = Answer(outcome, done)

    def close(self, reason: str) -> None:
        """The run has ended: answer whatever is unanswered, also what was never read.

        Args:
            reason: of the end, in words.
        """
        for command, _ in self._look():
            self.answer(command, f"the run has ended before it read this: {reason}", done=False)
        with self._mutex:
            unanswered = list(self._open.values())
        for command in unanswered:
            self.answer(command, f"the run has ended before this was done: {reason}", done=False)
        self._send()

    def _look(self) -> list[tuple[Command, m.Event]]:
        try:
            listed = self._folder.store.list(COMMANDS_FOLDER)
        except StoreError as e:
            _log.debug("no look for commands: %s", e)
            return []
        names = sorted((name, text) for text in listed if (name := CommandName.parse(text)) is not None)
        last_term = max(self._folder.claimed_term or 0, self._first_term)
        is_ours = [(name, text) for name, text in names if self._first_term <= name.term <= last_term]
        answers = [text for name, text in is_ours if text == name.answer]
        left_over = [text for name, text in names if name.term < self._first_term]
        seen = [text for name, text in is_ours if text == name.object and name in self._seen]
        for text in (left_over + seen + answers[:-_MOST_ANSWERS_KEPT])[:_MOST_AT_ONCE]:
            self._delete(text)
        new = [name for name, text in is_ours if text == name.object and name not in self._seen]
        commands = [self._take(name) for name in new[:_MOST_AT_ONCE]]
        return [(c, event_of(c)) for c in commands if c is not None]

    def _take(self, name: CommandName) -> Command | None:
        command: Command | None = None
        try:
            command = read_command(self._folder.store, name)
        except NotFoundError:
            return None  # withdrawn
        except DamagedError as e:
            _log.warning("a command is ignored: %s", e)
            with self._mutex:
                self._to_send[name] = Answer(f"it cannot be understood: {e}", done=False)
        except StoreError as e:
            _log.debug("a command is read later: %s", e)
            return None
        else:
            with self._mutex:
                self._open[name] = command
        self._seen.add(name)  # before it is removed, which may fail
        self._delete(name.object)
        return command

    def _send(self) -> None:
        with self._mutex:
            waiting = list(self._to_send.items())
        for name, answer in waiting:
            try:
                write_answer(self._folder.store, name, answer)
            except StoreError as e:
                _log.debug("an answer is sent later: %s", e)
                return
            with self._mutex:
                del self._to_send[name]

    def _delete(self, name: str) -> None:
        try:
            self._folder.store.delete(name)
        except StoreError as e:  # it is listed again, and then removed
            _log.debug("%s stays for now: %s", name, e)


def event_of(command: Command) -> m.Event:
    """What the controller is told."""
    match command.kind:
        case "stop":
            return m.StopRequested(f"scarml stop, by {command.sender}")
        case "drain":
            return m.DrainRequested(command.arguments["node"], f"scarml drain, by {command.sender}")
        case "scale":
            return m.ScaleRequested(command.arguments.get("servers"), command.arguments.get("workers"))

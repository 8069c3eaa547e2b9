"""The sender's side of commands: to whom they go, and waiting for the answer.

A command is only posted to a process that lives, see `scarml.storage.owner`. While its answer is awaited, that process
is watched: if it ends or dies first, the command is withdrawn.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from threading import Event
from typing import Any

from scarml.errors import NotFoundError, RunInUseError, UsageError
from scarml.storage.commands import Answer, Command, CommandKind, CommandName, post_command, read_answer
from scarml.storage.event_log import EventLog
from scarml.storage.owner import Beat, Owner, Reading, owner_is_alive, read_beat
from scarml.storage.ownership import Timing
from scarml.storage.run_history import read_history
from scarml.storage.store import Store
from scarml.storage.terms import Terms

__all__ = ["Delivery", "find_living_owner"]

_POLL_S = 0.5
_MOST_LOOKS = 100

OnNews = Callable[[str], None]
"""Told, in words, why it takes a while."""


def find_living_owner(store: Store, timing: Timing, on_news: OnNews = lambda _: None) -> Beat:
    """The last sign of life of the process that works on a run.

    Where clocks do not tell, it is watched for two leases at most.

    Raises:
        UsageError: no process does.
    """
    terms = Terms(store)
    readings: list[Reading] = []
    who = "its last owner"
    while len(readings) < _MOST_LOOKS:
        claim, beat = terms.last_claim(), read_beat(store)
        claimer = terms.claimed_by(claim) if claim else None
        if not claim:
            raise UsageError("no process works on this run: it was never started")
        is_owners = beat is not None and (claimer is None or claimer.token == beat.owner.token)
        if beat is not None and is_owners:
            silent_s = timing.unix_s() - beat.at_s
            if beat.ended:
                raise UsageError(f"no process works on this run: {_how_it_ended(store, beat)}")
            if abs(silent_s) <= timing.lease_s:
                return beat
            if beat.owner.machine == Owner.this_process().machine and silent_s > 2 * timing.lease_s:
                raise UsageError(_has_died(str(beat.owner)))
        who = str(claimer or (beat.owner if beat else who))
        readings.append(Reading((claim, beat and beat.owner.token, beat and beat.counter), timing.clock_s()))
        alive = owner_is_alive(readings, timing.lease_s)
        if alive and beat is not None and is_owners:
            return beat
        if alive is False:
            break
        if len(readings) == 1:
            on_news(f"looking for {2 * timing.lease_s:.0f} s whether {who} is alive")
        timing.wait(Event(), timing.beat_s)
    raise UsageError(_has_died(who))


class Delivery:
    """A command on its way to the process that works on a run. Made by `post`.

    Args:
        store: where the run is.
        command: it has been posted.
        owner: for whom it is.
        timing: of the watch.
    """

    def __init__(self, store: Store, command: Command, owner: Owner, timing: Timing) -> None:
        self.command = command
        self.owner = owner
        self._store = store
        self._timing = timing
        self._readings: list[Reading] = []
        self._is_read = False

    @classmethod
    def post(
        cls,
        store: Store,
        kind: CommandKind,
        arguments: Mapping[str, Any],
        timing: Timing | None = None,
        on_news: OnNews = lambda _: None,
    ) -> Delivery:
        """Post a command to the process that works on the run now.

        Raises:
            UsageError: no process does.
            StoreError: it could not be stored.
        """
        timing = timing or Timing()
        beat = find_living_owner(store, timing, on_news)
        sender = f"process {os.getpid()} on {platform.node() or 'a host without a name'}"
        command = Command(CommandName.new(beat.term, timing.unix_s()), kind, dict(arguments), sender)
        post_command(store, command)
        return cls(store, command, beat.owner, timing)

    def answer(self, timeout_s: float, on_news: OnNews = lambda _: None) -> Answer:
        """Wait for the answer, and remove it from the store.

        Raises:
            UsageError: the process ended, or died, before it answered.
            RunInUseError: it lives and has not answered for so long; the command stays. Or another one took over.
            StoreError: the store cannot be read; the command stays.
        """
        begin_s = self._timing.clock_s()
        while True:
            found = self._collect()
            if found is not None:
                return found
            gone = self._why_gone()
            if gone is not None:
                return self._collect() or self._withdraw(gone)
            if not self._is_read and self._was_taken():
                self._is_read = True
                on_news("the run has read the command")
            if self._timing.clock_s() - begin_s >= timeout_s:
                what = "read the command, and not said yet what came of it" if self._is_read else "not read it yet"
                raise RunInUseError(
                    f"{self.owner} has {what} in {timeout_s:g} s; commands are read between iterations. It still "
                    "counts: scarml status shows what becomes of it"
                )
            self._timing.wait(Event(), _POLL_S)

    def _collect(self) -> Answer | None:
        answer = read_answer(self._store, self.command.name)
        if answer is not None:
            self._store.delete(self.command.name.answer)
        return answer

    def _was_taken(self) -> bool:
        try:
            self._store.size(self.command.name.object)
        except NotFoundError:
            return True
        return False

    def _why_gone(self) -> Exception | None:
        """Why the owner will not answer any more, as far as that can be known."""
        beat = read_beat(self._store)
        if beat is not None and beat.owner.token != self.owner.token:
            return RunInUseError(f"{beat.owner} has taken the run over")
        if beat is not None and beat.ended:
            return UsageError(f"the run has ended: {_how_it_ended(self._store, beat)}")
        self._readings.append(Reading(beat and beat.counter, self._timing.clock_s()))
        alive = owner_is_alive(self._readings, self._timing.lease_s)
        if alive is None:
            return None
        del self._readings[:-1]
        return None if alive else UsageError(_has_died(str(self.owner)))

    def _withdraw(self, gone: Exception) -> Answer:
        self._store.delete(self.command.name.object)
        raise type(gone)(f"this {self.command.kind} was not answered: {gone}")


def _how_it_ended(store: Store, beat: Beat) -> str:
    history = read_history(EventLog(store).read())
    how = f" ({history.outcome}, {history.reason})" if history.outcome is not None else ""
    return f"{beat.owner} has ended{how}"


def _has_died(owner: str) -> str:
    return (
        f"no process works on this run: {owner} gives no sign of life, and was probably killed; the command that "
        "started it goes on with --resume auto"
    )

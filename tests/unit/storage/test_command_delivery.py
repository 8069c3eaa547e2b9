"""Sending a command: only to a living owner, and nobody waits for the dead."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.unit.storage.test_ownership import BEAT_S, LEASE_S, NoLocks, Time
from tests.unit.storage.test_run_folder import new_run

from scarml.errors import RunInUseError, StoreError, UsageError
from scarml.storage.command_delivery import Delivery, find_living_owner
from scarml.storage.command_inbox import CommandInbox
from scarml.storage.commands import Answer
from scarml.storage.faulty import FaultyStore
from scarml.storage.local import LocalStore
from scarml.storage.owner import Owner, read_beat, write_beat
from scarml.storage.record import encode_record


class Running:
    """A start of a run; `work` is its driver's next iteration."""

    def __init__(self, store, elsewhere: bool = False) -> None:
        self.store = store
        self.time = Time()
        self.folder = new_run(store)
        self._stack = ExitStack()
        self._stack.enter_context(self.folder.owned(timing=self.time.timing()))
        if elsewhere:
            assert self.folder._ownership is not None
            self.folder._ownership.me = dataclasses.replace(self.folder._ownership.me, machine="far", host="far", pid=7)
        self.inbox = CommandInbox(self.folder, self.folder.claim_term("new"), lambda: self.time.now_s)

    def work(self) -> None:
        self.beat()
        for command, event in self.inbox.take_new():
            self.inbox.answer(command, f"done: {type(event).__name__}", done=True)

    def beat(self) -> None:
        assert self.folder._ownership is not None
        self.folder._ownership.beat()

    def end(self, outcome: str = "stopped") -> None:
        self.folder.append_events(1, [{"event": "run_finished", "outcome": outcome, "reason": "it was enough"}])
        self._stack.close()

    def sender(self, *script: Callable[[], object]) -> Time:
        """The sender's time: it goes on where this one's stands."""
        time = Time(*script)
        time.now_s = self.time.now_s
        return time


@pytest.fixture(params=["memory", "local"])
def run(request, tmp_path) -> Iterator[Running]:
    running = Running(NoLocks() if request.param == "memory" else LocalStore(str(tmp_path / "run")))
    yield running
    running._stack.close()


def stop(run: Running, *script: Callable[[], object], timeout_s: float = 60.0, news=None) -> Answer:
    time = run.sender(*script)
    says = (news if news is not None else []).append
    return Delivery.post(run.store, "stop", {}, time.timing(), says).answer(timeout_s, says)


def nothing() -> None:
    pass


# ----------------------------------------------------------------------------------------------------------- the answer
def test_a_living_owner_answers_and_nothing_is_left(run):
    news: list[str] = []
    assert stop(run, nothing, run.work, run.work, news=news) == Answer("done: StopRequested", done=True)
    assert news == ["the run has read the command"]
    assert run.store.list("commands/") == []


def test_a_refusal_is_an_answer(run):
    def refuse() -> None:
        for command, _ in run.inbox.take_new():
            run.inbox.answer(command, "there is no node server-9: nodes are server-0, server-1", done=False)
        run.inbox.take_new()

    assert not stop(run, refuse).done


def test_an_owner_that_lives_and_does_not_answer_is_given_up_and_the_command_stays(run):
    def beat() -> None:
        run.time.now_s += 0.5
        run.beat()

    with pytest.raises(RunInUseError, match=r"has not read it yet in 30 s; commands are read between iterations"):
        stop(run, *[beat] * 100, timeout_s=30.0)
    assert len(run.store.list("commands/")) == 1
    with pytest.raises(RunInUseError, match="read the command, and not said yet what came of it in 30 s"):
        stop(run, beat, run.inbox.take_new, *[beat] * 100, timeout_s=30.0)


# -------------------------------------------------------------------------------------------------- nobody is there
def test_a_run_that_was_never_started(tmp_path):
    store = LocalStore(str(tmp_path))
    new_run(store)
    with pytest.raises(UsageError, match="no process works on this run: it was never started"):
        find_living_owner(store, Time().timing())


def test_one_that_has_ended_says_how(run):
    run.end()
    with pytest.raises(UsageError, match=r"no process works on .* process .* has ended \(stopped, it was enough\)"):
        stop(run)
    assert run.store.list("commands/") == []


def test_a_killed_one_on_this_machine_is_known_at_once(run):
    time = run.sender()
    time.now_s += 2.5 * LEASE_S
    with pytest.raises(UsageError, match="gives no sign of life, and was probably killed"):
        find_living_owner(run.store, time.timing())
    assert time.waits == 0


def test_one_elsewhere_is_watched_for_two_leases():
    run = Running(NoLocks(), elsewhere=True)
    time = run.sender()
    time.now_s += 1000.0
    news: list[str] = []
    with pytest.raises(UsageError, match=r"process 7 on far.* gives no sign of life"):
        find_living_owner(run.store, time.timing(), news.append)
    assert time.waits * BEAT_S == 2 * LEASE_S
    assert news[0].startswith("looking for 18 s whether process 7 on far")


def test_one_elsewhere_whose_clock_is_wrong_is_found_alive():
    run = Running(NoLocks(), elsewhere=True)
    time = run.sender(nothing, run.beat, run.beat)
    time.now_s += 1000.0
    assert find_living_owner(run.store, time.timing()).owner.host == "far"


def test_a_start_that_has_claimed_and_not_yet_beaten_is_waited_for(run):
    beat = read_beat(run.store)
    assert beat is not None
    other = Owner("t", "m", "p", "far", 7, "now")
    claim = encode_record("claim", {"term": 2, "token": "t", "owner": other.to_json()})
    run.store.create("terms/00000002.claim", [claim])
    new = dataclasses.replace(beat, owner=other, term=2, at_s=1e9 + BEAT_S)
    time = run.sender(lambda: write_beat(run.store, new))
    assert find_living_owner(run.store, time.timing()).term == 2


def test_a_claim_that_names_nobody_does_not_hide_the_owner(run):
    run.store.create("terms/00000002.claim", [encode_record("claim", {"term": 2, "token": "t"})])
    assert find_living_owner(run.store, run.sender().timing()).term == 1


# ------------------------------------------------------------------------------------------- the owner goes meanwhile
def test_an_owner_that_ends_first_is_not_waited_for(run):
    with pytest.raises(UsageError, match=r"stop was not answered: the run has ended: .*\(converged, it was enough\)"):
        stop(run, nothing, lambda: run.end("converged"))
    assert run.store.list("commands/") == []


def test_an_answer_that_comes_just_before_the_end_counts(run):
    def answer_and_end() -> None:
        run.inbox.close("converged")
        run.end()

    assert stop(run, nothing, answer_and_end).outcome == "the run has ended before it read this: converged"


def test_an_owner_that_is_killed_is_not_waited_for(run):
    time = run.sender()
    delivery = Delivery.post(run.store, "drain", {"node": "server-1"}, time.timing())
    with pytest.raises(UsageError, match=r"this drain was not answered: .* probably killed"):
        delivery.answer(600.0)
    assert time.now_s == pytest.approx(2 * LEASE_S, abs=1.0)
    assert run.store.list("commands/") == []


def test_another_start_that_takes_over_is_told(run):
    beat = read_beat(run.store)
    assert beat is not None
    new = dataclasses.replace(beat, owner=dataclasses.replace(beat.owner, token="another", host="near"), term=2)
    with pytest.raises(RunInUseError, match=r"on near, .* has taken the run over"):
        stop(run, nothing, lambda: write_beat(run.store, new))


def test_a_store_that_is_away_is_an_error_and_the_command_stays():
    store = FaultyStore(NoLocks())
    run = Running(store)
    with pytest.raises(StoreError, match="the store is away"):
        stop(run, lambda: store.fail_nth("size", 1, "the store is away"))
    assert len(store.inner.list("commands/")) == 1

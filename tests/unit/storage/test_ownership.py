"""Ownership: who may work on a run, how a start finds out, and how an owner learns that it is none any more."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

import pytest
from tests.unit.storage.test_segment_reader import ALL, blocks, segment

from scarml.errors import RunInUseError, StoreError, SupersededError
from scarml.storage.faulty import FaultyStore
from scarml.storage.memory import MemoryStore
from scarml.storage.owner import OWNER_OBJECT, Beat, Owner, Reading, owner_is_alive, read_beat, write_beat
from scarml.storage.ownership import Ownership, Timing
from scarml.storage.record import encode_record
from scarml.storage.run_folder import RunFolder
from scarml.storage.terms import Terms

LEASE_S = 9.0
BEAT_S = 3.0


class NoLocks(MemoryStore):
    """As an object store: the lease decides."""

    def lock(self, name, note=""):
        raise StoreError(f"cannot lock {name}: this store has no locks")


class Time:
    """A clock that moves when somebody waits; each wait also does the next thing of a script."""

    def __init__(self, *script: Callable[[], object]) -> None:
        self.now_s = 0.0
        self.waits = 0
        self._script = list(script)

    def timing(self) -> Timing:
        return Timing(LEASE_S, lambda: self.now_s, lambda: 1e9 + self.now_s, self._wait, in_background=False)

    def _wait(self, event: threading.Event, seconds: float) -> bool:
        self.now_s += seconds
        self.waits += 1
        if self._script:
            self._script.pop(0)()
        return event.is_set()


def acquire(store, time: Time | None = None, **more) -> Ownership:
    return Ownership.acquire(store, Terms(store), (time or Time()).timing(), **more)


def started(store) -> Ownership:
    owner = acquire(store)
    owner.claim("new")
    return owner


def elsewhere(owner: Ownership) -> None:
    """Make an owner a process of another machine."""
    owner.me = dataclasses.replace(owner.me, machine="another", process="another", host="far", pid=42)


def silent(n: int, mark: object = 0, step_s: float = BEAT_S) -> list[Reading]:
    return [Reading(mark, i * step_s) for i in range(n)]


# --------------------------------------------------------------------------------------------------------- the decision
@pytest.mark.parametrize(
    ("readings", "alive"),
    [
        ([], None),
        (silent(1), None),
        (silent(6), None),
        (silent(7), False),
        ([Reading(1, 0), Reading(2, 3)], None),
        ([Reading(1, 0), Reading(2, 3), Reading(3, 6)], True),
        ([Reading(1, 0), Reading(1, 3), Reading(2, 6), Reading(2, 9), Reading(3, 12)], True),
        ([Reading(1, -3), *silent(6, 2)], None),  # one move may be a dead owner's last request, carried out late
        ([Reading(1, -3), *silent(7, 2)], False),
        (silent(3, step_s=1000), None),  # the watcher was suspended itself: that is no silence
        (silent(50, step_s=0.01), None),
    ],
)
def test_moves_are_life_and_silence_over_two_leases_is_death(readings, alive):
    assert owner_is_alive(readings, LEASE_S) is alive


# ----------------------------------------------------------------------------------------------------------- with locks
def test_a_held_lock_is_an_owner_at_once():
    store, time = MemoryStore(), Time()
    started(store)
    with pytest.raises(RunInUseError, match=r"MemoryStore.* is in use by process \d+ on .*, since .* UTC; wait for"):
        acquire(store, time)
    assert time.waits == 0


def test_a_free_lock_on_the_same_machine_is_a_dead_owner_at_once():
    store, time = MemoryStore(), Time()
    started(store)
    store._held.clear()  # the process was killed
    assert acquire(store, time).claim("parent") == 2
    assert time.waits == 0


def test_behind_a_free_lock_an_owner_on_another_machine_is_watched():
    store = MemoryStore()
    first = acquire(store)
    elsewhere(first)
    first.claim("new")
    store._held.clear()  # a file system whose locks do not reach other machines
    time = Time(first.beat, first.beat)
    with pytest.raises(RunInUseError, match=r"process 42 on far"):
        acquire(store, time)
    assert not store._held
    assert time.waits == 2
    time = Time()
    assert acquire(store, time).claim("parent") == 2
    assert time.now_s == 2 * LEASE_S


def test_a_claim_that_names_no_owner_is_decided_by_the_lock():
    for store, waits in ((MemoryStore(), 0), (NoLocks(), 6)):
        time = Time()
        Terms(store).claim("new")
        assert acquire(store, time).claim("parent") == 2
        assert time.waits == waits


def test_a_lock_that_reaches_this_process_says_nothing_of_others():
    store = MemoryStore()
    first = acquire(store)
    first.me = dataclasses.replace(first.me, process="another")
    first.claim("new")
    store._held.clear()
    with pytest.raises(RunInUseError):
        acquire(store, Time(first.beat, first.beat))
    store.lock_reach = "machine"
    assert acquire(store, Time()).claim("parent") == 2


# -------------------------------------------------------------------------------------------------------- without locks
def test_a_living_owner_is_seen_by_its_beats_and_named(caplog):
    store = NoLocks()
    first = started(store)
    before = store.list()
    time = Time(first.beat, lambda: None, first.beat)
    with pytest.raises(RunInUseError, match=rf"is in use by process {first.me.pid} on "):
        acquire(store, time)
    assert time.now_s < 2 * LEASE_S
    assert store.list() == before
    assert "looking for 18 s whether it is alive" in caplog.text
    first.check()


def test_a_killed_owner_is_waited_for_and_then_succeeded():
    store, time = NoLocks(), Time()
    started(store)
    assert acquire(store, time).claim("parent") == 2
    assert time.now_s == 2 * LEASE_S


def test_an_owner_that_ends_is_not_waited_for():
    store, time = NoLocks(), Time()
    started(store).release()
    second = acquire(store, time)
    assert second.claim("parent") == 2
    assert time.waits == 0
    time = Time(second.beat, second.release)  # ends while it is being watched
    assert acquire(store, time).claim("parent") == 3
    assert time.waits == 2


def test_an_owner_killed_between_its_claim_and_its_first_beat_is_waited_for():
    store = NoLocks()
    started(store).release()
    Terms(store).claim("parent", owner=Owner.this_process())
    time = Time()
    assert acquire(store, time).claim("parent") == 3
    assert time.now_s == 2 * LEASE_S


def test_of_two_that_find_no_owner_one_wins_and_the_other_writes_nothing():
    store = NoLocks()
    started(store).release()
    one, other = acquire(store), acquire(store)
    assert one.claim("parent") == 2
    before = {name: store.get(name) for name in store.list()}
    with pytest.raises(RunInUseError, match="another process claimed term 2"):
        other.claim("parent")
    other.release()
    assert {name: store.get(name) for name in store.list()} == before
    one.check()
    one.beat()


def test_a_start_that_comes_between_the_winners_claim_and_its_first_beat_does_not_overtake_it():
    store = FaultyStore(NoLocks())
    started(store).release()
    first = acquire(store)
    store.fail_nth("put", 1, "the beat is late")
    first.claim("parent")
    with pytest.raises(RunInUseError):
        acquire(store, Time(first.beat, first.beat))
    first.check()


# ------------------------------------------------------------------------------------------------------- losing the run
def test_an_owner_that_was_taken_over_stops_and_leaves_the_new_one_alone():
    store = NoLocks()
    old = started(store)
    new = acquire(store)
    new.claim("parent")
    theirs = store.get(OWNER_OBJECT)
    for _ in range(2):
        with pytest.raises(SupersededError, match="term 1 of this run was superseded by term 2"):
            old.beat()
    with pytest.raises(SupersededError):
        old.check()
    old.release()
    assert store.get(OWNER_OBJECT) == theirs
    new.beat()


def test_an_owner_that_wakes_up_late_does_not_disturb_the_new_one():
    store = NoLocks()
    old = started(store)
    new = acquire(store)
    new.claim("parent")
    write_beat(store, Beat(old.me, 1, 99, 0.0, False))  # its put was under way
    new.beat()
    last = read_beat(store)
    assert last is not None
    assert last.owner == new.me


def test_an_owner_object_of_somebody_else_with_no_older_term_ends_an_owner():
    store = NoLocks()
    owner = started(store)
    write_beat(store, Beat(dataclasses.replace(Owner.this_process(), host="far"), 1, 5, 0.0, False))
    with pytest.raises(SupersededError, match=r"owner is now process \d+ on far"):
        owner.beat()


@pytest.mark.parametrize(
    "data", [b"", b"[]", encode_record("owner", {"owner": {"pid": "1"}}), encode_record("owner", {})]
)
def test_a_damaged_owner_object_is_none(data):
    store = NoLocks()
    owner = started(store)
    store.put(OWNER_OBJECT, [data])
    assert read_beat(store) is None
    owner.beat()
    assert read_beat(store) is not None


def test_a_failing_store_stops_writes_after_a_lease_and_a_beat_brings_them_back():
    store, time = FaultyStore(NoLocks()), Time()
    owner = acquire(store, time)
    owner.claim("new")
    store.fail_until_healed("connection lost")
    time.now_s = LEASE_S
    owner.check()
    time.now_s += 1
    with pytest.raises(StoreError, match="connection lost"):
        owner.check()
    store.heal()
    owner.check()
    store.fail_until_healed("connection lost")
    owner.check()  # for another lease


def test_after_a_failing_store_an_owner_finds_that_it_was_taken_over():
    store, time = NoLocks(), Time()
    owner = acquire(store, time)
    owner.claim("new")
    acquire(store).claim("parent")
    owner.check()  # the lease is not over: only a look at the terms would tell
    time.now_s = LEASE_S + 1
    with pytest.raises(SupersededError):
        owner.check()


def test_a_claim_counts_as_a_beat_though_the_first_beat_fails():
    store = FaultyStore(NoLocks())
    owner = acquire(store)
    store.fail_nth("put", 1, "slow down")
    assert owner.claim("new") == 1
    owner.check()
    assert read_beat(store) is None
    owner.beat()


def test_a_new_term_within_a_run_is_no_successor():
    store = FaultyStore(NoLocks())
    owner = started(store)
    assert owner.claim("new", after=1) == 2
    owner.beat()
    store.fail_nth("create", 2, "slow down")  # the claim is made, its base is not
    with pytest.raises(StoreError):
        owner.claim("new", after=2)
    owner.beat()
    assert owner.claim("new", after=2) == 4
    owner.release()
    assert acquire(store).claim("parent") == 5


def test_release_notes_the_end_if_it_can():
    for fault in (None, "connection lost"):
        store = FaultyStore(NoLocks())
        owner = started(store)
        if fault:
            store.fail_until_healed(fault)
        owner.release()
        owner.release()
        store.heal()
        last = read_beat(store)
        assert last is not None
        assert last.ended == (fault is None)
        with pytest.raises(SupersededError, match="let go"):
            owner.check()
        with pytest.raises(SupersededError, match="let go"):
            owner.claim("parent")


# ----------------------------------------------------------------------------------------------------------- the thread
def test_the_thread_beats_over_failures_until_the_run_is_lost():
    store, lost = FaultyStore(NoLocks()), []
    successor: list[Ownership] = []

    def take_over() -> None:
        successor.append(acquire(store))
        successor[0].claim("parent")

    counters = []
    time = Time(
        lambda: store.fail_nth("put", 1, "slow down"),
        lambda: counters.append(read_beat(store).counter),
        lambda: counters.append(read_beat(store).counter),
        take_over,
    )
    owner = acquire(store, time, on_lost=lost.append)
    owner.claim("new")
    owner.keep_beating()
    assert counters == [1, 3]
    assert [cause[:22] for cause in lost] == ["term 1 of this run was"]


def test_the_thread_ends_with_the_ownership():
    owner = Ownership.acquire(MemoryStore(), Terms(MemoryStore()))
    owner.claim("new")
    assert [t.daemon for t in threading.enumerate() if t.name == "scar-owner"] == [True]
    owner.release()
    assert not [t for t in threading.enumerate() if t.name == "scar-owner"]


# ----------------------------------------------------------------------------------------------------------- the folder
def test_a_folder_writes_only_while_it_is_owned():
    store, time = FaultyStore(NoLocks()), Time()
    run = RunFolder.create(store, {})
    with run.owned(timing=time.timing()):
        term = run.claim_term("new")
        run.write_segment(segment(blocks(ALL, 1), term=term, commit=1))
        time.now_s = LEASE_S + 1
        store.fail_nth("put", 2, "slow down")  # the segment can be stored, the beat cannot
        with pytest.raises(StoreError, match=r"cannot put owner.json: slow down"):
            run.write_segment(segment(blocks(ALL, 2), term=term, commit=2))
        run.write_segment(segment(blocks(ALL, 2), term=term, commit=2))
    with pytest.raises(SupersededError):
        run.check_term(term)
    with run.owned():
        assert run.claim_term("parent") == 2
        run.check_term(2)

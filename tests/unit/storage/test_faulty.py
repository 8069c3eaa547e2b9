"""The faulty store: faults strike as told, once each, and are counted."""

from __future__ import annotations

import numpy as np
import pytest

from scarml.errors import DamagedError, NotFoundError, StoreError
from scarml.storage.faulty import FaultyStore
from scarml.storage.memory import MemoryStore


@pytest.fixture
def store():
    store = FaultyStore(MemoryStore())
    store.put("a", [b"hello"])
    return store


def test_the_nth_call_fails_once(store):
    store.fail_nth("get", 2, "the server is away")
    assert store.get("a") == b"hello"
    with pytest.raises(StoreError, match="cannot get a: the server is away"):
        store.get("a")
    assert store.get("a") == b"hello"
    assert store.fired == {"get": 1}


def test_a_call_may_do_its_work_and_then_say_that_it_failed(store):
    for operation, call in [
        ("put", lambda: store.put("a", [b"new"])),
        ("create", lambda: store.create("b", [b"new"])),
        ("delete", lambda: store.delete("c")),
    ]:
        store.put("c", [b"x"])
        store.fail_nth(operation, 1, "the answer was lost", "after")
        with pytest.raises(StoreError, match="the answer was lost"):
            call()
    assert store.get("a") == store.get("b") == b"new"
    with pytest.raises(NotFoundError):
        store.get("c")


def test_an_outage_lasts_until_it_is_healed(store):
    store.fail_until_healed("the disk is full")
    for call in (store.list, store.sweep, lambda: store.size("a"), lambda: store.lock("l")):
        with pytest.raises(StoreError, match="the disk is full"):
            call()
    store.heal()
    assert store.list() == ["a"]
    assert store.fired == {"list": 1, "sweep": 1, "size": 1, "lock": 1}


def test_random_faults_come_from_the_seed(store):
    def strikes(seed: int) -> list[bool]:
        store.fail_randomly(np.random.default_rng(seed), 0.5, "flaky")
        return [_fails(lambda: store.get("a")) for _ in range(50)]

    assert strikes(1) == strikes(1)
    assert strikes(1) != strikes(2)


def _fails(call) -> bool:
    try:
        call()
    except StoreError:
        return True
    return False


def test_truncated_reads_and_delays_are_counted(store):
    told: list[float] = []
    store.slow_down(2.0, told.append)
    store.truncate_nth_read(2)
    assert store.get("a") == b"hello"
    with pytest.raises(DamagedError):
        store.get_range("a", 0, 1)
    assert told == [2.0, 2.0]
    assert store.fired == {"delay": 2, "truncated": 1}

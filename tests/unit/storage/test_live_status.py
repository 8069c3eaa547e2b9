"""``status.json``: up to date at little cost, and read with care."""

from __future__ import annotations

import dataclasses
import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.storage.test_run_folder import new_run

from scarml.errors import DamagedError
from scarml.storage.faulty import FaultyStore
from scarml.storage.live_status import STATUS_OBJECT, LiveStatus, NodeStatus, SavesStatus, Status, read_status
from scarml.storage.local import LocalStore
from scarml.storage.memory import MemoryStore
from scarml.storage.record import encode_record
from scarml.storage.verification import verify

FULL = Status(
    iteration=7,
    executed=9,
    loss={"loss_sum": 6812.5, "loss_mean": 0.5},
    metrics={"rmse": 0.75},
    metrics_iteration=6,
    activity="training",
    nodes=(NodeStatus("server-0", "server", pid=42, host="far"), NodeStatus("worker-0", "worker", alive=False)),
    saves=SavesStatus(3, 4096, 6, 1, 4, "the disk is full"),
)


class Driver:
    """A start of a run, with a clock of its own and a background that runs when it is told."""

    def __init__(self, store=None) -> None:
        self.store = store if store is not None else FaultyStore(MemoryStore())
        self.folder = new_run(self.store)
        self.folder.claim_term("new")
        self.now_s = 0.0
        self.tasks: list = []
        self.live = LiveStatus(self.folder, self.tasks.append, lambda: self.now_s, lambda: 1e9 + self.now_s)

    def run_tasks(self) -> int:
        tasks, self.tasks[:] = list(self.tasks), []
        for task in tasks:
            task()
        return len(tasks)

    def iteration(self) -> int | None:
        status = read_status(self.store)
        return status.iteration if status is not None else None


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_it_is_read_as_it_was_published_with_term_and_time(kind, tmp_path):
    driver = Driver(MemoryStore() if kind == "memory" else LocalStore(str(tmp_path / "run")))
    assert driver.iteration() is None
    driver.now_s = 5.0
    driver.live.publish(FULL)
    assert driver.run_tasks() == 1
    assert read_status(driver.store) == dataclasses.replace(FULL, term=1, updated_unix_s=1e9 + 5.0)
    assert not [f for f in verify(driver.store).notes if f.name == STATUS_OBJECT]


def test_publishing_does_not_touch_the_store():
    driver = Driver()
    driver.store.fail_until_healed("the store is away")
    driver.live.publish(FULL)
    assert not driver.store.fired


def test_it_is_written_every_two_seconds_at_most_and_the_newest_value():
    driver = Driver()
    for i in range(100):
        driver.now_s = 0.1 * i
        driver.live.publish(Status(iteration=i))
        driver.run_tasks()
        assert driver.iteration() == i // 20 * 20
    driver.live.close()
    assert driver.iteration() == 99


def test_a_slow_store_has_one_write_at_a_time():
    driver = Driver()
    for i in range(100):
        driver.now_s = 10.0 * i
        driver.live.publish(Status(iteration=i))
    assert driver.run_tasks() == 1
    assert driver.iteration() == 99


def test_nothing_is_written_when_nothing_changed():
    driver = Driver()
    driver.live.publish(FULL)
    driver.run_tasks()
    driver.now_s = 100.0
    driver.live.publish(dataclasses.replace(FULL))
    driver.live.close()
    assert driver.run_tasks() == 0


def test_a_failure_is_made_up_for_later():
    driver = Driver()
    driver.store.fail_until_healed("the store is away")
    driver.live.publish(Status(iteration=1))
    driver.run_tasks()
    assert driver.store.fired
    driver.live.close()
    driver.store.heal()
    assert driver.iteration() is None
    driver.now_s = 2.0
    driver.live.publish(Status(iteration=1))
    driver.run_tasks()
    assert driver.iteration() == 1


def test_a_process_that_was_superseded_does_not_speak_for_the_new_one():
    driver = Driver()
    driver.live.publish(Status(iteration=1))
    driver.run_tasks()
    new_owner = type(driver.folder).open(driver.store)
    new_owner.claim_term("parent")
    driver.now_s = 10.0
    driver.live.publish(Status(iteration=2))
    driver.live.close()
    assert driver.iteration() == 1


def test_a_loss_that_is_not_finite_is_null():
    driver = Driver()
    driver.live.publish(Status(loss={"loss_sum": math.inf}))
    driver.run_tasks()
    assert b'"loss_sum": null' in driver.store.get(STATUS_OBJECT)
    status = read_status(driver.store)
    assert status is not None
    assert math.isnan(status.loss["loss_sum"])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("iteration", -1),
        ("iteration", True),
        ("iteration", 1 << 63),
        ("executed", None),
        ("loss", {"loss_sum": "small"}),
        ("loss", {"loss_sum": 10**400}),
        ("loss", 3),
        ("activity", 3),
        ("nodes", 3),
        ("nodes", "abc"),
        ("nodes", [{"name": "server-0"}]),
        ("saves", []),
        ("saves", {"n": 1}),
        ("updated_unix_s", math.nan),
    ],
)
def test_what_makes_no_sense_is_damaged(key, value):
    store = MemoryStore()
    store.put(STATUS_OBJECT, [encode_record("status", {**FULL.to_json(), key: value})])
    with pytest.raises(DamagedError, match=r"status\.json cannot be understood"):
        read_status(store)


def test_text_cannot_control_a_terminal():
    store = MemoryStore()
    store.put(STATUS_OBJECT, [encode_record("status", {**FULL.to_json(), "activity": "a\x1b[2Jb\nc"})])
    status = read_status(store)
    assert status is not None
    assert status.activity == "a [2Jb c"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.binary(max_size=200)
    | st.dictionaries(st.sampled_from(sorted(FULL.to_json())), JSON, max_size=3).map(
        lambda more: encode_record("status", {**FULL.to_json(), **more})
    )
)
def test_hostile_bytes_are_damage_or_a_status(data):
    store = MemoryStore()
    store.put(STATUS_OBJECT, [data])
    with suppress(DamagedError):
        assert isinstance(read_status(store), Status)

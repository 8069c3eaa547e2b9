"""A store that fails: training goes on, what was committed is untouched, the user hears of it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from tests.unit.running_checkpoint.loops import bits, copy_of

import scarml as scar
from scarml.control import checkpoint_coordinator
from scarml.errors import DamagedError, StoreError
from scarml.storage.faulty import FaultyStore
from scarml.storage.memory import MemoryStore

ALL = {"fraction": 1, "interval": 1, "resume": "auto"}


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_coordinator, "FIRST_RETRY_S", 0.001)


@pytest.fixture
def inner() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def store(inner: MemoryStore) -> FaultyStore:
    return FaultyStore(inner)


def test_one_failure_is_made_up_for(store: FaultyStore, inner: MemoryStore) -> None:
    W = np.zeros((8, 2))
    with scar.RunningCheckpoint(store, {"W": W}, **ALL) as ckpt:
        ckpt.restore()
        W += 1
        store.fail_nth("put", 1, "the disk is busy")
        ckpt.save(1)
        W += 1  # after staging: must not be in it
        ckpt.wait()
        assert store.fired["put"] == 1
        assert (scar.load(copy_of(inner))["W"]["value"] == 1).all()
        with pytest.warns(RuntimeWarning, match="the store refuses a save, which is tried again: .* the disk is busy"):
            ckpt.save(2)
        ckpt.wait()
        status = ckpt.status()
        assert (status.n_failed, status.last_error, status.durable_iteration) == (0, None, 2)


def test_a_store_that_is_down_does_not_stop_training_and_heals(store: FaultyStore, inner: MemoryStore) -> None:
    W = np.zeros((8, 2))
    with scar.RunningCheckpoint(store, {"W": W}, **ALL, on_event=(records := []).append) as ckpt:
        ckpt.restore()
        W[:4] = 1
        ckpt.save(1)
        ckpt.wait()
        committed = scar.load(copy_of(inner))["W"]["value"]
        store.fail_until_healed("the disk is full")
        W[4:] = 2
        ckpt.save(2)
        ckpt.wait()  # six attempts
        assert store.fired["put"] == 6
        status = ckpt.status()
        assert (status.n_failed, status.durable_iteration, status.oldest_age) == (1, 1, 2)
        assert status.last_error is not None
        assert "the disk is full" in status.last_error
        with pytest.warns(RuntimeWarning) as told:
            ckpt.save(3)
        assert "a save was given up: cannot put" in str(told[-1].message)
        assert "what is stored is of iteration 1, at the oldest 3 iterations behind x(3); training goes on" in str(
            told[-1].message
        )
        assert bits(scar.load(copy_of(inner))["W"]["value"]) == bits(committed)
        store.heal()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the failure of the save at 3 may have come before
            ckpt.wait()
            report = ckpt.save(4)
            ckpt.wait()
            assert ckpt.status().durable_iteration in (3, 4)
            assert report.n_blocks in (0, 4)
        assert bits(scar.load(copy_of(inner))["W"]["value"]) == bits(W)
    names = [r.name for r in records]
    assert names.count("save_given_up") >= 1
    assert names[0] == "run_started"
    assert names[-1] == "run_finished"
    assert all(r.t_s >= 0 for r in records)


def test_on_error_raise(store: FaultyStore) -> None:
    W = np.zeros((8, 2))
    with scar.RunningCheckpoint(store, {"W": W}, **ALL, on_error="raise") as ckpt:
        ckpt.restore()
        store.fail_until_healed("the disk is full")
        W += 1
        ckpt.save(1)
        ckpt.wait()
        with pytest.raises(StoreError, match=r"a save was given up: .* the disk is full"):
            ckpt.save(2)
        with pytest.raises(StoreError, match=r"the state at iteration 3 could not be saved whole: .* from iteration 0"):
            ckpt.save(3, everything=True)
        store.heal()
        W += 1
        assert ckpt.save(4, everything=True).n_blocks == 8


def test_the_last_save_fails(store: FaultyStore) -> None:
    def end_in_an_outage(**settings: Any) -> None:
        W = np.zeros((8, 2))
        with scar.RunningCheckpoint(store, {"W": W}, resume="auto", **settings) as ckpt:
            ckpt.restore()
            W += 1
            ckpt.save(1)
            ckpt.wait()
            store.fail_until_healed("the disk is full")

    with pytest.warns(RuntimeWarning, match="the last values could not be saved: .* the disk is full"):
        end_in_an_outage()
    store.heal()
    with pytest.raises(StoreError, match="the last values could not be saved"):
        end_in_an_outage(on_error="raise")


class _Forbidden(MemoryStore):
    """Takes no segments while it is told to."""

    forbids = True

    def put(self, name: str, chunks: Any) -> None:
        if self.forbids and name.startswith("segments/"):
            raise StoreError(f"cannot put {name}: permission denied")
        super().put(name, chunks)


def test_x0_must_be_stored() -> None:
    store = _Forbidden()

    def begin() -> None:
        with scar.RunningCheckpoint(store, {"W": np.zeros(4)}, resume="auto") as ckpt:
            ckpt.restore()

    with pytest.raises(StoreError, match=r"x\(0\) could not be saved, so training cannot begin: .* permission denied"):
        begin()
    store.forbids = False
    with scar.RunningCheckpoint(store, {"W": np.zeros(4)}, resume="auto") as ckpt:
        assert ckpt.restore() == 0


def test_a_store_that_cannot_be_read_changes_nothing(store: FaultyStore) -> None:
    W, extra = np.zeros(4), {"k": 0}
    with scar.RunningCheckpoint(store, {"W": W}, **ALL) as ckpt:
        ckpt.restore(extra=extra)
        W += 1
        ckpt.save(1, extra={"k": 1})
    W[:] = 7
    with scar.RunningCheckpoint(store, {"W": W}, **ALL) as ckpt:
        store.fail_nth("read_into", 2, "the network is down")
        with pytest.raises(StoreError, match="the network is down"):
            ckpt.restore(extra=extra)
        assert (W == 7).all()
        assert extra == {"k": 0}
        assert ckpt.restore(extra=extra) == 1
        store.fail_nth("read_into", 1, "the network is down")
        W[2] = -1
        with pytest.raises(StoreError, match="the network is down"):
            ckpt.recover({"W": [2]})
        assert W.tolist() == [1, 1, -1, 1]


def test_a_damaged_copy_gives_way_to_an_older_one(inner: MemoryStore) -> None:
    W = np.zeros((4, 8))
    with scar.RunningCheckpoint(inner, {"W": W}, **ALL) as ckpt:
        ckpt.restore()
        for k in (1, 2):
            W += 1
            ckpt.save(k)
            ckpt.wait()
        dead = copy_of(inner)
    newest = dead.list("segments/")[-1]
    data = bytearray(dead._objects[newest])
    data[data.index(np.float64(2).tobytes() * 8)] ^= 1
    dead._objects[newest] = bytes(data)
    with scar.RunningCheckpoint(dead, {"W": W}, **ALL, on_event=(records := []).append) as ckpt:
        ckpt.restore()
        found = ckpt.last_restore
    assert found is not None
    assert sorted(W[:, 0]) == [1, 2, 2, 2]
    assert (found.oldest, found.newest) == (1, 2)
    assert len(found.damaged) == 1
    assert newest in found.damaged[0]
    assert "the checksum of block" in found.damaged[0]
    assert [r["detail"] for r in records if r.name == "copy_damaged"] == list(found.damaged)


def test_a_run_of_which_nothing_can_be_read_is_not_begun_anew(inner: MemoryStore) -> None:
    W = np.zeros(4)
    with scar.RunningCheckpoint(inner, {"W": W}, **ALL) as ckpt:
        ckpt.restore()
    for name in inner.list("segments/"):
        inner._objects[name] = inner._objects[name][:-1]

    def resume() -> None:
        with scar.RunningCheckpoint(inner, {"W": W}, **ALL) as ckpt:
            ckpt.restore()

    with pytest.raises(DamagedError, match="nothing that this run has saved can be read; it is not begun anew: seg"):
        resume()
    assert len(inner.list("segments/")) == 1


def test_complete_full_saves_are_recorded_although_the_record_fails_at_first(store: FaultyStore) -> None:
    W = np.zeros(4)
    with scar.RunningCheckpoint(store, {"W": W}, policy="full", interval=1, resume="auto") as ckpt:
        ckpt.restore()
        W += 1
        store.fail_nth("put", 2, "the disk is busy")  # the first is the segment
        ckpt.save(1)
        ckpt.wait()
        assert len(store.inner.list("units/")) == 2
        with pytest.warns(RuntimeWarning, match="the disk is busy"):
            ckpt.save(1)


def test_a_hook_that_fails_harms_nobody(store: FaultyStore, caplog: pytest.LogCaptureFixture) -> None:
    def hook(_: Any) -> None:
        raise DamagedError("the user's own")

    W = np.zeros(4)
    with scar.RunningCheckpoint(store, {"W": W}, **ALL, on_event=hook) as ckpt:
        ckpt.restore()
        W += 1
        ckpt.save(1)
    assert "on_event failed at save_committed" in caplog.text
    assert (scar.load(store)["W"]["value"] == 1).all()

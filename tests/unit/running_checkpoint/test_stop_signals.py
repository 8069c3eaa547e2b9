"""A signal: the next save saves everything, and says so."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from tests.unit.running_checkpoint.loops import Sgd, bits

import scarml as scar
from scarml.errors import StoppedError, StoreError
from scarml.storage.faulty import FaultyStore
from scarml.storage.memory import MemoryStore


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_loop_that_a_signal_stopped_goes_on_bit_identical(number: int) -> None:
    store, unbroken, loop, second = MemoryStore(), Sgd(), Sgd(), Sgd()
    for _ in range(20):
        unbroken.step()
    before = signal.getsignal(number)

    def run_until_stopped() -> None:
        with scar.RunningCheckpoint(store, loop.tables, resume="auto") as ckpt:
            ckpt.restore(extra=loop.state())
            for k in range(1, 21):
                loop.step()
                if k == 9:
                    os.kill(os.getpid(), number)
                ckpt.save(k, extra=loop.state())

    name = signal.Signals(number).name
    with pytest.raises(StoppedError, match=f"stopped by {name} with everything saved at iteration 9"):
        run_until_stopped()
    assert signal.getsignal(number) is before
    assert second.run(store, 20) == 9
    assert bits(second.W, second.m) == bits(unbroken.W, unbroken.m)


def test_a_second_signal_does_what_it_always_does() -> None:
    def press_twice() -> None:
        with scar.RunningCheckpoint(MemoryStore(), {"W": np.zeros(3)}) as ckpt:
            ckpt.restore()
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        press_twice()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_stop_that_cannot_be_saved_is_not_called_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scarml.control.checkpoint_coordinator.FIRST_RETRY_S", 0.001)
    store = FaultyStore(MemoryStore())

    def stop_in_an_outage() -> None:
        with scar.RunningCheckpoint(store, {"W": (W := np.zeros(3))}) as ckpt:
            ckpt.restore()
            W += 1
            store.fail_until_healed("the disk is full")
            os.kill(os.getpid(), signal.SIGTERM)
            ckpt.save(1)

    with pytest.raises(StoreError, match="SIGTERM came, but the state at iteration 1 could not be saved whole"):
        stop_in_an_outage()


@pytest.mark.parametrize("where", ["not wanted", "another thread"])
def test_signals_are_left_alone(where: str) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def begin() -> None:
        with scar.RunningCheckpoint(MemoryStore(), {"W": np.zeros(3)}, handle_signals=where != "not wanted") as ckpt:
            ckpt.restore()
            assert signal.getsignal(signal.SIGTERM) is before

    if where == "another thread":
        thread = threading.Thread(target=begin)
        thread.start()
        thread.join()
    else:
        begin()

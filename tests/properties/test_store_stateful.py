"""The local store on the simulated disk against a plain dict, with failures, kills and power losses among the moves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from scarml.errors import AlreadyExistsError, NotFoundError, StoreError
from scarml.storage.local import LocalStore
from scarml.storage.simulated_disk import SimulatedCrash, SimulatedDisk

NAMES = st.sampled_from(["a", "b", "f/a", "f/b", "f/g/a", "h/a"])
CONTENTS = st.binary(max_size=600)


class LocalStoreMachine(RuleBasedStateMachine):
    """Per name the contents that it may have; one, except after a call that did not return."""

    def __init__(self) -> None:
        super().__init__()
        self.may_be: dict[str, set[bytes | None]] = {}
        self.n_starts = 0

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.disk = SimulatedDisk(np.random.default_rng(seed))
        self.start()

    def start(self) -> None:
        self.n_starts += 1
        self.store = LocalStore("run", self.disk, token=f"start{self.n_starts}")

    def attempt(self, name: str, new: bytes | None, call: Callable[[], None]) -> bool:
        """A call that gives ``name`` the contents ``new``, if it returns; whether it did."""
        old = self.may_be.get(name, {None})
        try:
            call()
        except AlreadyExistsError:
            assert old != {None}
            self.may_be[name] = old - {None}
        except SimulatedCrash:
            self.may_be[name] = old | {new}
            self.disk.kill()
            self.start()
        except StoreError:
            self.may_be[name] = old | {new}
        else:
            self.may_be[name] = {new}
            return True
        return False

    @rule(name=NAMES, data=CONTENTS)
    def put(self, name: str, data: bytes) -> None:
        self.attempt(name, data, lambda: self.store.put(name, [data[:100], data[100:]]))

    @rule(name=NAMES, data=CONTENTS)
    def create(self, name: str, data: bytes) -> None:
        old = self.may_be.get(name, {None})
        if self.attempt(name, data, lambda: self.store.create(name, [data])):
            assert None in old

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.attempt(name, None, lambda: self.store.delete(name))

    @rule(n=st.integers(1, 12))
    def die_soon(self, n: int) -> None:
        self.disk.crash_at_op(n)

    @rule(n=st.integers(1, 3))
    def fail_soon(self, n: int) -> None:
        self.disk.fail_next(n, "the disk hiccups")

    @rule()
    def lose_power(self) -> None:
        self.disk.crash()
        self.start()

    @rule()
    def sweep(self) -> None:
        try:
            self.store.sweep()
        except SimulatedCrash:
            self.disk.kill()
            self.start()
        except StoreError:
            pass

    @invariant()
    def every_object_is_one_that_it_may_be(self) -> None:
        """Seen by another process, so that no fault that is to come strikes here."""
        if not hasattr(self, "disk"):
            return
        reader = LocalStore("run", self.disk.process(), token="reader")
        there = set(reader.list())
        for name, may_be in self.may_be.items():
            try:
                found = reader.get(name)
            except NotFoundError:
                found = None
            assert found in may_be
            assert (name in there) == (found is not None)
        assert there <= set(self.may_be)


TestLocalStoreOnSimulatedDisk = LocalStoreMachine.TestCase
TestLocalStoreOnSimulatedDisk.settings = settings(stateful_step_count=40)

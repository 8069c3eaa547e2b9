"""A store that fails on command: wraps another. Every fault that strikes is counted, so a test can see that it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from scarml.errors import DamagedError, StoreError
from scarml.storage.file_port import FileLock
from scarml.storage.store import Chunk, Store

__all__ = ["FaultyStore"]

When = Literal["before", "after"]


@dataclass(slots=True)
class _Scripted:
    operation: str
    countdown: int
    cause: str
    when: When


class FaultyStore:
    """Passes everything on to ``inner``, but for the faults that it was told.

    Operations are named as the methods of `Store`; ``any`` is each of them.

    Example:
        >>> from scarml.storage.memory import MemoryStore
        >>> store = FaultyStore(MemoryStore())
        >>> store.fail_nth("put", 1, "the disk is full")
        >>> store.put("a", [b"x"])
        Traceback (most recent call last):
        scarml.errors.StoreError: cannot put a: the disk is full
        >>> store.fired["put"]
        1
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.gap_bytes = inner.gap_bytes
        self.lock_reach = inner.lock_reach
        self.fired: Counter[str] = Counter()
        """How often a fault struck, by operation; ``delay`` and ``truncated`` beside."""
        self._scripted: list[_Scripted] = []
        self._outage: str | None = None
        self._random: tuple[np.random.Generator, float, str] | None = None
        self._delay: tuple[float, Callable[[float], None]] | None = None
        self._truncate_in = 0

    def fail_nth(self, operation: str, n: int, cause: str, when: When = "before") -> None:
        """The n-th call from now (1: the next) fails; ``after``: it does its work, and then says that it failed."""
        self._scripted.append(_Scripted(operation, n, cause, when))

    def fail_until_healed(self, cause: str) -> None:
        """Every call fails until `heal`."""
        self._outage = cause

    def fail_randomly(self, rng: np.random.Generator, probability: float, cause: str) -> None:
        """Every call fails with this probability, until `heal`."""
        self._random = (rng, probability, cause)

    def slow_down(self, delay_s: float, on_delay: Callable[[float], None]) -> None:
        """Every call tells ``on_delay`` how long it takes, until `heal`; nothing sleeps."""
        self._delay = (delay_s, on_delay)

    def truncate_nth_read(self, n: int) -> None:
        """The n-th read from now finds the object cut short."""
        self._truncate_in = n

    def heal(self) -> None:
        """No more faults."""
        self._scripted.clear()
        self._outage = self._random = self._delay = None
        self._truncate_in = 0

    def put(self, name: str, chunks: Iterable[Chunk]) -> None:
        late = self._meet("put", name)
        self.inner.put(name, chunks)
        self._fail_late(late)

    def create(self, name: str, chunks: Iterable[Chunk]) -> None:
        late = self._meet("create", name)
        self.inner.create(name, chunks)
        self._fail_late(late)

    def get(self, name: str) -> bytes:
        self._meet_read("get", name)
        return self.inner.get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self._meet_read("get_range", name)
        return self.inner.get_range(name, start, length)

    def read_into(self, name: str, start: int, out: memoryview) -> None:
        self._meet_read("read_into", name)
        self.inner.read_into(name, start, out)

    def size(self, name: str) -> int:
        self._meet("size", name)
        return self.inner.size(name)

    def list(self, prefix: str = "") -> list[str]:
        self._meet("list", prefix)
        return self.inner.list(prefix)

    def delete(self, name: str) -> None:
        late = self._meet("delete", name)
        self.inner.delete(name)
        self._fail_late(late)

    def lock(self, name: str, note: str = "") -> FileLock | None:
        self._meet("lock", name)
        return self.inner.lock(name, note)

    def sweep(self) -> int:
        self._meet("sweep", "")
        return self.inner.sweep()

    def _meet(self, operation: str, name: str) -> StoreError | None:
        """Raise the fault of this call, or return one to raise when its work is done."""
        if self._delay is not None:
            self.fired["delay"] += 1
            self._delay[1](self._delay[0])
        late = None
        for fault in [f for f in self._scripted if f.operation in (operation, "any")]:
            fault.countdown -= 1
            if fault.countdown == 0:
                self._scripted.remove(fault)
                error = self._fault(operation, name, fault.cause)
                if fault.when == "before":
                    raise error
                late = error
        if self._outage is not None:
            raise self._fault(operation, name, self._outage)
        if self._random is not None and self._random[0].random() < self._random[1]:
            raise self._fault(operation, name, self._random[2])
        return late

    def _meet_read(self, operation: str, name: str) -> None:
        self._meet(operation, name)
        if self._truncate_in:
            self._truncate_in -= 1
            if not self._truncate_in:
                self.fired["truncated"] += 1
                raise DamagedError(f"{name} ends early; it is torn or altered; an older copy must be used")

    def _fault(self, operation: str, name: str, cause: str) -> StoreError:
        self.fired[operation] += 1
        return StoreError(f"cannot {operation} {name}: {cause}")

    def _fail_late(self, late: StoreError | None) -> None:
        if late is not None:
            raise late

"""Owning a run: one process at a time works on it, and a dead one never blocks the next.

A start goes through these steps, in this order:

1. Look which term was claimed last, and who claimed it.
2. See that its owner is gone: it has let go; or a lock would have kept this process out, and was free; or it gives no
   sign of life over two leases of this process's own clock.
3. Claim exactly the next term. Of two starts that come this far only one can; the other has written nothing.
4. Beat: keep putting ``owner.json``, three times a lease.

Terms alone keep a run whole whatever two processes do; the lease keeps a start from taking the run from a living owner,
and a compactor from deleting what a new owner has just begun to read. An owner whose beats fail for a lease writes
nothing more until one succeeds and shows that nobody took over. One that was taken over stops.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from scarml.errors import RunInUseError, ScarError, StoreError, SupersededError
from scarml.storage.file_port import FileLock
from scarml.storage.owner import BEATS_A_LEASE, Beat, Owner, Reading, owner_is_alive, read_beat, write_beat
from scarml.storage.store import Store
from scarml.storage.terms import Base, Terms

__all__ = ["LOCK", "Ownership", "Timing"]

_log = logging.getLogger(__name__)

LOCK = "owner.lock"


@dataclass(frozen=True, slots=True)
class Timing:
    """How ownership takes its time.

    Args:
        lease_s: an owner that gives no sign of life for so long writes nothing; twice as long, and it is dead.
        clock_s: this process's clock.
        unix_s: seconds since 1970, for people.
        wait: waits for an event, or so many seconds; returns whether the event came.
        in_background: a thread beats. Else `Ownership.beat` must be called.
    """

    lease_s: float = 10.0
    clock_s: Callable[[], float] = time.monotonic
    unix_s: Callable[[], float] = time.time
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait
    in_background: bool = True

    @property
    def beat_s(self) -> float:
        """From one beat to the next."""
        return self.lease_s / BEATS_A_LEASE


class Ownership:
    """A run that this process owns. Made by `acquire`; what it holds is let go by `release`.

    Args:
        store: where the run is.
        terms: its terms.
        timing: of beats.
        seen_claim: the last claim when the run was found to have no owner.
        lock: held, where the store has locks.
        on_lost: told, once, why the run is no longer this process's; in the thread that beats.
    """

    def __init__(
        self,
        store: Store,
        terms: Terms,
        timing: Timing,
        seen_claim: int,
        lock: FileLock | None,
        on_lost: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.me = Owner.this_process()
        self._store = store
        self._terms = terms
        self._timing = timing
        self._seen_claim = seen_claim
        self._lock = lock
        self._on_lost = on_lost
        self._term = 0
        self._counter = 0
        self._beaten_at_s = 0.0
        self._lost: str | None = None
        self._is_over = threading.Event()
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None

    @classmethod
    def acquire(
        cls, store: Store, terms: Terms, timing: Timing | None = None, on_lost: Callable[[str], None] = lambda _: None
    ) -> Ownership:
        """Find that nobody owns the run. It is this process's once it has claimed a term.

        Raises:
            RunInUseError: a living process owns it.
        """
        timing = timing or Timing()
        lock = _take_lock(store)
        try:
            seen = _Watch(store, terms, timing, is_locked=lock is not None).until_free()
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return cls(store, terms, timing, seen, lock, on_lost)

    def claim(self, base: Base, after: int | None = None) -> int:
        """Claim the next term. See `scarml.storage.run_folder.RunFolder.claim_term`."""
        with self._mutex:  # a beat must not take our own new claim for somebody else's
            self._raise_if_lost()
            seen = self._seen_claim if after is None else None
            self._term = self._seen_claim = self._terms.claim(base, after, seen=seen, owner=self.me)
            self._beaten_at_s = self._timing.clock_s()
            try:
                self._put(ended=False)
            except StoreError as e:  # the claim itself is a sign of life
                _log.debug("the first beat failed: %s", e)
        if self._thread is None and self._timing.in_background:
            self._thread = threading.Thread(target=self.keep_beating, name="scar-owner", daemon=True)
            self._thread.start()
        return self._term

    def check(self) -> None:
        """See that the run is still this process's.

        Raises:
            SupersededError: another process has taken it over.
            StoreError: that cannot be known now; nothing may be written.
        """
        with self._mutex:
            self._raise_if_lost()
            if self._timing.clock_s() - self._beaten_at_s > self._timing.lease_s:
                self._beat()

    def beat(self) -> None:
        """Give a sign of life. Raises as `check`."""
        with self._mutex:
            self._raise_if_lost()
            self._beat()

    def keep_beating(self) -> None:
        """Beat until the run is let go or lost; what the thread does."""
        while not self._timing.wait(self._is_over, self._timing.beat_s):
            try:
                self.beat()
            except SupersededError as e:
                self._on_lost(str(e))
                return
            except StoreError as e:
                _log.debug("a beat failed: %s", e)

    def release(self) -> None:
        """Let the run go: the next start need not wait. Does nothing the second time."""
        self._is_over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with self._mutex:
            if self._term and self._lost is None:
                try:
                    self._find_successor()
                    self._put(ended=True)
                except ScarError as e:
                    _log.debug("the end of this owner could not be noted: %s", e)
            self._lost = self._lost or "the run was let go by this process"
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _raise_if_lost(self) -> None:
        if self._lost is not None:
            raise SupersededError(self._lost)

    def _beat(self) -> None:
        now_s = self._timing.clock_s()  # before anything is asked of the store: it may answer late
        try:
            self._find_successor()
        except SupersededError as e:
            self._lost = str(e)
            raise
        self._put(ended=False)
        self._beaten_at_s = now_s

    def _find_successor(self) -> None:
        """Raise SupersededError if somebody else has the run."""
        self._terms.check_owner(self._term, self.me)
        last = read_beat(self._store)
        if last is not None and last.owner.token != self.me.token and last.term >= self._term:
            raise SupersededError(
                f"the run's owner is now {last.owner}, though it has claimed no later term; was the folder copied or "
                "put back from a backup? This process must stop"
            )  # one of an earlier term is a process that woke up late: it will notice

    def _put(self, ended: bool) -> None:
        self._counter += 1
        write_beat(self._store, Beat(self.me, self._term, self._counter, round(self._timing.unix_s(), 3), ended))


def _take_lock(store: Store) -> FileLock | None:
    """The run's lock; None where the store has no locks."""
    try:
        lock = store.lock(LOCK, str(Owner.this_process()))
    except StoreError as e:
        _log.debug("no lock: %s", e)
        return None
    if lock is None:
        raise RunInUseError(f"{store} is in use by {_holder(store)}; wait for its end, or stop it")
    return lock


def _holder(store: Store) -> str:
    try:
        return store.get(LOCK).decode(errors="replace") or "another process"
    except StoreError:
        return "another process"


class _Watch:
    """Finds out whether a run has a living owner, without writing anything."""

    def __init__(self, store: Store, terms: Terms, timing: Timing, is_locked: bool) -> None:
        self._store = store
        self._terms = terms
        self._timing = timing
        self._is_locked = is_locked

    def until_free(self) -> int:
        """The last claim of a run without an owner; 0 if there is none. RunInUseError if there is an owner."""
        readings: list[Reading] = []
        while True:
            claim = self._terms.last_claim()
            owner = self._terms.claimed_by(claim) if claim else None
            beat = read_beat(self._store)
            if not claim or self._is_gone(owner, beat):
                return claim
            mark = (claim, beat and beat.owner.token, beat and beat.counter)
            readings.append(Reading(mark, self._timing.clock_s()))
            alive = owner_is_alive(readings, self._timing.lease_s)
            who = owner or (beat.owner if beat else "another process")
            if alive:
                raise RunInUseError(f"{self._store} is in use by {who}; wait for its end, or stop it")
            if alive is False:
                return claim
            if len(readings) == 1:
                _log.warning(
                    "%s was last used by %s; looking for %.0f s whether it is alive",
                    self._store,
                    who,
                    2 * self._timing.lease_s,
                )
            self._timing.wait(threading.Event(), self._timing.beat_s)

    def _is_gone(self, owner: Owner | None, beat: Beat | None) -> bool:
        """Whether the claimer of the last term is known to be gone, without watching it."""
        if owner is None:
            return self._is_locked  # it was made without owning the run, as tests do; let them keep to the lock
        if self._is_locked and owner.sees_our_locks(self._store.lock_reach):
            return True
        return beat is not None and beat.ended and beat.owner.token == owner.token

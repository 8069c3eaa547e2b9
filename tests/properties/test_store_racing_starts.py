"""Several starts on one run, on a simulated disk, one file operation at a time, in an order from a seed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from scarml.core.block import Field, Table
from scarml.errors import RunInUseError, StoreError, SupersededError
from scarml.storage.file_port import FileLock
from scarml.storage.local import LocalStore
from scarml.storage.ownership import Timing
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment import Segment, SegmentId
from scarml.storage.simulated_disk import SimulatedCrash, SimulatedDisk

TABLE = Table("W", 4, (Field("value", "int64"),))
LEASE_S = 9.0
N_BEATS = 30  # longer than anybody watches


class Turns:
    """Threads of which one runs at a time; who is next is drawn. Time passes only as they say."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.now_s = 0.0
        self._rng = rng
        self._wakes_at_s: dict[threading.Thread, float] = {}
        self._may_run = threading.Condition()
        self._running: threading.Thread | None = None

    def run(self, *tasks: Callable[[], None]) -> None:
        threads = [threading.Thread(target=self._whole, args=(task,), daemon=True) for task in tasks]
        self._wakes_at_s = dict.fromkeys(threads, 0.0)
        for thread in threads:
            thread.start()
        with self._may_run:
            while self._wakes_at_s:
                self.now_s = max(self.now_s, min(self._wakes_at_s.values()))
                ready = [t for t, at_s in self._wakes_at_s.items() if at_s <= self.now_s]
                self._running = ready[self._rng.integers(len(ready))]
                self._may_run.notify_all()
                assert self._may_run.wait_for(lambda: self._running is None, timeout=60)

    def pause(self, seconds: float) -> None:
        """Let others run; go on after so long at the earliest."""
        me = threading.current_thread()
        with self._may_run:
            if me not in self._wakes_at_s:
                return  # the test itself, before and after
            self._wakes_at_s[me] = self.now_s + seconds
            self._running = None
            self._may_run.notify_all()
            self._may_run.wait_for(lambda: self._running is me)

    def _whole(self, task: Callable[[], None]) -> None:
        me = threading.current_thread()
        with self._may_run:
            self._may_run.wait_for(lambda: self._running is me)
        try:
            task()
        finally:
            with self._may_run:
                del self._wakes_at_s[me]
                self._running = None
                self._may_run.notify_all()


class WithoutLocks(LocalStore):
    def lock(self, name: str, note: str = "") -> FileLock | None:
        raise StoreError("this store has no locks")


@dataclass
class Race:
    """What happened."""

    rng: np.random.Generator
    locks: bool
    turns: Turns = field(init=False)
    disk: SimulatedDisk = field(init=False)
    owned: list[tuple[int, float, float]] = field(default_factory=list)
    """Term, from when, until when."""
    refused: int = 0
    superseded: int = 0
    reported: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.turns, self.disk = Turns(self.rng), SimulatedDisk(self.rng)

    def folder(self, disk: SimulatedDisk | None = None) -> RunFolder:
        disk = disk or self.disk.process()
        disk.slow_down(0.01, self.turns.pause)
        token = f"{self.rng.integers(1 << 40)}"
        return RunFolder((LocalStore if self.locks else WithoutLocks)("/run", disk, token=token), {})

    def timing(self) -> Timing:
        def wait(event: threading.Event, seconds: float) -> bool:
            self.turns.pause(seconds)
            return event.is_set()

        return Timing(LEASE_S, lambda: self.turns.now_s, lambda: self.turns.now_s, wait, in_background=False)

    def start(self, crash_at_op: int = 0, n_beats: int = N_BEATS) -> None:
        """One process: takes the run, saves a few times, lets it go. May be killed on the way."""
        disk = self.disk.process()
        run = self.folder(disk)
        if crash_at_op:
            disk.crash_at_op(crash_at_op)
        term, since_s = 0, 0.0
        try:
            with run.owned(timing=self.timing()):
                term = run.claim_term("parent")
                since_s = self.turns.now_s
                for commit in range(n_beats):
                    if commit % 10 == 0:
                        self._save(run, term, commit)
                    self.turns.pause(LEASE_S / 3)
                    assert run._ownership is not None
                    run._ownership.beat()
            self.owned.append((term, since_s, self.turns.now_s))
        except RunInUseError:
            self.refused += 1
        except SupersededError:
            self.superseded += 1
        except SimulatedCrash:
            disk.kill()
            if term:
                self.owned.append((term, since_s, self.turns.now_s))

    def _save(self, run: RunFolder, term: int, commit: int) -> None:
        segment = Segment(term, commit, commit, "server-0", commit, False, {"W": TABLE.empty(TABLE.all_ids)})
        run.write_segment(segment)
        self.reported.append(segment.name)


def a_run(base_seed: int, seed: int, locks: bool) -> Race:
    race = Race(np.random.default_rng([base_seed, seed]), locks)
    RunFolder.create(LocalStore("/run", race.disk, token="creator"), {})
    run = race.folder()
    with run.owned(timing=race.timing()):
        race._save(run, run.claim_term("new"), 1)
    return race


@pytest.mark.parametrize("locks", [True, False])
@pytest.mark.parametrize("n_seeds", [6, pytest.param(100, marks=pytest.mark.ci)])
def test_of_racing_starts_exactly_one_wins_and_is_not_disturbed(base_seed: int, n_seeds: int, locks: bool) -> None:
    for seed in range(n_seeds):
        race = a_run(base_seed, seed, locks)
        race.turns.run(race.start, race.start, race.start)
        assert (len(race.owned), race.refused, race.superseded) == (1, 2, 0), f"seed {seed}"
        store = race.folder().store
        assert store.list("terms/") == [f"terms/{t:08d}.{kind}" for t in (1, 2) for kind in ("base", "claim")]
        assert store.list("segments/") == sorted(race.reported), f"seed {seed}: a loser has written"
        assert store.list(".tmp") == []


@pytest.mark.parametrize("locks", [True, False])
@pytest.mark.parametrize("n_seeds", [12, pytest.param(200, marks=pytest.mark.ci)])
def test_a_killed_owner_never_blocks_the_next_start(base_seed: int, n_seeds: int, locks: bool) -> None:
    for seed in range(n_seeds):
        race = a_run(base_seed, seed, locks)
        race.turns.run(lambda race=race: race.start(crash_at_op=int(race.rng.integers(1, 120))))  # type: ignore[misc]
        killed_at_s = race.turns.now_s
        race.turns.run(lambda race=race: race.start(n_beats=3))  # type: ignore[misc]
        term, since_s, _ = race.owned[-1]
        assert (race.refused, race.superseded) == (0, 0), f"seed {seed}"
        assert since_s - killed_at_s <= (1.0 if locks else 2 * LEASE_S + 2.0), f"seed {seed}"
        visible = {s.name for s in race.folder()._terms.visible_segments(term)}
        assert set(race.reported) <= visible, f"seed {seed}: what was reported is lost"


@pytest.mark.parametrize("locks", [True, False])
@pytest.mark.parametrize("n_seeds", [6, pytest.param(100, marks=pytest.mark.ci)])
def test_with_kills_among_racing_starts_no_two_own_the_run_at_once(base_seed: int, n_seeds: int, locks: bool) -> None:
    for seed in range(n_seeds):
        race = a_run(base_seed, seed, locks)

        def mortal(race: Race = race) -> None:
            race.start(crash_at_op=int(race.rng.integers(1, 200)), n_beats=8)

        def retrying(race: Race = race) -> None:
            for _ in range(10):
                owned = len(race.owned)
                race.start(n_beats=8)
                if len(race.owned) > owned:
                    return
                race.turns.pause(LEASE_S)

        race.turns.run(mortal, retrying, mortal, retrying)
        assert race.superseded == 0, f"seed {seed}"
        spans = sorted((since_s, until_s) for _, since_s, until_s in race.owned)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans)), f"seed {seed}: {spans}"
        last = max(SegmentId.parse(name).term for name in race.reported)  # type: ignore[union-attr]
        assert set(race.reported) <= {s.name for s in race.folder()._terms.visible_segments(last)}

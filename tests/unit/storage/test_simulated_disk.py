"""The simulated disk: what outlives a power loss, and that its faults strike as told."""

from __future__ import annotations

import numpy as np
import pytest

from scarml.errors import AlreadyExistsError, NotFoundError, StoreError
from scarml.storage.file_port import Entry
from scarml.storage.simulated_disk import SimulatedCrash, SimulatedDisk

SEEDS = range(200)


def disk(seed: int = 0) -> SimulatedDisk:
    return SimulatedDisk(np.random.default_rng(seed))


def read(d: SimulatedDisk, path: str) -> bytes | None:
    try:
        out = bytearray(d.size(path))
    except NotFoundError:
        return None
    assert d.read_into(path, 0, memoryview(out)) == len(out)
    return bytes(out)


def write(d: SimulatedDisk, path: str, *parts: bytes, sync: bool = True) -> None:
    file = d.create(path)
    for part in parts:
        file.write(part)
    if sync:
        file.sync()
    file.close()


def after_power_loss(prepare, path: str) -> set[bytes | None]:
    found = set()
    for seed in SEEDS:
        d = disk(seed)
        prepare(d)
        d.crash()
        found.add(read(d, path))
    return found


def test_what_is_synced_in_a_synced_folder_stays():
    def prepare(d):
        write(d, "a", b"hello")
        d.sync_folder(".")

    assert after_power_loss(prepare, "a") == {b"hello"}


def test_an_unsynced_name_may_be_lost_or_stay():
    assert after_power_loss(lambda d: write(d, "a", b"hello"), "a") == {None, b"hello"}


def test_unsynced_contents_may_be_lost_kept_torn_or_zeros():
    def prepare(d):
        write(d, "a", b"ab", b"cd", sync=False)
        d.sync_folder(".")

    found = after_power_loss(prepare, "a")
    assert {b"", b"abcd", b"ab", b"abc", b"\0\0cd", b"\0\0\0\0"} <= found


def test_a_rename_is_lost_or_kept_as_one():
    def prepare(d):
        d.make_folder("t")
        d.sync_folder(".")
        write(d, "old", b"1")
        write(d, "t/new", b"2")
        d.sync_folder("t")
        d.sync_folder(".")
        d.rename("t/new", "old")

    assert after_power_loss(prepare, "old") == {b"1", b"2"}
    for seed in SEEDS:
        d = disk(seed)
        prepare(d)
        d.crash()
        assert (read(d, "old"), read(d, "t/new")) in [(b"1", b"2"), (b"2", None)]


def test_a_rename_before_the_sync_may_leave_torn_contents_under_the_final_name():
    def prepare(d):
        write(d, "t", b"hello", sync=False)
        d.rename("t", "final")
        d.sync_folder(".")

    assert {b"", b"hel", b"hello"} <= after_power_loss(prepare, "final")


def test_an_unlink_may_be_lost():
    def prepare(d):
        write(d, "a", b"x")
        d.sync_folder(".")
        d.unlink("a")

    assert after_power_loss(prepare, "a") == {None, b"x"}


def test_with_a_lost_folder_everything_in_it_is_lost():
    def prepare(d):
        d.make_folder("f")
        write(d, "f/a", b"x")
        d.sync_folder("f")

    assert after_power_loss(prepare, "f/a") == {None, b"x"}


def test_a_killed_process_loses_nothing_that_it_wrote_but_its_files_and_locks():
    d = disk()
    other = d.process()
    file = d.create("a")
    file.write(b"hel")
    lock = d.lock("l", "me")
    assert lock is not None
    assert other.lock("l", "you") is None
    d.kill()
    assert read(other, "a") == b"hel"
    assert other.lock("l", "you") is not None
    assert read(d, "l") == b"you"
    with pytest.raises(SimulatedCrash):
        file.write(b"lo")


def test_power_loss_kills_every_process_until_it_is_started_again():
    d = disk()
    other = d.process()
    d.crash()
    with pytest.raises(SimulatedCrash):
        other.list_folder(".")
    other.kill()
    assert other.list_folder(".") == []


def test_a_crash_comes_at_the_operation_it_was_told_and_the_process_stays_dead():
    d = disk()
    d.crash_at_op(3)
    file = d.create("a")
    file.write(b"x")
    with pytest.raises(SimulatedCrash, match="operation 3"):
        file.sync()
    with pytest.raises(SimulatedCrash):
        d.unlink("a")
    assert d.fired["crash"] == 1
    assert [o.name for o in d.log] == ["create", "write", "sync"]
    assert not issubclass(SimulatedCrash, Exception)


def test_a_write_in_which_the_process_dies_may_be_done_in_part():
    lengths = set()
    for seed in SEEDS:
        d = disk(seed)
        file = d.create("a")
        d.crash_at_op(1)
        with pytest.raises(SimulatedCrash):
            file.write(b"hello")
        d.kill()
        found = read(d, "a")
        assert found is not None
        assert b"hello".startswith(found)
        lengths.add(len(found))
    assert lengths == {0, 1, 2, 3, 4, 5}


def test_failures_strike_as_told_and_are_counted():
    d = disk()
    d.fail_next(2, "the server is away")
    for _ in range(2):
        with pytest.raises(StoreError, match="the server is away"):
            d.create("a")
    write(d, "a", b"x")
    d.fail_always("the disk is gone")
    with pytest.raises(StoreError, match="the disk is gone"):
        d.size("a")
    d.heal()
    assert d.size("a") == 1
    assert d.fired["failure"] == 3


def test_slowness_is_told_and_not_slept():
    d = disk()
    told: list[float] = []
    d.slow_down(0.5, told.append)
    write(d, "a", b"x")
    assert told == [0.5] * 3
    assert d.fired["delay"] == 3


def test_a_full_disk_takes_what_fits():
    d = SimulatedDisk(np.random.default_rng(0), capacity_bytes=5)
    file = d.create("a")
    file.write(b"1234")
    with pytest.raises(StoreError, match="the disk is full"):
        file.write(b"56")
    assert d.fired["full"] == 1


def test_errors_are_those_of_a_file_system():
    d = disk()
    write(d, "a", b"x")
    d.make_folder("f")
    for call, error in [
        (lambda: d.create("a"), AlreadyExistsError),
        (lambda: d.make_folder("f"), AlreadyExistsError),
        (lambda: d.link("a", "f"), AlreadyExistsError),
        (lambda: d.create("none/a"), NotFoundError),
        (lambda: d.rename("none", "b"), NotFoundError),
        (lambda: d.unlink("none"), NotFoundError),
        (lambda: d.list_folder("none"), NotFoundError),
        (lambda: d.size("none"), NotFoundError),
        (lambda: d.size("f"), StoreError),
        (lambda: d.list_folder("a"), StoreError),
        (lambda: d.rename("a", "f"), StoreError),
        (lambda: d.create("a/b"), StoreError),
    ]:
        with pytest.raises(error):
            call()
    d.link("a", "f/b")
    d.unlink("a")
    assert read(d, "f/b") == b"x"
    assert d.list_folder("f") == [Entry("b", False)]


def test_the_same_seed_gives_the_same_disk():
    def life(seed: int) -> list[tuple[str, bytes | None]]:
        d = disk(seed)
        for i in range(20):
            write(d, f"{i}", b"abcdefgh" * 4, b"ijkl", sync=i % 3 == 0)
        d.crash()
        return [(e.name, read(d, e.name)) for e in d.list_folder(".")]

    assert life(5) == life(5)
    assert len({str(life(seed)) for seed in range(20)}) > 10

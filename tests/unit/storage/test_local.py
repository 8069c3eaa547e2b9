"""The local store: what it leaves on a real disk, and what a killed writer and a power loss leave."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from scarml.errors import AlreadyExistsError, NotFoundError, StoreError
from scarml.storage.file_port import OpenFile
from scarml.storage.local import LocalStore
from scarml.storage.simulated_disk import SimulatedCrash, SimulatedDisk
from scarml.storage.simulated_volume import Inode

OLD, NEW = b"old " * 300, b"new!" * 500
N_SEEDS = 30

Act = Callable[[LocalStore], None]


def put(store: LocalStore) -> None:
    store.put("folder/object", [NEW[:700], NEW[700:]])


def create(store: LocalStore) -> None:
    store.create("folder/object", [NEW[:700], NEW[700:]])


def files_in(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def get(disk: SimulatedDisk) -> bytes | None:
    try:
        return LocalStore("run", disk, token="reader").get("folder/object")
    except NotFoundError:
        return None


def prepared_disk(seed: int, old: bytes | None, make: Callable[[np.random.Generator], SimulatedDisk]) -> SimulatedDisk:
    disk = make(np.random.default_rng(seed))
    if old is not None:
        LocalStore("run", disk, token="before").put("folder/object", [old])
    return disk


def outcomes_of_crashes(
    act: Act, old: bytes | None, make: Callable[[np.random.Generator], SimulatedDisk] = SimulatedDisk
) -> list[tuple[bool, bytes | None]]:
    """Power is lost in every operation of ``act``, and after it, for many seeds: was it done, and what is there now."""
    counted = prepared_disk(0, old, make)
    before = len(counted.log)
    act(LocalStore("run", counted, token="writer"))
    n_operations = len(counted.log) - before
    outcomes = []
    for seed in range(N_SEEDS):
        for n in range(1, n_operations + 2):
            disk = prepared_disk(1000 * n + seed, old, make)
            disk.crash_at_op(n)
            try:
                act(LocalStore("run", disk, token="writer"))
                is_done = True
            except SimulatedCrash:
                is_done = False
            disk.crash()
            outcomes.append((is_done, get(disk)))
    return outcomes


@pytest.mark.parametrize(("act", "old"), [(put, None), (put, OLD), (create, None)])
def test_power_loss_at_any_operation_leaves_old_or_new_whole_and_what_returned_stays(
    act: Act, old: bytes | None
) -> None:
    outcomes = outcomes_of_crashes(act, old)
    assert {is_done for is_done, _ in outcomes} == {True, False}
    for is_done, found in outcomes:
        assert found == NEW if is_done else found in (old, NEW)


def test_power_loss_during_a_create_that_loses_leaves_the_old_object() -> None:
    def lose(store: LocalStore) -> None:
        with pytest.raises(AlreadyExistsError):
            create(store)

    assert {found for _, found in outcomes_of_crashes(lose, OLD)} == {OLD}


class WithoutSync(SimulatedDisk):
    def sync(self, path: str, inode: Inode) -> None:
        pass


class WithoutFolderSync(SimulatedDisk):
    def sync_folder(self, path: str) -> None:
        pass


class WithoutSyncOfParents(SimulatedDisk):
    def sync_folder(self, path: str) -> None:
        if path == "run/folder":
            super().sync_folder(path)


class SyncAfterRename(SimulatedDisk):
    """Puts off syncing a file until its new name has been given and synced."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.late: list[tuple[str, Inode]] = []

    def sync(self, path: str, inode: Inode) -> None:
        self.late.append((path, inode))

    def sync_folder(self, path: str) -> None:
        super().sync_folder(path)
        for late in self.late:
            super().sync(*late)
        self.late.clear()


@pytest.mark.parametrize("broken", [WithoutSync, WithoutFolderSync, WithoutSyncOfParents, SyncAfterRename])
def test_the_simulated_disk_shows_what_a_left_out_sync_does(broken: type[SimulatedDisk]) -> None:
    outcomes = outcomes_of_crashes(put, None, broken)
    assert any(found != NEW if is_done else found not in (None, NEW) for is_done, found in outcomes)


def test_a_folder_left_unsynced_by_a_killed_process_is_synced_by_the_next() -> None:
    n_lost = 0
    for seed in range(N_SEEDS):
        disk = SimulatedDisk(np.random.default_rng(seed))
        disk.make_folder("run")
        disk.make_folder("run/folder")
        disk.kill()
        put(LocalStore("run", disk, token="next"))
        disk.crash()
        n_lost += get(disk) != NEW
    assert n_lost == 0


def test_a_delete_that_a_killed_process_left_unsynced_is_synced_by_the_next() -> None:
    for seed in range(N_SEEDS):
        disk = prepared_disk(seed, OLD, SimulatedDisk)
        disk.unlink("run/folder/object")
        disk.kill()
        LocalStore("run", disk, token="next").delete("folder/object")
        disk.crash()
        assert get(disk) is None


@pytest.mark.parametrize("act", [put, create])
def test_killed_writers_leave_only_what_sweep_removes(act: Act) -> None:
    counted = SimulatedDisk(np.random.default_rng(0))
    act(LocalStore("run", counted, token="writer"))
    for n in range(1, len(counted.log) + 1):
        disk = SimulatedDisk(np.random.default_rng(n))
        other = disk.process()
        disk.crash_at_op(n)
        with pytest.raises(SimulatedCrash):
            act(LocalStore("run", disk, token="writer"))
        disk.kill()
        reader = LocalStore("run", other, token="reader")
        assert get(other) in (None, NEW)
        reader.sweep()
        assert reader.sweep() == 0
        if any(e.name == ".tmp" for e in (other.list_folder("run") if n > 1 and _is_there(other, "run") else [])):
            assert other.list_folder("run/.tmp") == []


def test_what_is_told_of_as_there_is_durable_whoever_made_it() -> None:
    """A writer is killed at any operation; another one finds the object, or makes it; then power is lost."""
    counted = SimulatedDisk(np.random.default_rng(0))
    create(LocalStore("run", counted, token="writer"))
    found_there = 0
    for seed in range(N_SEEDS):
        for n in range(1, len(counted.log) + 1):
            disk = SimulatedDisk(np.random.default_rng(1000 * n + seed))
            other = disk.process()
            disk.crash_at_op(n)
            with pytest.raises(SimulatedCrash):
                create(LocalStore("run", disk, token="writer"))
            disk.kill()
            try:
                create(LocalStore("run", other, token="other"))
            except AlreadyExistsError:
                found_there += 1
            other.crash()
            assert get(other) == NEW
    assert found_there >= N_SEEDS


def _is_there(disk: SimulatedDisk, path: str) -> bool:
    try:
        disk.list_folder(path)
    except NotFoundError:
        return False
    return True


def test_sweep_spares_what_a_living_writer_writes() -> None:
    disk = SimulatedDisk(np.random.default_rng(0))
    other = LocalStore("run", disk.process(), token="other")

    def chunks() -> list[bytes]:
        assert len(disk.list_folder("run/.tmp")) == 1
        assert other.sweep() == 0
        return [NEW]

    class Lazy:
        def __iter__(self) -> object:
            return iter(chunks())

    LocalStore("run", disk, token="writer").put("folder/object", Lazy())  # type: ignore[arg-type]  # iterable enough
    assert get(disk) == NEW


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_folder"])
def test_a_failing_operation_leaves_old_or_new_and_no_temporary_file(operation: str) -> None:
    class Failing(SimulatedDisk):
        armed = False

        def _begin(self, name: str, path: str, partial: Callable[[], object] = lambda: None) -> None:
            if self.armed and name == operation:
                raise StoreError("cannot: the disk is full")
            super()._begin(name, path, partial)

    disk = Failing(np.random.default_rng(0))
    store = LocalStore("run", disk, token="t")
    store.put("folder/object", [OLD])
    disk.armed = True
    with pytest.raises(StoreError, match="the disk is full"):
        put(store)
    disk.armed = False
    assert get(disk) == (NEW if operation == "sync_folder" else OLD)
    assert disk.list_folder("run/.tmp") == []


def test_a_full_disk_is_said_and_harms_nothing() -> None:
    disk = SimulatedDisk(np.random.default_rng(0), capacity_bytes=len(OLD) + 100)
    store = LocalStore("run", disk, token="t")
    store.put("folder/object", [OLD])
    with pytest.raises(StoreError, match="the disk is full"):
        put(store)
    assert disk.fired["full"] == 1
    assert get(disk) == OLD
    disk.heal()
    put(store)
    assert get(disk) == NEW


# ------------------------------------------------------------------------------------------------- on the real disk
class TestAtomicWrite:
    def test_success(self, tmp_path: Path) -> None:
        put(LocalStore(str(tmp_path)))
        assert files_in(tmp_path) == ["folder/object"]

    @pytest.mark.parametrize("act", [put, create])
    def test_interrupted(self, tmp_path: Path, act: Act, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(descriptor: int) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "fsync", interrupt)
        store = LocalStore(str(tmp_path))
        store._durable_folders |= {str(tmp_path), str(tmp_path / "folder")}
        (tmp_path / "folder").mkdir()
        with pytest.raises(KeyboardInterrupt):
            act(store)
        assert files_in(tmp_path) == []

    def test_pre_existing(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "object").write_bytes(OLD)
        put(LocalStore(str(tmp_path)))
        assert files_in(tmp_path) == ["folder/object"]
        assert (tmp_path / "folder" / "object").read_bytes() == NEW

    def test_exclusive(self, tmp_path: Path) -> None:
        store = LocalStore(str(tmp_path))
        create(store)
        with pytest.raises(AlreadyExistsError, match="the name is taken"):
            store.create("folder/object", [b"later"])
        assert files_in(tmp_path) == ["folder/object"]
        assert store.get("folder/object") == NEW


def test_sweep_removes_a_dead_writers_file(tmp_path: Path) -> None:
    (tmp_path / ".tmp").mkdir()
    (tmp_path / ".tmp" / "dead-00000000").write_bytes(b"half")
    assert LocalStore(str(tmp_path)).sweep() == 1
    assert files_in(tmp_path) == []


def test_a_file_that_is_swept_before_it_could_be_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, n_swept = fcntl.flock, []

    def swept_first(descriptor: int, operation: int) -> None:
        if not n_swept:
            n_swept.append(0)  # the sweep locks too
            n_swept[0] = LocalStore(str(tmp_path)).sweep()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", swept_first)
    create(LocalStore(str(tmp_path)))
    assert n_swept == [1]
    assert files_in(tmp_path) == ["folder/object"]
    assert LocalStore(str(tmp_path)).get("folder/object") == NEW


def test_new_files_have_the_usual_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        put(LocalStore(str(tmp_path / "run")))
    finally:
        os.umask(before)
    assert (tmp_path / "run/folder/object").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "run/folder").stat().st_mode & 0o777 == 0o750


def test_what_other_programs_leave_is_not_listed(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    put(store)
    (tmp_path / ".nfs0001").write_bytes(b"")
    (tmp_path / "folder" / ".DS_Store").write_bytes(b"")
    (tmp_path / "loop").symlink_to(tmp_path / "folder")
    assert store.list() == ["folder/object", "loop/object"]


def test_a_relative_root_and_a_missing_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    LocalStore("a/b/run/").put("x", [b"1"])
    LocalStore("run").put("x", [b"2"])
    assert files_in(tmp_path) == ["a/b/run/x", "run/x"]


def test_an_object_where_a_folder_is_expected_is_explained(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("a", [b"x"])
    with pytest.raises(StoreError, match="expected a folder"):
        store.put("a/b", [b"x"])


def test_open_files_are_those_of_the_port() -> None:
    file: OpenFile = SimulatedDisk(np.random.default_rng(0)).create("x")
    file.close()
    file.close()
    with pytest.raises(StoreError, match="closed"):
        file.write(b"x")

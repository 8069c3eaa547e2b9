"""The run folder: creation, terms, timelines, full saves, the event log, the lock."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.unit.storage.test_segment_reader import ALL, T, blocks, flip, segment, values

from scarml.errors import (
    DamagedError,
    NotFoundError,
    RunExistsError,
    RunInUseError,
    StoreError,
    SupersededError,
    UsageError,
)
from scarml.storage.faulty import FaultyStore
from scarml.storage.local import LocalStore
from scarml.storage.memory import MemoryStore
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment import Segment, encode_segment
from scarml.storage.unit import FullSave, unit_name


def new_run(store=None) -> RunFolder:
    return RunFolder.create(store if store is not None else MemoryStore(), {"model": "mlr", "seed": 3})


def write(run: RunFolder, term: int, commit: int, ids=range(10), value=None, **more) -> Segment:
    s = segment(blocks(ids, commit if value is None else value), term=term, commit=commit, **more)
    run.write_segment(s)
    return s


def write_unit(run: RunFolder, term: int, commit: int) -> FullSave:
    parts = [
        write(run, term, commit, ids, node=f"server-{n}", unit=True).name
        for n, ids in enumerate([range(5), range(5, 10)])
    ]
    unit = FullSave(term, commit, 10 * commit, commit, tuple(parts))
    run.write_unit(unit)
    return unit


def state(run: RunFolder, term: int) -> list[int]:
    return values(run.reader(term).read_newest(T, ALL))


# ------------------------------------------------------------------------------------------------------------ creation
def test_a_run_whose_marker_is_gone_is_not_begun_anew():
    run = new_run()
    run.claim_term("new")
    run.store.delete("SCAR-RUN")
    with pytest.raises(DamagedError, match=r"SCAR-RUN .* is missing, but terms/00000001\.base is there"):
        new_run(run.store)


@pytest.mark.parametrize("older", [False, True])
def test_a_term_whose_record_is_gone_is_not_passed_over(older):
    run = new_run()
    if older:
        write(run, run.claim_term("new"), 1)
    term = run.claim_term("parent" if older else "new")
    write(run, term, 2)
    run.store.delete(f"terms/{term:08d}.base")
    with pytest.raises(DamagedError, match=f"the record of term {term} .* is missing"):
        RunFolder.open(run.store).last_term()


def test_what_a_killed_writer_left_is_removed_by_the_next_owner(tmp_path):
    run = new_run(LocalStore(str(tmp_path)))
    (tmp_path / ".tmp/0123456789ab-00000007").write_bytes(bytes(1000))
    with run.owned():
        assert not list((tmp_path / ".tmp").iterdir())


def test_a_store_that_cannot_sweep_can_be_owned():
    store = FaultyStore(MemoryStore())
    run = new_run(store)
    store.fail_nth("sweep", 1, "cannot")
    with run.owned():
        assert store.fired["sweep"] == 1


def test_events_that_are_damaged_or_gone_do_not_hide_the_others(tmp_path):
    store = LocalStore(str(tmp_path))
    run = new_run(store)
    for name in ("a", "b", "c"):
        run.append_events(1, [{"event": name}])
    (tmp_path / "events/00000001-000000.jsonl").unlink()
    (tmp_path / "events/00000001-000000.jsonl").symlink_to("nowhere")
    (tmp_path / "events/00000001-000001.jsonl").write_text('{"evenu": "b"}\n')
    assert [e["event"] for e in run.read_events()] == ["c"]


def test_a_run_can_be_opened_with_the_description_it_was_created_with():
    run = new_run()
    again = RunFolder.open(run.store)
    assert again.description == {"model": "mlr", "seed": 3}
    assert again.last_term() is None
    assert RunFolder.is_run(run.store)
    assert b"safetensors" in run.store.get("README.txt")
    assert json.loads(run.store.get("run.json"))["format_version"] == 1


def test_a_second_run_in_the_folder_is_refused():
    run = new_run()
    with pytest.raises(RunExistsError, match="--resume auto"):
        new_run(run.store)


def test_what_is_no_run_is_said():
    with pytest.raises(UsageError, match="there is no run"):
        RunFolder.open(MemoryStore())
    assert not RunFolder.is_run(MemoryStore())


def test_a_creation_that_was_cut_short_can_be_made_again():
    store = FaultyStore(MemoryStore())
    for operation in ("put", "create"):
        store.fail_nth(operation, 1, "the disk is full")
        with pytest.raises(StoreError):
            new_run(store)
        assert not RunFolder.is_run(store)
    new_run(store)
    assert RunFolder.open(store).description["seed"] == 3


def test_a_creator_who_lost_has_written_no_description():
    class Racing(MemoryStore):
        rival: dict[str, int] | None = None

        def create(self, name, chunks):
            rival, self.rival = self.rival, None
            if rival is not None:
                RunFolder.create(self, rival)
            super().create(name, chunks)

    store = Racing()
    store.rival = {"seed": 4}
    with pytest.raises(RunExistsError):
        new_run(store)
    assert RunFolder.open(store).description == {"seed": 4}


def test_a_creator_who_died_before_the_description_has_made_a_run():
    store = FaultyStore(MemoryStore())
    store.fail_nth("put", 2, "the process died")
    with pytest.raises(StoreError):
        new_run(store)
    run = RunFolder.open(store)
    assert run.description["seed"] == 3
    with run.owned():
        run.claim_term("new")
    store.delete("SCAR-RUN")
    assert json.loads(store.get("run.json"))["description"]["seed"] == 3


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("SCAR-RUN", b"", "damaged"),
        ("SCAR-RUN", b"\xff\xfe", "damaged"),
        ("SCAR-RUN", b'{"format": "scar-marker", "format_version": 99}', "use a newer SCAR"),
        ("SCAR-RUN", b'{"format": "scar-marker", "format_version": 1, "crc32": 5}', "checksum"),
        ("SCAR-RUN", b"[" * 100_000, "damaged"),
        ("run.json", b"{}", "not what the run was created with"),
    ],
)
def test_a_damaged_or_newer_run_is_said(name, data, words):
    run = new_run()
    run.store.put(name, [data])
    with pytest.raises(DamagedError, match=words):
        RunFolder.open(run.store)


# --------------------------------------------------------------------------------------------------------------- terms
def test_terms_grow_and_only_the_last_may_write():
    run = new_run()
    assert run.claim_term("new") == 1
    write(run, 1, 1)
    run.check_term(1)
    assert run.claim_term("parent") == 2
    with pytest.raises(SupersededError, match="term 1 of this run was superseded"):
        run.check_term(1)
    with pytest.raises(SupersededError):
        write(run, 1, 2)
    with pytest.raises(SupersededError):
        run.write_unit(FullSave(1, 2, 20, 2, ()))
    assert write(run, 2, 2).name in run.store.list("segments/")
    assert run.last_term() == 2


def test_write_segment_returns_the_bytes_on_the_store():
    run = new_run()
    s = segment(blocks(ALL, 1), term=run.claim_term("new"))
    assert run.write_segment(s) == run.store.size(s.name)


def test_a_term_continues_all_that_its_parent_sees():
    run = new_run()
    write(run, run.claim_term("new"), 1)
    write(run, run.claim_term("parent"), 2, ids=[1, 2])
    write(run, run.claim_term("parent"), 3, ids=[2, 3])
    assert state(run, 3) == [1, 2, 3, 3, 1, 1, 1, 1, 1, 1]
    assert state(run, 2) == [1, 2, 2, 1, 1, 1, 1, 1, 1, 1]
    assert state(run, 1) == [1] * 10
    newest = run.newest_commit(3)
    assert newest is not None
    assert (newest.commit, newest.iteration) == (3, 30)


def test_a_new_term_starts_from_nothing():
    run = new_run()
    write(run, run.claim_term("new"), 1)
    term = run.claim_term("new")
    assert not run.reader(term).read_newest(T, ALL).found.any()
    assert run.newest_commit(term) is None


def test_a_late_writer_of_an_old_term_changes_nothing_for_ever():
    run = new_run()
    write(run, run.claim_term("new"), 1)
    term = run.claim_term("parent")
    with pytest.raises(SupersededError):
        write(run, 1, 99)
    assert state(run, term) == [1] * 10
    last = run.claim_term("parent")
    assert state(run, last) == [1] * 10


def test_an_abandoned_timeline_does_not_come_back():
    run = new_run()
    term = run.claim_term("new")
    unit = write_unit(run, term, 8)
    write(run, term, 9)
    write_unit(run, term, 16)
    back = run.claim_term(unit)
    assert state(run, back) == [8] * 10
    assert run.last_unit(back) == unit
    write(run, back, 17, ids=[0])
    again = run.claim_term("parent")
    assert state(run, again) == [17] + [8] * 9
    assert run.last_unit(again) == unit


def test_a_claim_whose_owner_died_before_its_base_is_passed_over():
    store = FaultyStore(MemoryStore())
    run = new_run(store)
    write(run, run.claim_term("new"), 1)
    store.fail_nth("create", 2, "the process died")
    with pytest.raises(StoreError):
        run.claim_term("parent")
    assert run.last_term() == 1
    term = run.claim_term("parent")
    assert term == 3
    assert state(run, term) == [1] * 10


def test_of_two_racing_claims_one_wins():
    class Racing(MemoryStore):
        rival: RunFolder | None = None

        def create(self, name, chunks):
            rival, self.rival = self.rival, None
            if rival is not None:
                assert rival.claim_term("new") == 1
            super().create(name, chunks)

    store = Racing()
    run = new_run(store)
    store.rival = RunFolder(store, {})
    with pytest.raises(RunInUseError, match="claimed term 1"):
        run.claim_term("new")
    assert run.last_term() == 1


def test_a_claim_that_was_made_though_the_store_repeated_it_is_ours():
    class Repeating(MemoryStore):
        def create(self, name, chunks):
            chunks = list(chunks)
            super().create(name, chunks)
            if name.endswith(".claim"):
                super().create(name, chunks)  # says that the name is taken

    assert new_run(Repeating()).claim_term("new") == 1


def test_a_claim_that_cannot_be_based_supersedes_nobody():
    run = new_run()
    with pytest.raises(NotFoundError, match="no earlier term"):
        run.claim_term("parent")
    term = run.claim_term("new")
    unit = write_unit(run, term, 8)
    with pytest.raises(DamagedError):
        run.claim_term(FullSave(term, 9, 90, 9, ("segments/00000001-000000000009-server-0-00000009.safetensors",)))
    other = FullSave(term, 9, 90, unit.save_id, ())
    with pytest.raises(NotFoundError, match="no full save that term 1 can see"):
        run.claim_term(other)
    run.check_term(term)


def test_a_damaged_base_record_is_said():
    run = new_run()
    run.claim_term("new")
    run.store.put("terms/00000001.base", [b"{}"])
    with pytest.raises(DamagedError, match=r"terms/00000001\.base is damaged"):
        RunFolder.open(run.store).reader(1).read_newest(T, ALL)


# ---------------------------------------------------------------------------------------------------------- full saves
def test_the_last_whole_full_save_is_found_and_read_alone():
    run = new_run()
    term = run.claim_term("new")
    assert run.last_unit(term) is None
    first = write_unit(run, term, 8)
    second = write_unit(run, term, 16)
    write(run, term, 17)
    assert run.last_unit(term) == second
    got = run.read_unit(second, T, ALL)
    assert values(got) == [16] * 10
    assert got.versions.commit.tolist() == [16] * 10
    assert values(run.read_unit(first, T, np.array([7]))) == [8]


@pytest.mark.parametrize("harm", ["missing", "torn", "other", "record"])
def test_a_full_save_that_is_not_whole_is_passed_over(harm, caplog):
    run = new_run()
    term = run.claim_term("new")
    first, second = write_unit(run, term, 8), write_unit(run, term, 16)
    name = second.segments[1]
    if harm == "missing":
        run.store.delete(name)
    elif harm == "torn":
        run.store.put(name, [run.store.get(name)[:-1]])
    elif harm == "other":
        other = segment(blocks([0], 1), term=term, commit=17)
        run.store.put(other.name, encode_segment(other))
        run.write_unit(FullSave(term, 16, 160, 16, (second.segments[0], other.name)))
    else:
        run.store.put(unit_name(second), [b'{"format": "scar-unit"}'])
    assert run.last_unit(term) == first
    assert f"the full save {unit_name(second)} cannot be used" in caplog.text
    next_term = run.claim_term("parent")
    assert run.last_unit(next_term) == first


def test_a_damaged_block_of_a_full_save_is_reported():
    run = new_run()
    term = run.claim_term("new")
    write(run, term, 7)
    unit = write_unit(run, term, 8)
    flip(run.store, segment(blocks(range(5), 8), commit=8), 3)
    got = run.read_unit(unit, T, ALL)
    assert got.found.tolist() == [i != 3 for i in range(10)]
    assert len(got.damaged) == 1


# ------------------------------------------------------------------------------------------------- events, the owner
def test_events_are_kept_in_order_over_terms_and_restarts():
    run = new_run()
    run.append_events(1, [{"event": "a", "n": 1}, {"event": "b"}])
    run.append_events(1, [])
    run.append_events(1, [{"event": "c"}])
    RunFolder.open(run.store).append_events(1, [{"event": "d"}])
    run.append_events(1, [{"event": "e"}])  # its number was taken by the other handle
    run.append_events(2, [{"event": "f"}])
    assert [e["event"] for e in run.read_events()] == list("abcdef")
    assert run.read_events()[0]["n"] == 1


def test_a_damaged_line_of_the_log_is_left_out(caplog):
    run = new_run()
    run.append_events(1, [{"event": "a"}])
    run.store.put("events/00000001-000001.jsonl", [b'{"event": "b"}\n{"eve\n[1]\n'])
    assert [e["event"] for e in run.read_events()] == ["a", "b"]
    assert "events/00000001-000001.jsonl" in caplog.text


def test_one_process_owns_the_run(tmp_path):
    run = new_run(LocalStore(str(tmp_path)))
    other = RunFolder.open(LocalStore(str(tmp_path)))
    with run.owned(), pytest.raises(RunInUseError, match=r"in use by process \d+ on .*, since 2"), other.owned():
        pass
    with other.owned():
        pass

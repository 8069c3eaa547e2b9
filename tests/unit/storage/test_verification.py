"""Verifying a run: each kind of damage is found and named, and nothing else is called damage."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.storage.samples import RAGGED, WIDE, filled
from tests.unit.storage.samples import segment as sample
from tests.unit.storage.test_rollback import a_run
from tests.unit.storage.test_run_folder import new_run, write, write_unit
from tests.unit.storage.test_segment_reader import ALL, blocks, flip, segment

from scarml.errors import StoreError, SupersededError, UsageError
from scarml.storage import segment_verification
from scarml.storage.faulty import FaultyStore
from scarml.storage.findings import OtherCopy
from scarml.storage.memory import MemoryStore
from scarml.storage.ownership import Ownership
from scarml.storage.rollback import roll_back
from scarml.storage.row_check import check_rows
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment import Segment
from scarml.storage.segment_header import read_header
from scarml.storage.segment_rows import read_stored_index
from scarml.storage.verification import verify


def problems(run: RunFolder) -> list[tuple[str, str]]:
    return [(f.name, f.problem) for f in verify(run.store).damaged]


def test_a_whole_run_is_clean():
    run = a_run()
    result = verify(run.store)
    assert (result.damaged, result.notes) == ([], [])
    assert (result.n_segments, result.n_blocks, result.n_units, result.n_terms) == (6, 27, 2, 1)
    assert result.read_bytes == 27 * blocks(ALL, 1).nbytes // 10


def test_nothing_is_written_and_no_lock_is_taken():
    class ReadOnly(FaultyStore):
        put = create = delete = lock = sweep = None  # type: ignore[assignment]

    run = a_run()
    assert verify(ReadOnly(run.store)).damaged == []


def test_tables_of_every_form_are_read_through_in_pieces(monkeypatch):
    monkeypatch.setattr("scarml.storage.row_check._BYTES_AT_ONCE", 100)
    run = new_run()
    run.claim_term("new")
    s = sample(filled(WIDE, [0, 3, 4, 39]), filled(RAGGED, range(12)))
    int8 = Segment(1, 2, 20, "server-0", 2, False, {"W": filled(WIDE, range(40))}, encodings={"W": {"value": "int8"}})
    run.write_segment(s)
    run.write_segment(int8)
    calls: list[tuple[int, int]] = []
    result = verify(run.store, lambda done, total: calls.append((done, total)))
    assert (result.damaged, result.n_blocks) == ([], 56)
    assert len(calls) > 10
    assert calls == sorted(calls)
    assert calls[-1][0] == result.read_bytes <= calls[-1][1]
    header = read_header(run.store, s.name)
    stored = header.tables["docs"]
    parts = list(check_rows(run.store, header, stored, read_stored_index(run.store, header, stored)))
    assert np.concatenate([p.positions for p in parts]).tolist() == list(range(12))


def test_a_bad_block_is_named_with_what_is_used_instead():
    run = a_run()
    newest, middle = segment(blocks([0], 19), commit=19), segment(blocks(range(6), 18), commit=18)
    flip(run.store, newest, 0)
    flip(run.store, middle, 5)
    found = {(f.name, f.table, f.block): f for f in verify(run.store).damaged}
    assert list(found) == [(middle.name, "W", 5), (newest.name, "W", 0)]
    f = found[newest.name, "W", 0]
    assert f.expected != f.found
    assert f.problem == f"the checksum of block 0 of table 'W' is {f.found:08x}; expected {f.expected:08x}"
    assert f.other_copy == OtherCopy(middle.name, 180, is_newer=False)
    other = found[middle.name, "W", 5].other_copy
    assert other is not None
    assert other.iteration == 160


def test_a_bad_block_that_a_newer_save_has_overwritten_is_still_damage():
    run = a_run()
    middle = segment(blocks(range(6), 18), commit=18)
    flip(run.store, middle, 0)
    (f,) = verify(run.store).damaged
    assert f.other_copy == OtherCopy(segment(blocks([0], 19), commit=19).name, 190, is_newer=True)


def test_a_bad_block_without_another_copy_says_so():
    run = new_run()
    s = write(run, run.claim_term("new"), 1)
    flip(run.store, s, 4)
    (f,) = verify(run.store).damaged
    assert (f.block, f.other_copy) == (4, None)


def test_of_very_many_bad_blocks_the_first_are_named_and_the_others_counted(monkeypatch):
    monkeypatch.setattr(segment_verification, "_MOST_FINDINGS", 3)
    run = new_run()
    s = write(run, run.claim_term("new"), 1)
    for i in range(10):
        flip(run.store, s, i)
    result = verify(run.store).damaged
    assert [f.block for f in result] == [0, 1, 2, None]
    assert result[3].problem == "7 more blocks of table 'W' are damaged"


@pytest.mark.parametrize("harm", ["torn", "gone", "empty", "header", "index"])
def test_a_segment_that_cannot_be_read_is_named_once(harm):
    run = new_run()
    first = run.claim_term("new")
    s = write(run, first, 1)
    run.claim_term("parent")
    data = run.store.get(s.name)
    if harm == "gone":
        run.store.delete(s.name)
    else:
        at = {"header": 40, "index": data.index(b"\x01\x00\x00\x00\x02\x00\x00\x00")}.get(harm, 0)
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        run.store.put(s.name, [{"torn": data[:-1], "empty": b""}.get(harm, flipped)])
    ((name, problem),) = problems(run)
    assert name == s.name
    assert (
        "gone" if harm == "gone" else "damaged" if harm in ("header", "index") else "torn"
    ) in problem or harm == "torn"


def test_a_segment_that_is_gone_may_have_been_saved_again():
    run = new_run()
    first = run.claim_term("new")
    old, _ = write(run, first, 1), write(run, first, 2)
    run.claim_term("parent")
    run.store.delete(old.name)  # as compaction does if nothing in it counts any more
    result = verify(run.store)
    assert not result.damaged
    assert [n.name for n in result.notes] == [old.name]
    assert "as it should be" in result.notes[0].problem


def test_extra_state_is_verified():
    run = new_run()
    s = Segment(run.claim_term("new"), 1, 10, "server-0", 1, False, {}, extra={"stream": np.arange(1000)})
    run.write_segment(s)
    assert problems(run) == []
    data = run.store.get(s.name)
    run.store.put(s.name, [data[:-1] + bytes([data[-1] ^ 1])])
    ((name, problem),) = problems(run)
    assert name == s.name
    assert "extra state" in problem


def test_full_saves_are_verified():
    run = a_run()
    run.store.put("units/00000001-000000000016.json", [b"{}"])
    assert [name for name, _ in problems(run)] == ["units/00000001-000000000016.json"]
    run = a_run()
    unit = run.last_unit(1)
    assert unit is not None
    run.store.delete(unit.segments[0])
    assert [name for name, _ in problems(run)] == ["units/00000001-000000000016.json"]


@pytest.mark.parametrize(("name", "data"), [("SCAR-RUN", b"{}"), ("run.json", b"{}")])
def test_a_damaged_description_does_not_keep_the_rest_from_being_read(name, data):
    run = a_run()
    run.store.put(name, [data])
    result = verify(run.store)
    assert [f.name for f in result.damaged] == [name]
    assert result.n_segments == 6


def test_the_base_of_the_last_term_is_damage_that_of_an_earlier_one_is_not():
    run = a_run()
    run.claim_term("parent")
    run.store.put("terms/00000001.base", [b"{}"])
    result = verify(run.store)
    assert (result.damaged, [f.name for f in result.notes]) == ([], ["terms/00000001.base"])
    run.store.put("terms/00000002.base", [b"{}"])
    assert [f.name for f in verify(run.store).damaged] == ["terms/00000002.base"]


def test_what_does_not_count_is_noted():
    run = a_run()
    roll_back(RunFolder(run.store, {}), lambda _: True)
    with pytest.raises(SupersededError):
        write(run, 1, 40)
    store = FaultyStore(run.store)
    store.fail_nth("create", 2, "the process died")
    with pytest.raises(StoreError):
        RunFolder(store, {}).claim_term("parent")
    run.store.put("segments/readme.txt", [b"hello"])
    run.store.put("notes.txt", [b"hello"])
    run.append_events(2, [{"event": "a"}])
    run.store.put("events/00000002-000007.jsonl", [b'{"event": "b"}\n{"ev'])
    result = verify(run.store)
    assert result.damaged == []
    notes = {f.name: f.problem for f in result.notes}
    late = [n for n in notes if n.startswith("segments/0")]
    assert len(late) == 5  # two of commit 8, those of 18 and 19, and the late one of 40
    assert all("does not count" in notes[n] for n in late)
    assert "nothing is restored from them" in notes.pop("events/00000002-000007.jsonl")
    assert set(notes) - set(late) == {"terms/00000003.claim", "segments/readme.txt", "notes.txt"}


def test_a_bad_block_that_does_not_count_is_no_damage():
    run = a_run()
    roll_back(RunFolder(run.store, {}), lambda _: True)
    flip(run.store, segment(blocks([0], 19), commit=19), 0)
    assert problems(run) == []


def test_a_segment_that_is_merged_meanwhile_is_no_damage():
    class Merging(MemoryStore):
        reads = 0

        def read_into(self, name, start, out):
            self.reads += 1
            if self.reads == 3:
                self.delete(old.name)
                run.write_segment(segment(blocks(ALL, 1), commit=3))
            super().read_into(name, start, out)

    store = Merging()
    run = new_run(store)
    run.claim_term("new")
    old = write(run, 1, 1)
    write(run, 1, 2)
    store.reads = 0
    result = verify(store)
    assert result.damaged == []
    assert result.n_segments == 2


def test_a_run_that_has_not_saved_yet_is_clean():
    run = new_run()
    assert [f.problem for f in verify(run.store).notes] == ["no term has acted: nothing was saved yet"]
    with run.owned():
        run.claim_term("new")
        assert verify(run.store).notes == []
    assert isinstance(run._ownership, Ownership)


def test_what_is_no_run_is_said():
    with pytest.raises(UsageError, match="there is no run"):
        verify(MemoryStore())


def test_units_made_after_the_listing_do_not_matter():
    run = a_run()
    write_unit(run, 1, 24)
    assert problems(run) == []

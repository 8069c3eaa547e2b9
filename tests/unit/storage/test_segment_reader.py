"""Reading the newest blocks out of many segments, whatever is damaged or vanishes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.storage.samples import RAGGED, WIDE, filled, same, segment

from scarml.core.block import Blocks, Field, Table
from scarml.errors import StoreError
from scarml.storage.faulty import FaultyStore
from scarml.storage.memory import MemoryStore
from scarml.storage.segment import Segment, SegmentId, encode_segment
from scarml.storage.segment_header import read_header
from scarml.storage.segment_reader import SegmentReader

T = Table("W", 10, (Field("value", "int64", (2,)),))
ALL = T.all_ids


def blocks(ids: object, value: int) -> Blocks:
    b = T.empty(np.asarray(ids, np.int64))
    b.value[...] = value
    return b


def put(store, s: Segment) -> SegmentId:
    store.put(s.name, encode_segment(s))
    return s.id


def reader_of(store) -> SegmentReader:
    def visible() -> list[SegmentId]:
        return sorted(i for i in map(SegmentId.parse, store.list("segments/")) if i is not None)

    return SegmentReader(store, visible)


def flip(store, s: Segment, block: int) -> None:
    """Damages the value of one block."""
    data = bytearray(store.get(s.name))
    tensor = read_header(store, s.name).tables["W"].fields[0].tensor
    row = int(np.searchsorted(s.tables["W"].ids, block))
    data[tensor.start + row * 16] ^= 0xFF
    store.put(s.name, [bytes(data)])


def values(restored) -> list[int]:
    return restored.blocks.value[:, 0].tolist()


def test_each_block_comes_from_the_newest_segment_that_has_it():
    store = MemoryStore()
    put(store, segment(blocks(range(6), 1), commit=1))
    put(store, segment(blocks([0, 2, 4], 2), commit=2, node="server-1"))
    put(store, segment(blocks([4, 5], 3), commit=1, term=2))
    got = reader_of(store).read_newest(T, ALL)
    assert values(got) == [2, 1, 2, 1, 3, 3, 0, 0, 0, 0]
    assert got.found.tolist() == [True] * 6 + [False] * 4
    assert got.versions.term.tolist() == [1, 1, 1, 1, 2, 2, 0, 0, 0, 0]
    assert got.versions.commit.tolist() == [2, 1, 2, 1, 1, 1, 0, 0, 0, 0]
    assert got.versions.iteration.tolist() == [20, 10, 20, 10, 10, 10, 0, 0, 0, 0]
    assert got.damaged == ()


def test_some_blocks_can_be_read_alone():
    store = MemoryStore()
    put(store, segment(blocks(range(6), 1), commit=1))
    put(store, segment(blocks([0, 2, 4], 2), commit=2))
    got = reader_of(store).read_newest(T, np.array([1, 4, 7]))
    assert values(got) == [1, 2, 0]
    assert got.found.tolist() == [True, True, False]
    nothing = reader_of(store).read_newest(T, np.zeros(0, np.int64))
    assert len(nothing.blocks) == 0


def test_all_fields_and_ragged_blocks_come_from_one_segment():
    store = MemoryStore()
    old, new = filled(RAGGED, RAGGED.all_ids, seed=1), filled(RAGGED, [0, 3, 7], seed=2)
    put(store, segment(old, filled(WIDE, [3]), commit=1))
    put(store, segment(new, commit=2))
    got = reader_of(store).read_newest(RAGGED, RAGGED.all_ids)
    expected = old.copy()
    expected.put(new)
    assert same(got.blocks, expected)
    assert got.found.all()


def test_the_reader_sees_new_segments_after_refresh():
    store = MemoryStore()
    reader = reader_of(store)
    assert reader.newest_version() is None
    put(store, segment(blocks(range(10), 1), commit=1))
    assert not reader.read_newest(T, ALL).found.any()
    reader.refresh()
    assert values(reader.read_newest(T, ALL)) == [1] * 10
    put(store, segment(blocks([3], 2), commit=2))
    reader.refresh()
    assert values(reader.read_newest(T, ALL))[3] == 2
    newest = reader.newest_version()
    assert newest is not None
    assert (newest.term, newest.commit, newest.iteration) == (1, 2, 20)
    assert reader.newest_versions(T).commit.tolist() == [1, 1, 1, 2, 1, 1, 1, 1, 1, 1]


def test_a_block_that_fails_its_checksum_falls_back_to_the_next_older_copy():
    store = MemoryStore()
    put(store, segment(blocks(range(10), 1), commit=1))
    middle, newest = segment(blocks([2, 3], 2), commit=2), segment(blocks([2, 3], 3), commit=3)
    put(store, middle)
    put(store, newest)
    flip(store, newest, 2)
    got = reader_of(store).read_newest(T, ALL)
    assert values(got)[:4] == [1, 1, 2, 3]
    assert got.versions.commit.tolist()[:4] == [1, 1, 2, 3]
    (damage,) = got.damaged
    assert (damage.segment, damage.table, damage.block) == (newest.name, "W", 2)
    assert damage.expected != damage.found
    assert "block 2 of table 'W'" in str(damage)
    flip(store, middle, 2)
    got = reader_of(store).read_newest(T, ALL)
    assert values(got)[:4] == [1, 1, 1, 3]
    assert len(got.damaged) == 2


def test_a_block_without_a_whole_copy_is_not_found_and_comes_as_zeros():
    store = MemoryStore()
    s = segment(blocks([1, 2], 7))
    put(store, s)
    flip(store, s, 2)
    got = reader_of(store).read_newest(T, ALL)
    assert values(got)[:3] == [0, 7, 0]
    assert got.found.tolist()[:3] == [False, True, False]
    assert got.versions.term.tolist()[:3] == [0, 1, 0]


@pytest.mark.parametrize("cut", [0, 30, -1])
def test_a_torn_segment_is_left_out_and_reported(cut):
    store = MemoryStore()
    put(store, segment(blocks(range(10), 1), commit=1))
    torn = segment(blocks(range(10), 2), commit=2)
    store.put(torn.name, [b"".join(encode_segment(torn))[:cut]])
    reader = reader_of(store)
    got = reader.read_newest(T, ALL)
    assert values(got) == [1] * 10
    assert [d.segment for d in got.damaged] == [torn.name]
    newest = reader.newest_version()
    assert newest is not None
    assert newest.commit == 1
    put(store, torn)  # repaired
    reader.refresh()
    assert values(reader.read_newest(T, ALL)) == [2] * 10


def test_a_segment_that_vanishes_because_it_was_merged_is_read_from_the_merged_one():
    store = MemoryStore()
    put(store, segment(blocks(range(5), 1), commit=1))
    gone = segment(blocks(range(5, 10), 2), commit=2)
    put(store, gone)
    reader = reader_of(store)
    assert values(reader.read_newest(T, ALL)) == [1] * 5 + [2] * 5
    put(store, segment(blocks(range(5, 10), 2), commit=2, node="server-9"))
    store.delete(gone.name)
    got = reader.read_newest(T, ALL)
    assert values(got) == [1] * 5 + [2] * 5
    assert got.damaged == ()


def test_a_listed_segment_that_is_not_there_is_reported():
    store = MemoryStore()
    kept, gone = segment(blocks(range(10), 1), commit=1), segment(blocks([3], 2), commit=2)
    put(store, kept)
    got = SegmentReader(store, lambda: [kept.id, gone.id]).read_newest(T, ALL)
    assert values(got) == [1] * 10
    assert [d.segment for d in got.damaged] == [gone.name]


def test_segments_that_keep_vanishing_end_in_an_error(monkeypatch):
    from scarml.storage import segment_catalog

    monkeypatch.setattr(segment_catalog, "_MAX_RETRIES", 20)
    n = iter(range(1, 1000))
    reader = SegmentReader(MemoryStore(), lambda: [SegmentId(1, next(n), 1, "server-0")])
    with pytest.raises(StoreError, match="kept vanishing"):
        reader.read_newest(T, ALL)


def test_a_store_that_is_away_is_no_damage():
    store = FaultyStore(MemoryStore())
    put(store, segment(blocks(range(10), 1)))
    reader = reader_of(store)
    store.fail_until_healed("the server is away")
    with pytest.raises(StoreError, match="the server is away"):
        reader.read_newest(T, ALL)
    store.heal()
    assert reader.read_newest(T, ALL).damaged == ()


def test_an_object_that_ends_early_while_it_is_read_is_left_out():
    store = FaultyStore(MemoryStore())
    put(store, segment(blocks(range(10), 1)))
    for nth in range(1, 5):
        reader = reader_of(store)
        store.truncate_nth_read(nth)
        got = reader.read_newest(T, ALL)
        assert not got.found.any()
        assert len(got.damaged) == 1
    assert store.fired["truncated"] == 4


def test_random_histories_against_a_plain_dict(base_seed):
    rng = np.random.default_rng(base_seed)
    for _ in range(20):
        store, model, damaged = MemoryStore(), {}, set()
        for commit in range(1, 8):
            ids = np.flatnonzero(rng.random(10) < 0.5)
            s = segment(blocks(ids, commit), commit=commit)
            put(store, s)
            for i in ids.tolist():
                if rng.random() < 0.2:
                    flip(store, s, i)
                    damaged.add((s.name, i))
                else:
                    model[i] = commit
        wanted = np.flatnonzero(rng.random(10) < 0.7)
        got = reader_of(store).read_newest(T, wanted)
        assert values(got) == [model.get(i, 0) for i in wanted.tolist()]
        assert got.versions.commit.tolist() == values(got)
        assert got.found.tolist() == [i in model for i in wanted.tolist()]
        assert {(d.segment, d.block) for d in got.damaged} <= damaged

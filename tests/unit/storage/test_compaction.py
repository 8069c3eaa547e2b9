"""Compaction: what it merges, keeps and deletes; versions, damage, full saves, timelines, extra state, space."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest
from tests.unit.storage.samples import same
from tests.unit.storage.test_run_folder import new_run, write, write_unit
from tests.unit.storage.test_segment_encodings import DENSE, DENSE_NAMES, RAGGED, RAGGED_NAMES, noisy, rounded
from tests.unit.storage.test_segment_reader import ALL, T, blocks, flip, segment, values

from scarml.checkpoint.encoding import stored_block_bytes
from scarml.core.block import Blocks, Field, Table
from scarml.errors import DamagedError, NotFoundError, SupersededError
from scarml.storage.compaction import Compactor, Limits
from scarml.storage.local import LocalStore
from scarml.storage.memory import MemoryStore
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment import Segment, SegmentId, encode_segment
from scarml.storage.segment_header import read_header

EAGER = Limits(slack_bytes=-(1 << 30))
"""Always something to do, as long as anything is dead."""


def compact(run: RunFolder, term: int, limits: Limits = EAGER, nodes: Any = ()) -> list[Any]:
    compactor, steps = Compactor(run, term, limits), []
    while (step := compactor.step(nodes)) is not None:
        steps.append(step)
        assert len(steps) < 100
    return steps


def segments_of(run: RunFolder) -> list[SegmentId]:
    return [i for i in map(SegmentId.parse, run.store.list("segments/")) if i is not None]


def read(run: RunFolder, term: int) -> tuple[list[int], list[tuple[int, int, int]]]:
    got = run.reader(term).read_newest(T, ALL)
    v = got.versions
    return values(got), list(zip(v.term.tolist(), v.commit.tolist(), v.iteration.tolist(), strict=True))


def test_blocks_keep_values_and_versions_and_dead_ones_go():
    run = new_run()
    term = run.claim_term("new")
    write(run, term, 1)
    term = run.claim_term("parent")
    write(run, term, 2, ids=[1, 2], node="server-1")
    write(run, term, 3, ids=[2, 3])
    before = read(run, term)
    (step,) = compact(run, term)
    assert len(step.deleted) == 3
    assert [i.node for i in segments_of(run)] == ["compactor-0"]
    assert (segments_of(run)[0].term, segments_of(run)[0].commit) == (2, 3)
    assert read(run, term) == before
    assert before[1][:4] == [(1, 1, 10), (2, 2, 20), (2, 3, 30), (2, 3, 30)]
    newest = run.newest_commit(term)
    assert newest is not None
    assert (newest.term, newest.commit, newest.iteration) == (2, 3, 30)
    assert run.reader(term).newest_versions(T).commit.tolist() == [v[1] for v in before[1]]
    assert read(run, run.claim_term("parent")) == before


def test_nothing_is_done_before_it_is_due():
    run = new_run()
    term = run.claim_term("new")
    compactor = Compactor(run, term, Limits(max_segments_per_node=4))
    assert compactor.step() is None
    for commit in range(1, 5):
        write(run, term, commit, ids=[2 * commit, 2 * commit + 1])
        assert compactor.step(["server-0"]) is None
    write(run, term, 5, ids=[0, 1])
    assert compactor.step(["server-0", "server-1"]) is None
    step = compactor.step(["server-0"])
    assert step is not None
    assert len(step.deleted) == 4
    assert len(segments_of(run)) == 2
    assert compactor.step(["server-0"]) is None
    assert read(run, term)[0] == [5, 5, 1, 1, 2, 2, 3, 3, 4, 4]


def test_dead_bytes_alone_make_it_due():
    run = new_run()
    term = run.claim_term("new")
    compactor = Compactor(run, term, Limits(slack_bytes=4000))
    done = []
    for commit in range(1, 40):
        write(run, term, commit, ids=[commit % 3])
        done.append(compactor.step(["server-0"]) is not None)
    assert 2 <= sum(done) <= 20
    assert read(run, term)[0][:3] == [39, 37, 38]


def test_segments_of_departed_nodes_are_merged_first():
    run = new_run()
    term = run.claim_term("new")
    for commit in range(1, 9):
        write(run, term, commit, ids=[commit], node=f"server-{commit % 2}")
    step = Compactor(run, term, Limits(max_segments_per_node=6)).step(["server-1"])
    assert step is not None
    assert sum("-server-0-" in name for name in step.deleted) == 4


@pytest.mark.parametrize("late_commit", [4, 6])
def test_a_late_segment_finds_its_place_among_compacted_blocks(late_commit):
    run = new_run()
    term = run.claim_term("new")
    write(run, term, 3)
    write(run, term, 5, ids=[1, 2, 3])
    compact(run, term)
    write(run, term, 7, ids=[9])
    write(run, term, late_commit, ids=[2, 4], node="server-7")
    expected = [3, 5, max(5, late_commit), 5, late_commit, 3, 3, 3, 3, 7]
    assert read(run, term)[0] == expected
    compact(run, term)
    assert read(run, term)[0] == expected
    assert len(segments_of(run)) == 1


def test_a_second_save_at_the_same_commit_is_the_newer_one():
    run = new_run()
    term = run.claim_term("new")
    write(run, term, 3, save_id=1)
    write(run, term, 3, ids=[2], value=99, save_id=2)
    compact(run, term)
    write(run, term, 3, ids=[2, 4], value=50, save_id=1, node="server-5")
    expected = [3, 3, 99, 3, 50, 3, 3, 3, 3, 3]
    assert read(run, term)[0][2] == 99
    compact(run, term)
    assert read(run, term)[0][2] == 99
    assert expected[2] == 99


def test_large_segments_are_drained_piece_by_piece():
    run = new_run()
    term = run.claim_term("new")
    large = write(run, term, 1)
    write(run, term, 2, ids=[0, 3])
    before, compactor = read(run, term), Compactor(run, term, Limits(piece_bytes=100, slack_bytes=-(1 << 30)))
    kept = []
    while (step := compactor.step()) is not None:
        assert step.copied_bytes <= 100
        assert read(run, term) == before
        kept.append(len(step.deleted))
        assert len(kept) < 40
    assert kept == [0, 0, 0, 1]
    assert large.name not in run.store.list("segments/")


def test_a_block_larger_than_a_piece_is_copied_alone():
    run = new_run()
    term = run.claim_term("new")
    write(run, term, 1)
    write(run, term, 2, ids=[0])
    before = read(run, term)
    steps = compact(run, term, Limits(piece_bytes=1, slack_bytes=-(1 << 30)))
    assert len(steps) >= 5
    assert read(run, term) == before


# -------------------------------------------------------------------------------------------------------------- damage
@pytest.mark.parametrize("slack_bytes", [0, -(1 << 30)])
@pytest.mark.parametrize("piece_bytes", [60, 100, 150, 200, 300])
def test_it_comes_to_an_end_whatever_the_size_of_a_piece(piece_bytes, slack_bytes, base_seed):
    rng = np.random.default_rng([base_seed, piece_bytes])
    for _ in range(8):
        run = new_run()
        term = run.claim_term("new")
        for commit in range(1, int(rng.integers(4, 14))):
            ids = np.sort(rng.choice(10, int(rng.integers(1, 10)), replace=False)).tolist()
            write(run, term, commit, ids=ids, node=f"server-{rng.integers(3)}")
        before = read(run, term)
        limits = Limits(piece_bytes, slack_bytes, max_segments_per_node=int(rng.integers(1, 4)))
        compact(run, term, limits, ["server-0"])  # fails after a hundred steps
        assert read(run, term) == before


def test_a_damaged_block_is_not_copied_and_its_older_good_copy_is(caplog):
    run = new_run()
    term = run.claim_term("new")
    write(run, term, 1)
    bad = write(run, term, 2, ids=[2, 3])
    write(run, term, 3, ids=[0])
    flip(run.store, bad, 2)
    assert read(run, term)[0][:4] == [3, 1, 1, 2]
    compact(run, term)
    assert "1 blocks of table W" in caplog.text
    assert bad.name in run.store.list("segments/")
    got = run.reader(term).read_newest(T, ALL)
    assert values(got)[:4] == [3, 1, 1, 2]
    assert [(d.segment, d.block) for d in got.damaged] == [(bad.name, 2)]
    write(run, term, 4, ids=[2])
    compact(run, term)
    assert bad.name not in run.store.list("segments/")
    assert read(run, term)[0][:4] == [3, 1, 4, 2]


def test_a_block_without_a_good_copy_stays_as_it_is():
    run = new_run()
    term = run.claim_term("new")
    only = write(run, term, 1, ids=[4, 5])
    flip(run.store, only, 5)
    write(run, term, 2, ids=[4])
    compact(run, term)
    got = run.reader(term).read_newest(T, ALL)
    assert (values(got)[4], got.found[5]) == (2, False)
    assert [d.block for d in got.damaged] == [5]


def test_damaged_copies_among_compacted_blocks_fall_back_too():
    run = new_run()
    term = run.claim_term("new")
    write(run, term, 1)
    write(run, term, 3, ids=[2])
    compact(run, term)
    (merged,) = segments_of(run)
    data = bytearray(run.store.get(merged.name))
    data[read_header(run.store, merged.name).tables["W"].fields[0].tensor.start + 2 * 16] ^= 1
    run.store.put(merged.name, [bytes(data)])
    write(run, term, 2, ids=[2, 7], node="server-9")
    assert read(run, term)[0][2] == 2
    compact(run, term)
    assert read(run, term)[0][2] == 2
    write(run, term, 4, ids=[2])
    compact(run, term)
    assert len(segments_of(run)) == 1
    assert read(run, term)[0][2] == 4


def test_unreadable_segments_are_left_alone():
    run = new_run()
    term = run.claim_term("new")
    write(run, term, 1)
    torn = write(run, term, 2)
    run.store.put(torn.name, [run.store.get(torn.name)[:-1]])
    write(run, term, 3, ids=[3])
    compact(run, term)
    assert torn.name in run.store.list("segments/")
    assert read(run, term)[0] == [1, 1, 1, 3, 1, 1, 1, 1, 1, 1]


# --------------------------------------------------------------------------------------------- full saves and timelines
def test_the_last_full_save_and_one_in_progress_are_not_touched_and_older_ones_go():
    run = new_run()
    term = run.claim_term("new")
    write_unit(run, term, 8)
    last = write_unit(run, term, 16)
    write(run, term, 17)
    begun = write(run, term, 24, ids=range(5), node="server-0", unit=True)
    compact(run, term)
    left = run.store.list("segments/")
    assert set(last.segments) | {begun.name} <= set(left)
    assert len(left) == 4
    assert run.store.list("units/") == ["units/00000001-000000000016.json"]
    assert run.last_unit(term) == last
    assert values(run.read_unit(last, T, ALL)) == [16] * 10
    second = write(run, term, 24, ids=range(5, 10), node="server-1", unit=True)
    assert second.name in run.store.list("segments/")
    compact(run, term)
    assert {begun.name, second.name} <= set(run.store.list("segments/"))


def test_abandoned_timelines_are_swept_and_do_not_come_back():
    run = new_run()
    term = run.claim_term("new")
    unit = write_unit(run, term, 8)
    write(run, term, 9)
    back = run.claim_term(unit)
    write(run, back, 9, ids=[0], value=90)
    late = segment(blocks(ALL, 77), term=term, commit=99)
    run.store.put(late.name, encode_segment(late))
    compact(run, back)
    assert read(run, back)[0] == [90] + [8] * 9
    assert run.last_unit(back) == unit
    assert {i.term for i in segments_of(run)} == {1, 2}
    assert len(segments_of(run)) == 3
    assert read(run, run.claim_term("parent"))[0] == [90] + [8] * 9


def test_a_base_whose_segments_were_merged_is_no_damage():
    run = new_run()
    write(run, run.claim_term("new"), 1)
    term = run.claim_term("parent")
    write(run, term, 2, ids=[3])
    reader = run.reader(term)
    assert values(reader.read_newest(T, ALL))[3] == 2
    compact(run, term)
    got = reader.read_newest(T, ALL)
    assert values(got)[3] == 2
    assert got.damaged == ()
    assert run.reader(term).read_newest(T, ALL).damaged == ()


def test_a_superseded_compactor_stops():
    run = new_run()
    term = run.claim_term("new")
    write(run, term, 1)
    write(run, term, 2)
    compactor = Compactor(run, term, EAGER)
    assert compactor.is_due()
    run.claim_term("parent")
    with pytest.raises(SupersededError):
        compactor.step()
    assert len(segments_of(run)) == 2


class Interrupted(MemoryStore):
    """Calls something before its n-th operation from now on."""

    def __init__(self) -> None:
        super().__init__()
        self.countdown, self.call, self.n_operations = -1, lambda: None, 0

    def _count(self) -> None:
        self.n_operations += 1
        self.countdown -= 1
        if self.countdown == 0:
            self.call()

    def put(self, name, chunks):
        self._count()
        super().put(name, chunks)

    def create(self, name, chunks):
        self._count()
        super().create(name, chunks)

    def get(self, name):
        self._count()
        return super().get(name)

    def size(self, name):
        self._count()
        return super().size(name)

    def list(self, prefix=""):
        self._count()
        return super().list(prefix)

    def delete(self, name):
        self._count()
        super().delete(name)


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.ci)])
@pytest.mark.parametrize("base", ["parent", "last unit", "older unit"])
def test_a_superseded_compactor_never_deletes_what_the_new_term_needs(base, every):
    """Another process takes over, and perhaps rolls back, at every single operation of the old one's compaction."""

    def history(store):
        run = new_run(store)
        term = run.claim_term("new")
        older, last = write_unit(run, term, 8), write_unit(run, term, 16)
        for commit in range(17, 20):
            write(run, term, commit, ids=[1, 2, commit - 14])
        return run, term, {"parent": "parent", "last unit": last, "older unit": older}[base]

    counted = Interrupted()
    run, term, _ = history(counted)
    first = counted.n_operations
    compact(run, term)
    expected = {"last unit": [16] * 10, "older unit": [8] * 10, "parent": read(run, term)[0]}[base]
    n_failed = 0
    for n in range(1, counted.n_operations - first + 1, every):
        store = Interrupted()
        run, term, base_or_unit = history(store)
        taken_over: list[int] = []

        def take_over(store=store, base_or_unit=base_or_unit, taken_over=taken_over):
            rival = RunFolder(store, {})
            try:
                taken_over.append(rival.claim_term(base_or_unit))
            except (NotFoundError, DamagedError):  # the older full save is gone, or about to
                taken_over.append(rival.claim_term("parent"))

        store.countdown, store.call = n, take_over
        try:
            compact(run, term)
        except SupersededError:
            n_failed += 1
        store.countdown = -1
        if not taken_over:
            continue
        (new,) = taken_over
        rolled_back = run._terms.record(new).kind == "unit"
        got = run.reader(new).read_newest(T, ALL)
        assert got.damaged == ()
        assert values(got) == (expected if rolled_back or base == "parent" else read(*history(MemoryStore())[:2])[0])
        if rolled_back:
            assert run.last_unit(new) == base_or_unit
            assert values(run.read_unit(base_or_unit, T, ALL)) == expected
        compact(run, new)
        assert values(run.reader(new).read_newest(T, ALL)) == values(got)
    assert n_failed > 0


# --------------------------------------------------------------------------------------------------------- extra state
def test_the_newest_extra_state_is_carried_along():
    run = new_run()
    term = run.claim_term("new")

    def put(commit, ids, **extra):
        run.write_segment(
            Segment(term, commit, commit, "server-0", commit, False, {"W": blocks(ids, commit)}, extra=extra or None)
        )

    put(1, ALL, n=1, a=np.arange(3))
    put(2, [1], n=2, a=np.arange(4))
    put(3, [2])
    compact(run, term)
    (merged,) = segments_of(run)
    version, extra = run.reader(term).newest_extra()
    assert (version.term, version.commit, version.iteration) == (1, 2, 2)
    assert (extra["n"], extra["a"].tolist()) == (2, [0, 1, 2, 3])
    put(4, [5], n=4)
    compact(run, term)
    assert run.reader(term).newest_extra()[1] == {"n": 4}
    assert b"extra/a" not in run.store.get(segments_of(run)[0].name)
    run.write_segment(Segment(term, 5, 5, "driver-0", 5, False, {}, extra={"n": 5}))
    write(run, term, 6, ids=[1])
    compact(run, term)
    assert run.reader(term).newest_extra()[1] == {"n": 5}
    assert merged.name not in run.store.list("segments/")


def test_damaged_extra_state_is_not_copied(caplog):
    run = new_run()
    term = run.claim_term("new")
    for commit, ids in [(1, ALL), (2, [3])]:
        extra = {"a": np.full(4, commit)}
        s = Segment(term, commit, commit, "server-0", commit, False, {"W": blocks(ids, commit)}, extra=extra)
        run.write_segment(s)
    data = bytearray(run.store.get(s.name))
    data[read_header(run.store, s.name).extra.arrays["a"].start] ^= 1
    run.store.put(s.name, [bytes(data)])
    compact(run, term)
    assert run.reader(term).newest_extra()[1]["a"].tolist() == [1] * 4
    assert s.name in run.store.list("segments/")


# ------------------------------------------------------------------------------------------------- forms and encodings
@pytest.mark.parametrize("n_histories", [2, pytest.param(20, marks=pytest.mark.ci)])
def test_random_histories_of_every_encoding(base_seed, n_histories):
    rng = np.random.default_rng(base_seed)
    for _ in range(n_histories):
        run = new_run()
        term = run.claim_term("new")
        state: dict[str, Blocks] = {}
        first = (DENSE, DENSE_NAMES) if rng.random() < 0.5 else (T, {})
        tables: list[tuple[Table, dict[str, str]]] = [first, (RAGGED, RAGGED_NAMES)]
        found = {t.name: np.zeros(t.n_blocks, bool) for t, _ in tables}
        compactor = Compactor(run, term, Limits(slack_bytes=0, piece_bytes=int(rng.choice([300, 1 << 20]))))
        for commit in range(1, 16):
            saved, names = {}, {}
            for t, full_names in tables:
                ids = np.flatnonzero(rng.random(t.n_blocks) < 0.3)
                if not len(ids):
                    continue
                names[t.name] = full_names if rng.random() < 0.7 else {}
                saved[t.name] = rounded(noisy(t, ids, seed=commit), names[t.name])
                state.setdefault(t.name, t.empty(t.all_ids)).put(saved[t.name])
                found[t.name][ids] = True
            run.write_segment(Segment(term, commit, commit, "server-0", commit, False, saved, names, {"n": commit}))
            while rng.random() < 0.5 and compactor.step(["server-0"]) is not None:
                pass
            if rng.random() < 0.1:
                term = run.claim_term("parent")
                compactor = Compactor(run, term, Limits(slack_bytes=0))
        reader = run.reader(term)
        for t, _ in tables:
            got = reader.read_newest(t, t.all_ids)
            assert got.damaged == ()
            assert got.found.tolist() == found[t.name].tolist()
            assert same(got.blocks, state[t.name])
        assert reader.newest_extra()[1] == {"n": 15}


# ------------------------------------------------------------------------------------------------------------ the bound
TINY = Table("W", 4, (Field("value"),))


@pytest.mark.parametrize(
    ("table", "names", "n_saves", "share"),
    [
        (TINY, {}, 60, 0.5),
        pytest.param(
            Table("W", 20_000, (Field("value", "float32", (64,)),)), {"value": "int8"}, 60, 1 / 8, marks=pytest.mark.ci
        ),
        pytest.param(TINY, {}, 5000, 0.5, marks=pytest.mark.ci),
        pytest.param(Table("W", 3000, (Field("value", "float32", (16,)),)), {}, 3000, 1 / 8, marks=pytest.mark.ci),
    ],
)
def test_space_stays_within_its_bound_and_memory_is_steady(table, names, n_saves, share, base_seed):
    rng = np.random.default_rng(base_seed)
    run = new_run()
    term = run.claim_term("new")
    limits = Limits(piece_bytes=1 << 20)
    compactor = Compactor(run, term, limits)
    stored = int(stored_block_bytes(table, names).sum())
    bound = 2 * (stored + 24 * table.n_blocks) + limits.piece_bytes + (16 << 20)
    newest = np.zeros(table.n_blocks, np.int64)
    marks = []
    tracemalloc.start()
    for commit in range(1, n_saves + 1):
        hot = rng.permutation(max(1, int(table.n_blocks * share * 2)))
        ids = np.sort(hot[: max(1, int(table.n_blocks * share))]) if commit % 3 else table.all_ids[:: round(1 / share)]
        b = table.empty(ids)
        b.value[...] = commit
        newest[ids] = commit
        run.write_segment(Segment(term, commit, commit, "server-0", commit, False, {"W": b}, {"W": names}))
        while compactor.step(["server-0"]) is not None:
            pass
        space = sum(map(run.store.size, run.store.list()))
        assert space <= bound
        assert len(run.store.list("segments/")) <= 65
        if commit in (n_saves // 2, n_saves):
            gc.collect()
            marks.append(tracemalloc.get_traced_memory()[0] - space)
    tracemalloc.stop()
    assert marks[1] - marks[0] < 1 << 20
    got = run.reader(term).read_newest(table, table.all_ids)
    assert got.versions.commit.tolist() == newest.tolist()


# ---------------------------------------------------------------------------------------------------------- concurrency
def test_a_reader_beside_it_never_sees_less_than_was_reported(tmp_path):
    store = LocalStore(str(tmp_path))
    run = new_run(store)
    term = run.claim_term("new")
    reported = np.zeros(10, np.int64)
    write(run, term, 1)
    reported[:] = 1
    problems, done = [], threading.Event()

    def keep_reading() -> None:
        reader = RunFolder.open(LocalStore(str(tmp_path))).reader(term)
        while not done.is_set():
            before = reported.copy()
            reader.refresh()
            got = reader.read_newest(T, ALL)
            ok = (got.versions.commit >= before) & (got.blocks.value[:, 0] == got.versions.commit)
            if not ok.all() or got.damaged:
                problems.append((before, got))

    threads = [threading.Thread(target=keep_reading) for _ in range(2)]
    for t in threads:
        t.start()
    rng = np.random.default_rng(0)
    compactor = Compactor(run, term, Limits(piece_bytes=150, slack_bytes=-(1 << 30)))
    for commit in range(2, 25):
        ids = np.flatnonzero(rng.random(10) < 0.3)
        write(run, term, commit, ids=ids)
        reported[ids] = commit
        compactor.step()
    done.set()
    for t in threads:
        t.join()
    assert not problems


def test_a_listing_that_misses_what_was_merged_meanwhile_is_made_again():
    class Slow(MemoryStore):
        """A listing, once begun, sees nothing that comes; and not what goes either."""

        meanwhile = None

        def list(self, prefix=""):
            before = super().list(prefix)
            call, self.meanwhile = self.meanwhile, None
            if call is not None and prefix == "segments/":
                call()
            return [n for n in before if n in super(Slow, self).list(prefix)]

    store = Slow()
    run = new_run(store)
    term = run.claim_term("new")
    write(run, term, 1)
    write(run, term, 2, ids=[1])
    before = read(run, term)
    store.meanwhile = lambda: compact(run, term)
    assert read(run, term) == before
    write(run, term, 3, ids=[1])
    store.meanwhile = lambda: compact(run, term)
    assert read(run, run.claim_term("parent"))[0][1] == 3

"""Looking into a run."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from tests.unit.storage.samples import RAGGED, WIDE, filled
from tests.unit.storage.samples import segment as sample
from tests.unit.storage.test_ownership import NoLocks
from tests.unit.storage.test_rollback import a_run
from tests.unit.storage.test_run_folder import new_run, write, write_unit
from tests.unit.storage.test_segment_reader import ALL, blocks, flip, segment

from scarml.core.block import Field, Table
from scarml.errors import DamagedError, UsageError
from scarml.storage.census import take_census
from scarml.storage.faulty import FaultyStore
from scarml.storage.inspection import AgeBin, Inspection, OwnerState, TermState, UnitState, inspect
from scarml.storage.memory import MemoryStore
from scarml.storage.rollback import roll_back
from scarml.storage.run_folder import RunFolder
from scarml.storage.run_history import read_history
from scarml.storage.segment import Segment
from scarml.storage.segment_catalog import SegmentCatalog

W = {
    "name": "W",
    "n_blocks": 12,
    "home": "server",
    "derived": False,
    "fields": [{"name": "value", "dtype": "int32", "shape": []}],
}
COUNTS = {"name": "counts", "n_blocks": 5, "home": "server", "derived": True, "fields": []}


def described() -> RunFolder:
    return RunFolder.create(MemoryStore(), {"model": "mlr", "tables": [W, COUNTS]})


def test_tables_with_the_ages_of_their_newest_copies():
    run = described()
    run.claim_term("new")
    write(run, 1, 1)
    write(run, 1, 2, ids=range(4))
    write(run, 1, 9, ids=[0])
    x = inspect(run.store)
    w, counts = x.tables
    assert (w.name, w.n_blocks, w.n_saved, w.live_bytes) == ("W", 12, 10, 10 * blocks([0], 1).nbytes)
    assert (w.oldest, w.median, w.newest) == (10, 10.0, 90)
    assert w.ages[0] == AgeBin(0, 10, 1)
    assert w.ages[-1] == AgeBin(77, 87, 6)
    assert sum(b.n_blocks for b in w.ages) == 10
    assert w.fields["value"]["encodings"] == {"plain": 10}
    assert (counts.derived, counts.n_saved, counts.ages) == (True, 0, [])
    assert (x.term, x.iteration) == (1, 90)
    s = x.segments
    assert (s.n, s.live_bytes, s.size_bytes) == (
        3,
        w.live_bytes,
        sum(run.store.size(n) for n in run.store.list("segments/")),
    )
    assert s.dead_bytes == s.size_bytes - s.live_bytes


def test_of_two_tables_of_any_form_each_is_counted():
    run = new_run()
    run.claim_term("new")
    run.write_segment(sample(filled(WIDE, [0, 3]), filled(RAGGED, range(12))))
    run.write_segment(
        Segment(1, 2, 20, "server-0", 2, False, {"W": filled(WIDE, [3, 4])}, encodings={"W": {"value": "bfloat16"}})
    )
    x = {t.name: t for t in inspect(run.store).tables}
    assert x["W"].n_saved == 3
    assert x["W"].fields["value"]["encodings"] == {"plain": 1, "bfloat16": 2}
    assert x["docs"].live_bytes == filled(RAGGED, range(12)).nbytes


def test_ids_far_apart_are_counted_without_a_place_for_those_between():
    far = Table("W", 1 << 50, (Field("value", "int64"),))
    store = MemoryStore()
    run = new_run(store)
    run.claim_term("new")
    for commit, ids in ((1, [5, 1 << 40, (1 << 50) - 1]), (2, [1 << 40])):
        run.write_segment(Segment(1, commit, commit, "server-0", commit, False, {"W": far.empty(np.array(ids))}))
    census, _ = take_census(SegmentCatalog(store, lambda: run._terms.visible_segments(1)))
    found = dict(zip(census["W"].ids.tolist(), census["W"].versions.commit.tolist(), strict=True))
    assert found == {5: 1, 1 << 40: 2, (1 << 50) - 1: 1}


def test_terms_full_saves_and_what_does_not_count():
    run = a_run()
    roll_back(RunFolder(run.store, {}), lambda _: True)
    run.claim_term("parent")
    x = inspect(run.store)
    assert [dataclasses.replace(t, owner=None) for t in x.terms] == [
        TermState(1, "new", None, 0, None),
        TermState(2, "unit", 1, 2, None),
        TermState(3, "parent", 2, 2, None),
    ]
    assert "process" in str(x.terms[1].owner)
    assert x.units == [UnitState(1, 16, 160, 2, None), UnitState(1, 8, 80, 2, None)]
    assert (x.segments.n, x.segments.n_not_counting) == (2, 4)
    assert x.segments.not_counting_bytes > 0
    assert x.history.rollbacks == 1
    run.store.put("units/00000001-000000000016.json", [b"{}"])
    assert [u.problem is None for u in inspect(run.store).units] == [False, True]


def test_a_damaged_segment_is_named_and_the_rest_shown():
    run = described()
    run.claim_term("new")
    write(run, 1, 1)
    bad = write(run, 1, 2)
    flip(run.store, bad, 3)  # a bad block is for verify to find
    assert inspect(run.store).segments.unreadable == {}
    run.store.put(bad.name, [b"torn"])
    x = inspect(run.store)
    assert list(x.segments.unreadable) == [bad.name]
    assert (x.tables[0].n_saved, x.iteration) == (10, 10)


def test_the_owner_and_whether_it_is_alive():
    run = new_run(NoLocks())
    assert inspect(run.store).owner is None
    with run.owned():
        run.claim_term("new")
        name = str(run._ownership.me)  # type: ignore[union-attr]  # it is owned
        owner = inspect(run.store).owner
        assert owner is not None
        assert (owner.name, owner.state) == (name, "alive")
        assert owner.silent_s is not None
        assert owner.silent_s < 5
        assert inspect(run.store, now_s=1e12).owner.state == "silent"  # type: ignore[union-attr]  # as asserted above
    assert inspect(run.store).owner.state == "ended"  # type: ignore[union-attr]  # as above
    other = RunFolder(run.store, {})
    with other.owned():
        other._terms.claim("parent", owner=other._ownership.me)  # type: ignore[union-attr]  # it has not beaten yet
        assert inspect(run.store).owner == OwnerState(str(other._ownership.me), None, "silent")  # type: ignore[union-attr]


def test_nothing_is_written_and_no_lock_is_taken():
    class ReadOnly(FaultyStore):
        put = create = delete = lock = sweep = None  # type: ignore[assignment]

    run = a_run()
    with run.owned():
        assert inspect(ReadOnly(run.store)).iteration == 190


def test_a_run_that_has_not_begun():
    x = inspect(described().store)
    assert (x.term, x.iteration, x.terms, x.units, x.history.starts) == (None, None, [], [], 0)
    assert [t.n_saved for t in x.tables] == [0, 0]


@pytest.mark.parametrize(
    "tables", [None, 5, "W", [1], [{}], [{"fields": 7, "n_blocks": "many"}], [{"fields": [3, {}]}]]
)
def test_an_odd_description_is_shown_as_far_as_it_goes(tables):
    run = RunFolder.create(MemoryStore(), {"tables": tables})
    run.claim_term("new")
    write(run, 1, 1)
    assert {t.name: t.n_saved for t in inspect(run.store).tables}["W"] == 10


def test_what_cannot_be_inspected_is_said():
    with pytest.raises(UsageError, match="there is no run"):
        inspect(MemoryStore())
    run = a_run()
    run.store.put("terms/00000001.base", [b"{}"])
    with pytest.raises(DamagedError, match=r"terms/00000001\.base is damaged"):
        inspect(run.store)


def test_it_can_be_written_as_json():
    x: Inspection = inspect(a_run().store)
    assert json.loads(json.dumps(dataclasses.asdict(x)))["iteration"] == 190


def test_the_history_in_numbers():
    events = [
        {"event": "run_started", "iteration": 0},
        {"event": "recovery_completed", "kind": "start"},
        {"event": "iteration_committed", "iteration": 1, "executed": 1},
        {"event": "loss_evaluated", "loss_sum": 5},
        {"event": "metrics_evaluated", "iteration": 1, "metrics": {"rmse": 2, "odd": "x"}},
        {"event": "metrics_evaluated", "iteration": "2", "metrics": {"rmse": 3}},
        {"event": "metrics_evaluated", "iteration": 3, "metrics": [4]},
        {"event": "save_committed"},
        {"event": "save_failed"},
        {"event": "node_lost"},
        {"event": "recovery_completed", "kind": "partial"},
        {"event": "run_finished", "outcome": "stopped", "reason": "signal"},
        {"event": "rolled_back", "iteration": 0},
        {"event": "run_started"},
        {"event": "iteration_committed", "iteration": "x", "executed": None},
        {"odd": 1},
    ]
    h = read_history(events)
    assert (h.metrics, h.metrics_iteration) == ({"rmse": 2.0}, 1)
    assert (h.starts, h.executed, h.iteration, h.nodes_lost, h.recoveries) == (2, 1, 0, 1, 1)
    assert (h.saves_committed, h.saves_failed, h.rollbacks, h.loss_sum, h.outcome) == (1, 1, 1, 5.0, None)
    assert read_history(events[:12]).outcome == "stopped"


def test_units_are_those_that_count():
    run = new_run()
    write_unit(run, run.claim_term("new"), 8)
    run.claim_term("new")
    assert inspect(run.store).units == []
    assert inspect(run.store).segments.n_not_counting == 2
    assert segment(blocks(ALL, 1)).name

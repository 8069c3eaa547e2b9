"""Going back to a full save: what was given up does not come back."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.unit.storage.test_ownership import NoLocks, Time, acquire
from tests.unit.storage.test_run_folder import new_run, state, write, write_unit
from tests.unit.storage.test_segment_reader import blocks, flip, segment

import scarml as scar
from scarml.errors import RunInUseError, StoreError, SupersededError, UsageError
from scarml.storage.faulty import FaultyStore
from scarml.storage.local import LocalStore
from scarml.storage.memory import MemoryStore
from scarml.storage.rollback import Rollback, roll_back
from scarml.storage.run_folder import RunFolder
from scarml.storage.simulated_disk import SimulatedCrash, SimulatedDisk
from scarml.testing import tiny_problem


def again(run: RunFolder) -> RunFolder:
    """The same run, in another process."""
    return RunFolder(run.store, {})


def yes(_: Rollback) -> bool:
    return True


def a_run(store=None) -> RunFolder:
    """Full saves of commits 8 and 16, then partial ones up to 19."""
    run = new_run(store)
    term = run.claim_term("new")
    write_unit(run, term, 8)
    write_unit(run, term, 16)
    write(run, term, 18, ids=range(6))
    write(run, term, 19, ids=[0])
    return run


def test_going_back_gives_up_exactly_what_came_after_the_full_save():
    run = a_run()
    asked: list[Rollback] = []
    done = roll_back(run, lambda plan: asked.append(plan) is None)
    assert [(p.newest.iteration, p.unit.iteration, p.term) for p in asked] == [(190, 160, None)]
    assert done == dataclasses.replace(asked[0], term=2)
    assert run.last_term() == 2
    assert state(run, 2) == [16] * 10
    newest = run.newest_commit(2)
    assert newest is not None
    assert newest.iteration == 160
    assert run.read_events() == [{"event": "rolled_back", "t_s": 0.0, "from_iteration": 190, "iteration": 160}]


def test_the_abandoned_timeline_never_comes_back():
    run = a_run()
    roll_back(again(run), yes)
    term = run.claim_term("parent")  # goes on, at lower commits than those given up
    write(run, term, 17, value=70, ids=[0, 1])
    assert state(run, term) == [70, 70] + [16] * 8
    with pytest.raises(SupersededError):
        write(run, 1, 99)  # a zombie of the old term wakes up
    with pytest.raises(SupersededError):
        write_unit(run, 1, 98)
    for _ in range(3):  # crash, resume
        term = run.claim_term("parent")
        assert state(run, term) == [70, 70] + [16] * 8
        unit = run.last_unit(term)
        assert unit is not None
        assert unit.commit == 16
    write(run, term, 19, value=90, ids=[0])
    assert state(run, run.claim_term("parent")) == [90, 70] + [16] * 8


def test_going_back_twice_ends_at_the_same_full_save_and_the_second_gives_up_nothing():
    run = a_run()
    roll_back(again(run), yes)
    second = roll_back(again(run), yes)
    assert second.changes_nothing
    assert second.term is None
    assert run.last_term() == 2
    write(run, run.claim_term("parent"), 17)
    assert roll_back(run, yes).unit.commit == 16
    assert state(run, 4) == [16] * 10


def test_a_full_save_that_failed_on_the_way_is_passed_over():
    run = a_run()
    write(run, 1, 24, range(5), node="server-0", unit=True)  # the other half was never stored
    done = roll_back(run, yes)
    assert done.newest.iteration == 240
    assert done.unit.commit == 16
    assert state(run, 2) == [16] * 10


def test_a_damaged_full_save_gives_way_to_the_one_before(caplog):
    run = a_run()
    flip(run.store, segment(blocks(range(5), 16), commit=16), 3)
    assert roll_back(run, yes).unit.commit == 8
    assert "the full save of iteration 160 is passed over: blocks [3] … of table 'W' are damaged" in caplog.text
    assert state(run, 2) == [8] * 10


def test_what_is_not_confirmed_changes_nothing():
    run = a_run()
    before = run.store.list("terms/")
    assert roll_back(run, lambda _: False).term is None
    assert run.store.list("terms/") == before


def test_without_a_complete_full_save_there_is_nothing_to_go_back_to():
    run = new_run()
    with pytest.raises(UsageError, match="nothing was saved in this run yet"):
        roll_back(again(run), yes)
    term = run.claim_term("new")
    with pytest.raises(UsageError, match="nothing was saved in this run yet"):
        roll_back(again(run), yes)
    write(run, term, 3)
    write(run, term, 4, unit=True)
    with pytest.raises(UsageError, match=r"no complete full save .* --policy full .* up to iteration 40, is left"):
        roll_back(run, yes)
    assert run.last_term() == term


@pytest.mark.parametrize("kind", [MemoryStore, NoLocks])
def test_a_run_in_use_is_refused(kind):
    store = kind()
    run = a_run(store)
    owner = acquire(store)
    owner.claim("parent")
    time = Time(owner.beat, owner.beat)
    with pytest.raises(RunInUseError):
        roll_back(run, yes, time.timing())
    owner.check()
    owner.release()
    assert roll_back(run, yes, time.timing()).term == 3


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.ci)])
def test_a_rollback_cut_short_at_any_operation_is_done_or_not_done(base_seed: int, every: int):
    counted = SimulatedDisk(np.random.default_rng(0))
    a_run(LocalStore("/run", counted, token="a"))
    before = len(counted.log)
    roll_back(RunFolder(LocalStore("/run", counted, token="b"), {}), yes)
    outcomes = set()
    for n in range(1, len(counted.log) - before + 1, every):
        for power_is_lost in (False, True):
            disk = SimulatedDisk(np.random.default_rng([base_seed, n]))
            a_run(LocalStore("/run", disk, token="a"))
            disk.crash_at_op(n)
            with pytest.raises(SimulatedCrash):
                roll_back(RunFolder(LocalStore("/run", disk, token="b"), {}), yes)
            (disk.crash if power_is_lost else disk.kill)()
            run = RunFolder(LocalStore("/run", disk, token="c"), {})
            with run.owned():
                term = run.claim_term("parent")
            outcomes.add(tuple(state(run, term)))
    assert outcomes == {(19, *[18] * 5, *[16] * 4), (16,) * 10}


def test_a_failing_store_leaves_the_run_as_it_was():
    store = FaultyStore(MemoryStore())
    run = a_run(store)
    store.fail_nth("create", 1, "the disk is full")
    with pytest.raises(StoreError):
        roll_back(run, yes)
    assert state(run, 1)[0] == 19
    assert roll_back(run, yes).term == 2


def test_training_goes_on_from_the_full_save_and_ends_as_if_nothing_had_happened():
    """The run does 11 iterations, goes back to 8, and is bit by bit the run that never went further."""
    model, data = tiny_problem("mlr")
    store = MemoryStore()

    def job(max_iters: int, recovery: str = "partial") -> scar.Job:
        checkpoint = scar.Checkpoint("full", 1, 4, recovery=recovery)  # type: ignore[arg-type]  # a str is clear here
        stop = scar.Stop(max_iters=max_iters)
        return scar.Job(model, data, store=store, checkpoint=checkpoint, stop=stop, resume="auto", shards=4)

    assert job(11).run().iteration == 11
    run = RunFolder.open(store)
    term = run.last_term()
    assert term is not None
    unit = next(u for u in run.units(term) if u.iteration == 8)
    run.store.delete(f"units/{term:08d}-{11:012d}.json")  # as if the end had not been reached
    write_late = segment(term=term, commit=99)
    done = roll_back(run, yes)
    assert done.unit == unit
    assert done.newest.iteration == 11
    with pytest.raises(SupersededError):
        run.write_segment(write_late)
    for k, recovery in ((10, "partial"), (13, "full")):
        result = job(k, recovery).run()
        assert result.resumed_from is not None
        assert result.resumed_from["iteration"] == (8 if k == 10 else 10)
        assert result.digest == scar.Job(model, data, stop=scar.Stop(max_iters=k), shards=4).run().digest

"""The four steps of a save, what waits for them, and what becomes of a save that fails."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.control.driver import Driver, make_layout, unit

from scarml.checkpoint.selection import Checkpoint
from scarml.control import messages as m
from scarml.control.checkpoint_coordinator import MAX_ATTEMPTS, SaveStep
from scarml.control.stop import Stop
from scarml.control.transitions import State

QUARTER = Checkpoint("priority", "1/4", 4)
FULL = Checkpoint("full", 1, 2)
NO_SAVE = (m.BlocksMeasured, m.BlocksStaged, m.SaveCommitted)


def at_first_save(checkpoint: Checkpoint = QUARTER, **more: object) -> Driver:
    """A driver whose first due save has just begun, with no answer to it delivered."""
    d = Driver(checkpoint=checkpoint, **{"stop": Stop(max_iters=9, eval_every_iters=100), **more})  # type: ignore[arg-type]
    d.start()
    return d.run(lambda d: d.step is not SaveStep.IDLE)


def test_a_save_step_by_step() -> None:
    d = at_first_save()
    nodes = d.controller.view.nodes
    assert d.history[-9:] == [
        "“iteration_committed”",
        "“save_started”",
        *(f"{n} ← MeasureBlocks 1" for n in nodes),
        "worker-0 ← ComputePhase 2",
        "worker-1 ← ComputePhase 2",
    ]
    assert d.state is State.COMPUTING  # training does not wait
    d.distance = lambda ids: np.where(np.isin(ids, [3, 6]), 5.0, 1.0)
    d.inbox = [e for e in d.inbox if not isinstance(e, m.BlocksMeasured)]
    for n in d.controller.view.nodes:
        done = d.feed(d._measured(n, 1))
    assert done == ["server-0 ← SaveBlocks 1", "server-1 ← SaveBlocks 1"]
    assert d.chosen == [{"w": [3, 6]}]
    assert d.deliver(m.BlocksStaged) == ["“save_staged”"]
    assert d.deliver(m.SaveCommitted) == ["“save_committed”"]
    assert d.said("save_committed")[0] == {
        "name": "save_committed",
        "save_id": 1,
        "iteration": 1,
        "n_blocks": 2,
        "size_bytes": 8,
        "stored_bytes": 18,
        "whole": True,
    }
    assert d.step is SaveStep.IDLE


def test_policies_that_need_no_distances_ask_for_none() -> None:
    d = at_first_save(Checkpoint("round", "1/4", 4))
    assert d.step is SaveStep.STAGING
    assert d.chosen == [{"w": [0, 1]}]
    assert not any("MeasureBlocks" in line for line in d.history)


@pytest.mark.parametrize("step", [SaveStep.MEASURING, SaveStep.STAGING])
def test_a_commit_is_held_until_the_save_is_staged(step: SaveStep) -> None:
    d = at_first_save()
    if step is SaveStep.STAGING:
        d.deliver(m.BlocksMeasured)
    assert d.step is step
    assert d.deliver(m.Prepared) == ["“commit_held”"]
    assert d.state is State.HOLDING
    if step is SaveStep.MEASURING:
        d.deliver(m.BlocksMeasured)
        assert d.state is State.HOLDING
    done = d.deliver(m.BlocksStaged)
    assert done == ["“save_staged”", "“commit_released”", *(f"{n} ← CommitPhase 2" for n in d.controller.view.nodes)]
    assert d.state is State.COMMITTING
    assert d.step is SaveStep.WRITING  # the store does not hold it up


def test_a_save_that_chooses_nothing_ends_at_once() -> None:
    d = at_first_save()
    d.inbox = [e for e in d.inbox if not isinstance(e, m.BlocksMeasured)]
    d.distance = np.zeros_like
    for n in d.controller.view.nodes:
        done = d.feed(d._measured(n, 1))
    assert done == ["“save_staged”", "“save_committed”"]
    assert d.chosen == []


def test_a_save_that_falls_due_while_another_is_in_flight_is_skipped_and_its_budget_spent_later() -> None:
    d = at_first_save()
    d.run(lambda d: d.clock.iteration == 3, without=(m.SaveCommitted,))
    assert [r["iteration"] for r in d.said("save_skipped")] == [2, 3]
    assert d.said("save_skipped")[0]["step"] == SaveStep.WRITING.value
    d.deliver(m.SaveCommitted)
    d.run(lambda d: d.clock.iteration == 6)
    # Two of eight blocks a save; a save never writes more than twice its share.
    assert [len(c["w"]) for c in d.chosen[:3]] == [2, 4, 2]


def test_blocks_that_are_not_finite_are_reported_and_make_the_save_less_than_whole() -> None:
    d = at_first_save()
    d.deliver(m.BlocksMeasured)
    staged = [e for e in d.inbox if isinstance(e, m.BlocksStaged)]
    d.inbox = [e for e in d.inbox if not isinstance(e, m.BlocksStaged)]
    (first, second) = d.chosen[0]["w"]
    left_out = {"w": np.array([first])}
    done = [line for e in staged for line in d.feed(m.BlocksStaged(e.node, e.save_id, 4, left_out))]
    assert done == ["“blocks_not_finite”", "“save_staged”"]
    assert d.said("blocks_not_finite")[0]["n_blocks"] == 1
    d.deliver(m.SaveCommitted)
    saved = d.controller.saves.saved_iterations["w"]
    assert (saved[first], saved[second]) == (0, d.said("save_committed")[0]["iteration"]), "an age that is true"
    assert d.said("save_committed")[0]["whole"] is False


def test_a_save_of_which_nothing_could_be_stored_is_given_up() -> None:
    d = at_first_save()
    d.deliver(m.BlocksMeasured)
    d.inbox = [e for e in d.inbox if not isinstance(e, (m.BlocksStaged, m.SaveCommitted))]
    d.feed(m.BlocksStaged("server-0", 1, 0, {"w": d.chosen[0]["w"]}))
    assert d.feed(m.SaveCommitted("server-0", 1, None, 0)) == ["“save_given_up”"]
    assert d.step is SaveStep.IDLE


# ------------------------------------------------------------------------------------------------------------- failures
def fail(d: Driver, node: str = "server-0") -> list[str]:
    """The store refuses a node's part of the save in flight."""
    return d.feed(m.SaveFailed(node, 1, "the disk is full"))


def at_writing(checkpoint: Checkpoint = QUARTER) -> Driver:
    d = at_first_save(checkpoint)
    d.run(lambda d: d.step is SaveStep.WRITING, without=(m.SaveCommitted,))
    d.inbox = [e for e in d.inbox if not isinstance(e, m.SaveCommitted)]
    return d


def test_a_failed_save_is_tried_again_later_and_later_and_then_given_up() -> None:
    d = at_writing()
    for n in range(1, MAX_ATTEMPTS):
        assert fail(d) == ["“save_failed”", f"timer {0.1 * 2 ** (n - 1):g} s"]
        assert d.said("save_failed")[-1] == {
            "name": "save_failed",
            "save_id": 1,
            "node": "server-0",
            "cause": "the disk is full",
            "attempt": n,
            "retried": True,
        }
        assert d.deliver(m.TimerFired) == ["server-0 ← RetrySave 1"]
        d.inbox = [e for e in d.inbox if not isinstance(e, m.SaveCommitted)]
    assert fail(d) == ["“save_failed”", "server-0 ← GiveUpSave 1", "“save_given_up”"]
    assert d.said("save_failed")[-1]["retried"] is False
    assert d.step is SaveStep.IDLE
    assert d.said("save_committed") == []
    d.run()
    assert d.finish is not None
    assert d.finish.saved


def test_retrying_heals() -> None:
    d = at_writing()
    fail(d)
    d.deliver(m.TimerFired)
    assert d.deliver(m.SaveCommitted) == ["“save_committed”"]
    assert d.said("save_committed")[0]["whole"] is True


def test_waits_between_attempts_are_bounded() -> None:
    d = at_writing()
    delays = []
    for _ in range(MAX_ATTEMPTS - 1):
        delays.append(float(fail(d)[-1].split()[1]))
        d.deliver(m.TimerFired)
    assert max(delays) <= 5
    assert sum(delays) < 15


def test_a_part_that_is_given_up_does_not_count_and_the_other_parts_do() -> None:
    d = at_first_save(Checkpoint("round", "1/2", 2), servers=2)
    d.run(lambda d: d.step is SaveStep.WRITING, without=(m.SaveCommitted,))
    d.inbox = [e for e in d.inbox if not isinstance(e, m.SaveCommitted)]
    for _ in range(MAX_ATTEMPTS):
        fail(d)
    d.feed(m.SaveCommitted("server-1", 1, "s", 9))
    saved = d.said("save_committed")[0]
    assert (saved["whole"], saved["size_bytes"], saved["stored_bytes"]) == (False, 8, 9)


def test_a_timer_of_a_save_that_has_ended_does_nothing() -> None:
    d = at_writing()
    fail(d)
    d.feed(m.SaveCommitted("server-0", 1, "s", 9))  # it came through after all
    assert d.step is SaveStep.IDLE
    assert d.deliver(m.TimerFired) == []


def test_training_goes_on_while_the_store_fails() -> None:
    d = at_writing()
    fail(d)
    d.run(lambda d: d.clock.iteration == 7, without=(m.TimerFired,))


def test_a_run_whose_last_save_fails_ends_unsaved() -> None:
    d = Driver(checkpoint=Checkpoint(fraction="1", interval_iters=99), stop=Stop(max_iters=1))
    d.start()
    d.run(lambda d: d.step is SaveStep.WRITING, without=(m.SaveCommitted,))
    for _ in range(MAX_ATTEMPTS):
        done = d.feed(m.SaveFailed("server-1", 1, "no space"))
    assert "“save_given_up”" in done
    d.deliver(m.SaveCommitted, "server-0")
    d.deliver(m.SaveCommitted, "server-2")
    assert d.finish == m.Finish("max-iters", "1 iterations done", saved=False)


def test_the_end_waits_for_the_save_in_flight() -> None:
    d = Driver(checkpoint=QUARTER, stop=Stop(max_iters=1))
    d.start()
    d.run(lambda d: d.state is State.SAVING and d.step is SaveStep.WRITING, without=(m.SaveCommitted,))
    assert [r["final"] for r in d.said("save_started")] == [False]
    d.deliver(m.SaveCommitted)
    assert [r["final"] for r in d.said("save_started")] == [False, True]
    d.run()
    assert d.finish is not None
    assert d.finish.saved


# ----------------------------------------------------------------------------------------------------------- full saves
def test_a_full_save_counts_when_it_is_recorded_as_complete() -> None:
    d = at_first_save(FULL)
    assert d.chosen == [{"w": list(range(8))}]
    d.deliver(m.BlocksStaged)
    assert d.deliver(m.SaveCommitted) == ["record full save 1"]
    assert d.step is SaveStep.RECORDING
    assert d.controller.saves.last_unit is None
    assert d.deliver(m.UnitCommitted) == ["“save_committed”"]
    assert d.controller.saves.last_unit == unit(2)


def test_a_full_save_that_is_not_whole_is_not_recorded() -> None:
    d = at_first_save(FULL)
    d.deliver(m.BlocksStaged)
    d.deliver(m.SaveCommitted, "server-0")
    d.deliver(m.SaveCommitted, "server-1")
    for _ in range(MAX_ATTEMPTS):
        done = d.feed(m.SaveFailed("server-2", 1, "no space"))
    assert done[-1] == "“save_committed”"
    assert d.controller.saves.last_unit is None
    assert d.step is SaveStep.IDLE


def test_the_record_of_a_full_save_is_tried_again_and_then_given_up() -> None:
    d = at_first_save(FULL)
    d.run(lambda d: d.step is SaveStep.RECORDING)
    for n in range(1, MAX_ATTEMPTS):
        d.inbox = []
        assert d.feed(m.UnitFailed(1, "no space")) == ["“save_failed”", f"timer {0.1 * 2 ** (n - 1):g} s"]
        assert d.deliver(m.TimerFired) == ["record full save 1"]
    assert d.said("save_failed")[-1]["node"] == "controller"
    assert d.feed(m.UnitFailed(1, "no space")) == ["“save_failed”", "“save_given_up”", "“save_committed”"]
    assert d.said("save_committed")[-1]["whole"] is False
    assert d.controller.saves.last_unit is None


def test_the_last_save_of_policy_full_is_complete_and_must_be_recorded_to_count() -> None:
    d = Driver(checkpoint=Checkpoint("full", 1, 99), stop=Stop(max_iters=1))
    d.start()
    d.run(lambda d: d.step is SaveStep.RECORDING)
    assert d.chosen == [{"w": list(range(8))}]
    d.inbox = []
    for _ in range(MAX_ATTEMPTS):
        d.feed(m.UnitFailed(1, "no space"))
    assert d.finish == m.Finish("max-iters", "1 iterations done", saved=False)


def test_all_tables_are_saved_but_derived_ones() -> None:
    d = Driver(make_layout("worker"), checkpoint=Checkpoint("round", "1/2", 2), stop=Stop(max_iters=2))
    d.start()
    d.run()
    assert d.chosen[:2] == [{"w": list(range(8))}, {"docs": list(range(8))}]


def test_a_save_has_the_version_of_the_boundary_it_is_of() -> None:
    versions = []
    d = Driver(make_layout("worker"), checkpoint=Checkpoint("round", "1/2", 2), n_phases=2, stop=Stop(max_iters=3))
    handle = d.controller.handle

    def spy(event: m.Event) -> list[m.Action]:
        actions = handle(event)
        versions.extend(a.order.version for a in actions if isinstance(a, m.Send) and isinstance(a.order, m.SaveBlocks))
        return actions

    d.controller.handle = spy  # type: ignore[method-assign]
    d.start()
    d.run()
    assert {(v.term, v.commit, v.iteration) for v in versions} == {(1, 3, 1), (1, 5, 2), (1, 7, 3)}

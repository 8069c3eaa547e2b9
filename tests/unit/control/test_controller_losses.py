"""Nodes are lost in every state: what is restored, what is computed again, and when the run must end."""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np
import pytest
from tests.unit.control.driver import Driver, make_layout, unit

from scarml.checkpoint.selection import Checkpoint
from scarml.control import messages as m
from scarml.control.checkpoint_coordinator import SaveStep
from scarml.control.stop import Stop
from scarml.control.transitions import State
from scarml.control.view_installation import ATTEMPTS as LOAD_ATTEMPTS
from scarml.core.model import Context
from scarml.core.rng import stream

PARTIAL = Checkpoint("priority", "1/4", 4)
FULL = Checkpoint("full", 1, 2, "full")
TRADITIONAL_BUT_PARTIAL = Checkpoint("full", 1, 2)

KINDS = {"partial": PARTIAL, "full": FULL, "mixed": TRADITIONAL_BUT_PARTIAL}

MOMENTS: dict[str, tuple[State, tuple[type, ...]]] = {
    "starting": (State.INSTALLING, ()),
    "computing": (State.COMPUTING, ()),
    "holding, measuring": (State.HOLDING, (m.BlocksMeasured,)),
    "holding, staging": (State.HOLDING, (m.BlocksStaged,)),
    "committing": (State.COMMITTING, ()),
    "evaluating": (State.EVALUATING, ()),
    "ending, measuring": (State.SAVING, (m.BlocksMeasured,)),
    "ending, staging": (State.SAVING, (m.BlocksStaged,)),
    "ending, writing": (State.SAVING, (m.SaveCommitted,)),
    "ending, recording": (State.SAVING, (m.UnitCommitted,)),
}
"""The state, and answers that do not come before the loss."""

VICTIMS = [("server-1",), ("worker-0",), ("server-0", "server-2"), ("server-2", "worker-1")]


def reach(d: Driver, moment: str, at: int = 4) -> None:
    """Bring a driver to a moment, on x(4) where there is one, on x(6) at the end."""
    state, without = MOMENTS[moment]
    d.start()
    if moment == "starting":
        return
    d.run(lambda d: d.clock.iteration == (6 if state is State.SAVING else at))
    d.run(lambda d: d.state is state, without=without)
    if without:
        d.run(without=without)
    assert d.state is state


def may_be(moment: str, kind: str) -> bool:
    """Policy full never measures, and only it has something to record."""
    return kind != "partial" if "recording" in moment else kind == "partial" or "measuring" not in moment


CASES = [(moment, kind) for moment in MOMENTS for kind in KINDS if may_be(moment, kind)]


@pytest.mark.parametrize("layout", ["server", "worker"])
@pytest.mark.parametrize("victims", VICTIMS, ids="+".join)
@pytest.mark.parametrize(("moment", "kind"), CASES)
def test_a_loss_at_any_moment_is_recovered_from(moment: str, kind: str, victims: tuple[str, ...], layout: str) -> None:
    d = Driver(make_layout(layout), checkpoint=KINDS[kind], stop=Stop(max_iters=6))
    reach(d, moment)
    d.lose(*victims)
    d.run()
    assert d.finish is not None
    assert (d.finish.outcome, d.finish.saved, d.clock.iteration) == ("max-iters", True, 6)
    assert set(d.controller.view.nodes) == {"server-0", "server-1", "server-2", "worker-0", "worker-1"} - set(victims)
    iterations = [r["iteration"] for r in d.said("iteration_committed")]
    if kind != "full":
        assert iterations == [1, 2, 3, 4, 5, 6], "every iteration is committed exactly once"
    assert d.clock.executed == len(iterations)


def lost_while_computing(checkpoint: Checkpoint = PARTIAL, kind: str = "server", at: int = 1) -> Driver:
    d = Driver(make_layout(kind), checkpoint=checkpoint, stop=Stop(max_iters=9, eval_every_iters=100))
    d.start()
    d.run(lambda d: d.clock.iteration == at)
    return d.run(lambda d: d.state is State.COMPUTING and d.step is SaveStep.IDLE, without=(m.Prepared,))


def test_partial_recovery_loads_what_was_lost_and_nothing_else() -> None:
    d = lost_while_computing()
    assert d.lose("server-0") == [
        "“node_lost”",
        "“view_changed”",
        "“recovery_started”",
        "server-1 ← InstallView 1 w[0, 1]",
        "server-2 ← InstallView 1 w[6, 7]",
        "worker-0 ← InstallView 1",
        "worker-1 ← InstallView 1",
    ]
    assert d.said("recovery_started") == [{"name": "recovery_started", "view": 2, "kind": "partial", "lost_blocks": 4}]
    done = d.deliver(m.ViewInstalled)
    assert done == ["“recovery_completed”", "worker-0 ← ComputePhase 2", "worker-1 ← ComputePhase 2"]
    completed = d.said("recovery_completed")[-1]
    assert (completed["kind"], completed["lost_blocks"], completed["restored"]) == ("partial", 4, 4)
    assert d.clock.iteration == 1


def test_a_lost_worker_costs_its_shards_and_their_blocks() -> None:
    d = lost_while_computing(kind="worker")
    d.lose("worker-1")
    assert d.loads[-1] == (2, "worker-0", {"docs": [2, 3, 6, 7]})
    d.deliver(m.ViewInstalled)
    assert d.controller.computing is not None
    assert d.controller.computing.phase == m.REBUILD  # derived tables first


def test_late_words_of_the_old_view_do_not_count_towards_the_phase_that_runs_again() -> None:
    d = lost_while_computing()
    late = [e for e in d.inbox if isinstance(e, m.Prepared)]
    d.lose("worker-1")
    d.deliver(m.ViewInstalled)
    for event in late:
        assert d.feed(event) == []
    assert d.state is State.COMPUTING


def test_a_loss_after_the_decision_waits_until_the_survivors_have_committed() -> None:
    d = lost_while_computing()
    d.run(State.COMMITTING)
    d.deliver(m.Committed, "server-0")
    assert d.lose("server-2") == ["“node_lost”"]
    assert d.state is State.COMMITTING
    d.deliver(m.Committed, "server-1")
    d.deliver(m.Committed, "worker-0")
    done = d.deliver(m.Committed, "worker-1")
    assert done[:3] == ["“iteration_committed”", "“view_changed”", "“recovery_started”"]
    assert d.clock.iteration == 2
    # The save of x(2) is due at that boundary and is made after the recovery.
    assert d.deliver(m.ViewInstalled)[:2] == ["“recovery_completed”", "“save_started”"]


def test_the_last_to_commit_may_be_the_one_that_is_lost() -> None:
    d = lost_while_computing()
    d.run(State.COMMITTING)
    for node in ("server-0", "server-1", "worker-0", "worker-1"):
        d.deliver(m.Committed, node)
    assert d.lose("server-2")[:3] == ["“node_lost”", "“iteration_committed”", "“view_changed”"]


def test_a_loss_during_a_recovery_is_one_more_view_in_which_what_is_unsettled_is_loaded_again() -> None:
    d = lost_while_computing()
    d.lose("server-0")  # server-1 is to load w[0, 1], server-2 w[6, 7]
    d.deliver(m.ViewInstalled, "server-1")
    d.lose("server-2")
    assert d.loads[-3:] == [
        (3, "server-1", {"w": [4, 5, 6, 7]}),  # what it has loaded already is settled
        (3, "worker-0", {}),
        (3, "worker-1", {}),
    ]
    d.run(State.COMPUTING)
    assert d.clock.commit == 1


def test_a_loss_before_the_start_is_taken_into_the_first_view() -> None:
    d = Driver(checkpoint=PARTIAL)
    d.lose("server-1", "worker-0")
    d.start()
    assert {node for _, node, _ in d.loads} == {"server-0", "server-2", "worker-1"}
    d.run()
    assert d.finish is not None
    assert d.finish.saved


def test_a_node_is_lost_once() -> None:
    d = lost_while_computing()
    d.run(State.COMMITTING)
    d.lose("server-0")
    before = d.snapshot()
    assert d.feed(m.NodeLost("server-0", "again")) == []
    assert d.snapshot() == before
    d.run(State.INSTALLING)
    assert d.feed(m.NodeLost("server-0", "and again")) == []


@pytest.mark.parametrize("kind", ["server", "worker"])
@pytest.mark.parametrize("moment", [moment for moment, kind in CASES if kind == "partial"])
def test_without_a_server_or_without_a_worker_the_run_ends(moment: str, kind: Literal["server", "worker"]) -> None:
    d = Driver(checkpoint=PARTIAL, stop=Stop(max_iters=6))
    reach(d, moment)
    nodes = d.controller.view.servers if kind == "server" else d.controller.view.workers
    done = d.lose(*nodes)
    assert done[-1] == "finish: nodes-lost, not saved"
    assert d.finish is not None
    assert d.finish.reason == f"no {kind} is left; the last was {nodes[-1]}"


def test_all_but_one_of_each_may_go_one_after_the_other() -> None:
    d = Driver(make_layout("worker"), servers=3, workers=3, checkpoint=PARTIAL, stop=Stop(max_iters=9))
    d.start()
    for i, node in enumerate(("server-0", "worker-1", "server-2", "worker-2")):
        d.run(lambda d, i=i: d.clock.iteration == i + 1)
        d.lose(node)
    d.run()
    assert d.finish is not None
    assert (d.finish.outcome, d.finish.saved) == ("max-iters", True)
    assert d.controller.view.nodes == ("server-1", "worker-0")


# ---------------------------------------------------------------------------------------------------------------- saves
def test_a_save_is_void_if_a_node_is_lost_while_distances_are_measured_and_its_budget_stays() -> None:
    d = Driver(checkpoint=PARTIAL, stop=Stop(max_iters=9))
    d.start()
    d.run(lambda d: d.step is SaveStep.MEASURING)
    done = d.lose("worker-0")
    assert done[:3] == ["“node_lost”", "“save_given_up”", "“view_changed”"]
    assert d.step is SaveStep.IDLE
    d.run(lambda d: len(d.said("save_committed")) == 1)
    assert len(d.chosen[0]["w"]) == 4  # two shares


@pytest.mark.parametrize("without", [m.BlocksStaged, m.SaveCommitted])
def test_the_part_of_a_lost_node_does_not_count_and_the_save_goes_on(without: type) -> None:
    d = Driver(checkpoint=Checkpoint("round", "1/2", 2), stop=Stop(max_iters=9, eval_every_iters=100))
    d.start()
    d.run(lambda d: d.state is State.COMPUTING and d.step in (SaveStep.STAGING, SaveStep.WRITING), without=(without,))
    assert d.chosen == [{"w": [0, 1, 2, 3]}]  # of server-0 and server-1
    d.lose("server-1")
    d.run(lambda d: d.step is SaveStep.IDLE)
    saved = d.said("save_committed")[0]
    assert (saved["whole"], saved["size_bytes"], saved["stored_bytes"]) == (False, 8, 9)


def test_a_save_all_of_whose_parts_are_lost_is_given_up() -> None:
    d = Driver(checkpoint=Checkpoint("round", "1/4", 4), stop=Stop(max_iters=9))
    d.start()
    d.run(lambda d: d.step is SaveStep.WRITING, without=(m.SaveCommitted,))
    assert "“save_given_up”" in d.lose("server-0")
    assert d.step is SaveStep.IDLE


def test_a_loss_during_the_last_save_means_another_last_save() -> None:
    d = Driver(checkpoint=Checkpoint(fraction="1", interval_iters=99), stop=Stop(max_iters=1))
    d.start()
    d.run(lambda d: d.step is SaveStep.WRITING, without=(m.SaveCommitted,))
    d.lose("server-1")
    d.run()
    assert [r["final"] for r in d.said("save_started")] == [True, True]
    assert d.finish is not None
    assert d.finish.saved


# --------------------------------------------------------------------------------------------------- a store that fails
def test_a_load_that_fails_is_tried_again_and_training_goes_on_when_it_heals() -> None:
    d = lost_while_computing()
    d.lose("server-0")
    d.deliver(m.ViewInstalled, "server-2")
    d.inbox = [e for e in d.inbox if getattr(e, "node", "") != "server-1"]
    assert d.feed(m.LoadFailed("server-1", 2, "no route")) == ["“recovery_waiting”", "timer 0.2 s"]
    assert d.said("recovery_waiting") == [
        {"name": "recovery_waiting", "node": "server-1", "cause": "no route", "attempt": 1}
    ]
    assert d.deliver(m.TimerFired) == ["server-1 ← InstallView 1 w[0, 1]"]
    d.run(State.COMPUTING)


def test_loads_are_tried_a_bounded_number_of_times() -> None:
    d = lost_while_computing()
    d.lose("server-0")
    waits = []
    for _ in range(LOAD_ATTEMPTS - 1):
        d.inbox = []
        waits.append(float(d.feed(m.LoadFailed("server-1", 2, "no route"))[-1].split()[1]))
        d.deliver(m.TimerFired)
    assert max(waits) <= 10
    assert 30 < sum(waits) < 90
    done = d.feed(m.LoadFailed("server-1", 2, "no route"))
    assert done == ["“run_finished”", "finish: store-down, not saved"]
    assert d.finish is not None
    assert d.finish.reason == "server-1 could not load lost blocks: no route"


def test_a_timer_of_an_old_recovery_does_nothing() -> None:
    d = lost_while_computing()
    d.lose("server-0")
    d.inbox = []
    d.feed(m.LoadFailed("server-1", 2, "no route"))
    timer = d.next_is(m.TimerFired)
    d.lose("server-2")
    assert d.feed(timer) == []


# -------------------------------------------------------------------------------------------------------- full recovery
def test_full_recovery_claims_a_term_goes_back_and_loads_everything() -> None:
    d = lost_while_computing(FULL, at=3)
    assert d.controller.saves.last_unit == unit(2)
    assert d.lose("server-0") == ["“node_lost”", "claim a term from x(2)"]
    assert d.state is State.CLAIMING
    done = d.deliver(m.TermClaimed)
    assert done[:2] == ["“view_changed”", "“recovery_started”"]
    assert (d.clock.iteration, d.clock.commit, d.clock.executed, d.controller.term) == (2, 3, 3, 2)
    assert sorted(d.loads[-4][2]["w"] + d.loads[-3][2]["w"]) == list(range(8))
    assert d.deliver(m.ViewInstalled)[-1] == "worker-1 ← ComputePhase 4"
    assert d.controller.computing is not None
    assert d.controller.computing.iteration == 3  # again
    d.run()
    assert (d.clock.iteration, d.clock.executed) == (9, 10)


def test_full_recovery_without_a_complete_save_goes_back_to_x0() -> None:
    d = lost_while_computing(FULL, at=1)
    assert d.lose("worker-0") == ["“node_lost”", "claim a term from x(0)"]
    d.deliver(m.TermClaimed)
    assert d.clock.iteration == 0
    d.run(State.COMPUTING)
    assert d.controller.computing == Context(0, 1, 0)


@pytest.mark.parametrize("without", [m.BlocksStaged, m.SaveCommitted, m.UnitCommitted])
def test_full_recovery_first_awaits_the_save_in_flight(without: type) -> None:
    d = Driver(checkpoint=FULL, stop=Stop(max_iters=9, eval_every_iters=100))
    d.start()
    d.run(lambda d: d.clock.iteration == 2 and d.state is State.COMPUTING, without=(without,))
    d.run(lambda d: not any(not isinstance(e, (without, m.Prepared)) for e in d.inbox), without=(without, m.Prepared))
    step = d.step
    assert d.lose("worker-0") == ["“node_lost”"]
    assert (d.state, d.step) == (State.DRAINING, step)
    d.run(State.CLAIMING)
    assert d.controller.saves.last_unit == unit(2)
    assert d.history[-1] == "claim a term from x(2)"


def test_a_server_lost_while_the_save_drains_makes_it_less_than_complete() -> None:
    d = Driver(checkpoint=FULL, stop=Stop(max_iters=9, eval_every_iters=100))
    d.start()
    d.run(lambda d: d.clock.iteration == 2 and d.step is SaveStep.WRITING, without=(m.SaveCommitted,))
    d.lose("worker-0")
    assert d.state is State.DRAINING
    d.deliver(m.SaveCommitted, "server-0")
    d.deliver(m.SaveCommitted, "server-1")
    assert d.lose("server-2")[-1] == "claim a term from x(0)"
    d.run()
    assert d.finish is not None
    assert d.finish.saved


def test_a_loss_while_a_term_is_claimed_is_taken_into_the_same_recovery() -> None:
    d = lost_while_computing(FULL, at=3)
    d.lose("server-0")
    assert d.lose("worker-1") == ["“node_lost”"]
    d.deliver(m.TermClaimed)
    assert d.controller.view.nodes == ("server-1", "server-2", "worker-0")
    assert len(d.said("recovery_started")) == 1


def test_a_loss_during_a_full_recovery_is_another_term() -> None:
    d = lost_while_computing(FULL, at=3)
    d.lose("server-0")
    d.deliver(m.TermClaimed)
    assert d.lose("server-1") == ["“node_lost”", "claim a term from x(2)"]
    d.run(State.COMPUTING)
    assert d.controller.term == 3
    assert d.loads[-2:] == [(3, "worker-0", {}), (3, "worker-1", {})]
    assert d.loads[-3] == (3, "server-2", {"w": list(range(8))})


def test_a_term_that_cannot_be_claimed_is_tried_again_and_then_the_store_is_down() -> None:
    d = lost_while_computing(FULL, at=3)
    d.lose("server-0")
    for _ in range(LOAD_ATTEMPTS - 1):
        d.inbox = []
        assert d.feed(m.TermFailed("no route"))[0] == "“recovery_waiting”"
        assert d.feed(m.TermFailed("no route")) == []  # a repeat
        assert d.deliver(m.TimerFired) == ["claim a term from x(2)"]
    assert d.feed(m.TermFailed("no route")) == ["“run_finished”", "finish: store-down, not saved"]
    assert d.finish is not None
    assert d.finish.reason == "no new term could be claimed: no route"


def test_a_rolled_back_boundary_does_not_save_again_by_itself() -> None:
    d = Driver(checkpoint=FULL, stop=Stop(max_iters=9, eval_every_iters=100))
    d.start()
    d.run(lambda d: d.clock.iteration == 3 and d.state is State.COMMITTING)
    d.lose("server-0")  # the commit of x(4), where a save is due, comes first
    d.run(lambda d: d.state is State.COMPUTING)
    assert d.clock.iteration == 2
    assert [r["iteration"] for r in d.said("save_started")] == [2]


# ------------------------------------------------------------------------------------------------------------ any order
@pytest.mark.parametrize("seed", range(60))
def test_any_order_of_answers_and_losses_ends_well(seed: int) -> None:
    rng = stream(seed, "any order")
    checkpoint = (PARTIAL, FULL, TRADITIONAL_BUT_PARTIAL, Checkpoint("random", "1/2", 2))[seed % 4]
    n_phases = 1 + seed // 4 % 2
    d = Driver(
        make_layout(("server", "worker")[seed // 8 % 2]),
        servers=4,
        workers=3,
        n_phases=n_phases,
        checkpoint=checkpoint,
        stop=Stop(max_iters=8),
    )
    victims = ["server-2", "worker-0", "server-0", "server-3", "worker-2"]
    d.start()
    for _ in range(3000):
        if not d.inbox:
            break
        if victims and rng.random() < 0.02:
            d.lose(*[victims.pop() for _ in range(int(rng.integers(1, min(3, len(victims) + 1))))])
            continue
        d.feed(d.inbox.pop(_any_but_out_of_turn(d, rng)))
    assert d.finish is not None
    assert (d.finish.outcome, d.finish.saved) == ("max-iters", True)
    committed = [r["iteration"] for r in d.said("iteration_committed")]
    for before, after in itertools.pairwise(committed):
        assert after == before + 1 or (checkpoint is FULL and after <= before + 1)


def _any_but_out_of_turn(d: Driver, rng: np.random.Generator) -> int:
    """Each node speaks in order; who speaks next is random."""
    speakers = [getattr(e, "node", f"engine {i}") for i, e in enumerate(d.inbox)]
    return speakers.index(speakers[int(rng.integers(len(speakers)))])

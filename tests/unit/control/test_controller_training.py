"""The controller without losses: starting, phases, the loss, the end, and what it ignores or refuses."""

from __future__ import annotations

import pytest
from tests.unit.control.driver import Driver, make_layout, unit

from scarml.checkpoint.selection import Checkpoint
from scarml.control import messages as m
from scarml.control.history import RECORD_NAMES
from scarml.control.stop import Stop
from scarml.control.transitions import TRANSITIONS, State
from scarml.core.model import Context
from scarml.errors import ProtocolError, UsageError

RARELY = Checkpoint(fraction="1", interval_iters=100)


def test_a_fresh_start_loads_everything_as_x0() -> None:
    d = Driver(checkpoint=RARELY)
    assert d.start() == [
        "“run_started”",
        "server-0 ← InstallView 0 w[0, 1, 6, 7]",
        "server-1 ← InstallView 0 w[2, 3]",
        "server-2 ← InstallView 0 w[4, 5]",
        "worker-0 ← InstallView 0",
        "worker-1 ← InstallView 0",
    ]
    assert d.state is State.INSTALLING
    assert d.records[0] == {
        "name": "run_started",
        "term": 1,
        "iteration": 0,
        "executed": 0,
        "servers": ["server-0", "server-1", "server-2"],
        "workers": ["worker-0", "worker-1"],
    }
    assert d.deliver(m.ViewInstalled) == [
        "“recovery_completed”",
        "worker-0 ← EvaluateLoss 0",
        "worker-1 ← EvaluateLoss 0",
    ]
    assert d.said("recovery_completed")[0]["kind"] == "start"


def test_a_start_goes_on_from_what_the_store_holds() -> None:
    d = Driver(checkpoint=RARELY, stop=Stop(max_iters=9, eval_every_iters=100))
    d.start(term=3, commit=14, iteration=7, executed=11, unit=unit(4, term=2))
    done = d.deliver(m.ViewInstalled)
    assert done == ["“recovery_completed”", "worker-0 ← ComputePhase 15", "worker-1 ← ComputePhase 15"]
    assert d.controller.term == 3
    assert d.controller.saves.last_unit == unit(4, term=2)
    assert d.controller.computing is not None
    assert d.controller.computing.iteration == 8
    d.run()
    assert d.finish is not None
    assert (d.clock.iteration, d.clock.executed, d.clock.commit) == (9, 13, 16)
    assert d.chosen == [{"w": list(range(8))}]  # everything has changed


def test_one_iteration() -> None:
    d = Driver(checkpoint=RARELY, stop=Stop(max_iters=2, eval_every_iters=2))
    d.start()
    d.run(State.EVALUATING)
    assert d.deliver(m.LossComputed) == ["“loss_evaluated”", "worker-0 ← ComputePhase 1", "worker-1 ← ComputePhase 1"]
    assert d.deliver(m.Prepared, "worker-0") + d.deliver(m.Prepared, "server-1") == []
    assert d.deliver(m.Prepared) == [f"{n} ← CommitPhase 1" for n in d.controller.view.nodes]
    assert d.state is State.COMMITTING
    assert d.clock.iteration == 0
    assert d.deliver(m.Committed) == ["“iteration_committed”", "worker-0 ← ComputePhase 2", "worker-1 ← ComputePhase 2"]
    assert d.said("iteration_committed") == [
        {"name": "iteration_committed", "iteration": 1, "commit": 1, "executed": 1}
    ]


def test_an_iteration_of_two_phases_has_two_commits_and_one_boundary() -> None:
    d = Driver(checkpoint=Checkpoint(fraction="1", interval_iters=1), n_phases=2, stop=Stop(max_iters=2))
    d.start()
    d.run(State.COMPUTING).run(State.COMMITTING)
    assert d.deliver(m.Committed) == ["worker-0 ← ComputePhase 2", "worker-1 ← ComputePhase 2"]
    assert d.controller.computing == Context(0, 1, 1)
    d.run()
    assert [r["commit"] for r in d.said("iteration_committed")] == [2, 4]
    assert [r["iteration"] for r in d.said("save_started")] == [1, 2, 2]
    assert [r["executed"] for r in d.said("loss_evaluated")] == [0, 1, 2]


def test_derived_tables_are_rebuilt_before_the_first_phase_by_a_commit_of_its_own() -> None:
    d = Driver(make_layout("worker"), checkpoint=RARELY, stop=Stop(max_iters=1))
    d.start()
    assert d.loads[3] == (1, "worker-0", {"docs": [0, 1, 4, 5]})
    assert d.deliver(m.ViewInstalled)[1:] == ["worker-0 ← ComputePhase 1", "worker-1 ← ComputePhase 1"]
    assert d.controller.computing is not None
    assert d.controller.computing.phase == m.REBUILD
    assert d.clock.iteration == 0
    d.run(State.EVALUATING)
    assert (d.clock.commit, d.clock.iteration) == (1, 0)
    d.run()
    assert (d.clock.commit, d.clock.iteration) == (2, 1)
    assert "counts" not in d.chosen[-1]


def test_losses_are_folded_in_the_order_of_shards() -> None:
    d = Driver(checkpoint=RARELY, stop=Stop(max_iters=0))
    d.start()
    d.run(State.EVALUATING)
    parts = {0: 1e16, 1: 1.0, 2: -1e16, 3: 1.0}
    for shard in (3, 1, 0, 2):
        d.feed(m.LossComputed("worker-0", 1, 0, {shard: parts[shard]}))
    assert d.said("loss_evaluated")[0]["loss_sum"] == ((1e16 + 1.0) - 1e16) + 1.0


@pytest.mark.parametrize("n_lost", range(2))
def test_the_loss_is_evaluated_as_often_as_asked_and_at_the_end(n_lost: int) -> None:
    d = Driver(checkpoint=RARELY, stop=Stop(max_iters=7, eval_every_iters=3))
    d.start()
    d.run()
    assert [r["iteration"] for r in d.said("loss_evaluated")] == [0, 3, 6, 7]


def test_the_run_ends_when_the_loss_is_below_the_criterion() -> None:
    d = Driver(checkpoint=RARELY, stop=Stop(loss_sum_below=0.5, max_iters=9))
    d.start()
    d.run(lambda d: d.clock.iteration == 4 and d.state is State.EVALUATING)
    d.loss, d.inbox = 0.4, []
    for shard in range(4):
        done = d.feed(m.LossComputed("worker-0", 1, 4, {shard: 0.1}))
    assert done[:2] == ["“loss_evaluated”", "“save_started”"]
    assert d.state is State.SAVING
    d.run()
    assert d.finish == m.Finish("converged", "loss_sum 0.4 is below 0.5", saved=True)


def test_the_last_save_is_of_all_that_has_changed_and_outside_the_budget() -> None:
    d = Driver(checkpoint=RARELY, stop=Stop(max_iters=1))
    d.start()
    d.run(State.SAVING)
    assert d.said("save_started")[0]["final"]
    d.run()
    assert d.chosen == [{"w": list(range(8))}]
    assert d.finish == m.Finish("max-iters", "1 iterations done", saved=True)
    assert d.history[-1] == "finish: max-iters, saved"


def test_the_last_save_names_its_iteration_even_if_nothing_has_changed() -> None:
    d = Driver(checkpoint=RARELY, stop=Stop(max_iters=2))
    d.start()
    d.run(State.SAVING)
    d.inbox = [m.BlocksMeasured(n, 1, {}, {}) for n in d.controller.view.nodes]
    d.run()
    assert d.chosen == [{"w": [0]}]
    assert d.said("save_committed")[0]["iteration"] == 2


def test_a_request_to_stop_ends_the_run_at_the_next_boundary_with_all_saved() -> None:
    d = Driver(checkpoint=RARELY, n_phases=2, stop=Stop(eval_every_iters=50))
    d.start()
    d.run(lambda d: d.clock.commit == 5 and d.state is State.COMPUTING)
    assert d.feed(m.StopRequested("signal SIGTERM")) == ["“stop_requested”"]
    d.run()
    assert d.finish == m.Finish("stopped", "signal SIGTERM", saved=True)
    assert (d.clock.iteration, d.clock.commit) == (3, 6)
    assert d.said("loss_evaluated")[-1]["iteration"] == 3


def test_a_criterion_that_is_met_comes_before_a_request_to_stop() -> None:
    d = Driver(checkpoint=RARELY, stop=Stop(loss_sum_below=2.0))
    d.start()
    d.feed(m.StopRequested("enough"))
    d.run()
    assert d.finish is not None
    assert d.finish.outcome == "converged"


@pytest.mark.parametrize(
    "state", [s for s in State if s not in (State.FINISHED, State.DRAINING, State.CLAIMING, State.WAITING)]
)
def test_a_run_that_is_superseded_ends_at_once(state: State) -> None:
    d = Driver(checkpoint=Checkpoint(fraction="1", interval_iters=1))
    if state is not State.NEW:
        d.start()
        d.run(state, without=(m.BlocksMeasured,) if state is State.HOLDING else ())
    assert d.feed(m.Superseded("term 2 was claimed")) == ["“run_finished”", "finish: superseded, not saved"]
    assert d.state is State.FINISHED
    d.run()  # whatever else comes is ignored
    assert d.start() == []


def test_what_is_of_another_view_or_commit_or_of_nobody_is_ignored() -> None:
    d = Driver(checkpoint=Checkpoint(fraction="1", interval_iters=1), stop=Stop(max_iters=4))
    d.start()
    d.run(lambda d: d.clock.commit == 2 and d.state is State.COMPUTING)
    for stale in (
        m.ViewInstalled("server-0", 1),
        m.LoadFailed("server-0", 1, "late"),
        m.Prepared("server-0", 2, 3),
        m.Prepared("server-0", 1, 2),
        m.Prepared("server-0", 1, 4),
        m.Committed("server-0", 1, 2),
        m.Committed("server-0", 1, 3),
        m.LossComputed("worker-0", 1, 2, {0: -1e9}),
        m.BlocksMeasured("server-0", 1, {}, {}),
        m.BlocksMeasured("server-9", 3, {}, {}),
        m.BlocksStaged("server-0", 1, 8),
        m.SaveCommitted("server-0", 1, "s", 8),
        m.SaveFailed("server-0", 1, "late"),
        m.UnitCommitted(1),
        m.UnitFailed(1, "late"),
        m.TermFailed("late"),
        m.TimerFired(999),
        m.NodeLost("server-9", "never was"),
    ):
        before = d.snapshot()
        assert d.feed(stale) == [], stale
        assert d.snapshot() == before, stale


@pytest.mark.parametrize(
    "kind",
    [m.ViewInstalled, m.Prepared, m.Committed, m.LossComputed, m.BlocksMeasured, m.BlocksStaged, m.SaveCommitted],
)
def test_repeats_count_once(kind: type) -> None:
    d = Driver(checkpoint=Checkpoint(fraction="1", interval_iters=1), stop=Stop(max_iters=2))
    d.start()
    d.run(lambda d: any(isinstance(e, kind) for e in d.inbox))
    event = d.next_is(kind)
    d.inbox.remove(event)
    d.feed(event)
    before = d.snapshot()
    assert d.feed(event) == []
    assert d.snapshot() == before


def test_an_impossible_move_raises_with_the_story_and_changes_nothing() -> None:
    d = Driver(checkpoint=RARELY)
    d.start()
    before = d.snapshot()
    with pytest.raises(
        ProtocolError, match="'start' cannot happen while waiting for nodes to install the view"
    ) as error:
        d.controller.handle(m.Start(2))
    assert d.snapshot() == before
    assert error.value.story == ("NEW: " + repr(m.Start(1)), "INSTALLING: " + repr(m.Start(2)))
    with pytest.raises(ProtocolError, match="'term claimed' cannot happen"):
        d.controller.handle(m.TermClaimed(5))
    assert d.snapshot() == before
    d.run()  # and it goes on as if nothing had been
    assert d.finish is not None
    assert d.finish.saved


def test_the_story_is_bounded() -> None:
    d = Driver(stop=Stop(max_iters=40))
    d.start()
    d.run(lambda d: d.clock.iteration == 30)
    with pytest.raises(ProtocolError) as error:
        d.controller.handle(m.Start(1))
    assert len(error.value.story) == 60
    assert max(map(len, error.value.story)) < 250


def test_the_same_events_give_the_same_actions() -> None:
    def life(policy: str) -> list[str]:
        d = Driver(make_layout("worker"), checkpoint=Checkpoint(policy, "1/4", 4), stop=Stop(max_iters=6))
        d.start()
        d.run(lambda d: d.clock.iteration == 3)
        d.lose("server-1", "worker-0")
        d.run()
        return d.history

    for policy in ("priority", "random", "round"):
        assert life(policy) == life(policy)


def test_every_record_has_a_name_that_is_explained() -> None:
    d = Driver(checkpoint=Checkpoint(fraction="1", interval_iters=1))
    d.start()
    d.run(State.COMPUTING)
    d.lose("server-2")
    d.run()
    assert {r["name"] for r in d.records} <= set(RECORD_NAMES)


def test_every_state_can_be_left_and_reached() -> None:
    reached = set(TRANSITIONS.values())
    left = {state for state, _ in TRANSITIONS}
    assert reached == set(State) - {State.NEW}
    assert left == set(State) - {State.FINISHED}


@pytest.mark.parametrize(("fields", "sentence"), [
    ({"eval_every_iters": 0}, "--eval-every is 0; expected at least 1 iteration"),
    ({"max_iters": -1}, "--max-iters is -1; expected 0 or more"),
])  # fmt: skip
def test_a_stop_that_makes_no_sense_is_refused(fields: dict[str, int], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Stop(**fields)

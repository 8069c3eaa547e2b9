"""Nodes that come and go: what the controller does, action by action."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.control.driver import Driver, make_layout, unit

from scarml.checkpoint.selection import Checkpoint
from scarml.control import messages as m
from scarml.control.checkpoint_coordinator import SaveStep
from scarml.control.membership import MOST_FAILED_STARTS
from scarml.control.stop import Stop
from scarml.control.transitions import State
from scarml.core.rng import stream

PARTIAL = Checkpoint("priority", "1/4", 4)
FULL = Checkpoint("full", 1, 2, "full")


def computing(checkpoint: Checkpoint = PARTIAL, kind: str = "server", at: int = 1, **settings: Any) -> Driver:
    """A run that computes x(2), with no save in flight."""
    d = Driver(make_layout(kind), checkpoint=checkpoint, stop=Stop(max_iters=9, eval_every_iters=100), **settings)
    d.start()
    d.run(lambda d: d.clock.iteration == at)
    return d.run(lambda d: d.state is State.COMPUTING and d.step is SaveStep.IDLE, without=(m.Prepared,))


def handing_over(event: m.Event, checkpoint: Checkpoint = PARTIAL, kind: str = "server", **settings: Any) -> Driver:
    """A run whose nodes hand blocks over, since that was asked for; none of them has answered yet."""
    d = computing(checkpoint, kind, at=3 if checkpoint is FULL else 1, **settings)
    d.feed(event)
    d.run(lambda d: not any(isinstance(e, m.NodeJoined) for e in d.inbox), without=(m.Prepared, m.Committed))
    return d.run(lambda d: bool(d.said("handover_started")))


def ends_well(d: Driver) -> None:
    """Every iteration is done exactly once, and everything is saved."""
    d.run()
    assert d.finish is not None
    assert (d.finish.outcome, d.finish.saved) == ("max-iters", True)
    assert [r["iteration"] for r in d.said("iteration_committed")] == list(range(1, 10))


# ------------------------------------------------------------------------------------------------------------- scaling
def test_a_new_server_takes_blocks_from_those_who_have_most_at_the_next_commit() -> None:
    d = computing()
    assert d.feed(m.ScaleRequested(servers=4)) == ["“scale_requested”", "start server-3"]
    assert d.deliver(m.NodeJoined) == ["“node_joined”"]
    d.run(State.COMMITTING)
    done = []
    for node in ("server-0", "server-1", "server-2", "worker-0", "worker-1"):
        done += d.deliver(m.Committed, node)
    assert done == [
        "“iteration_committed”",
        "“view_changed”",
        "“handover_started”",
        "server-0 ← InstallView 2",
        "server-1 ← InstallView 2",
        "server-2 ← InstallView 2",
        "server-3 ← InstallView 2 w[6, 7] from server-0",
        "worker-0 ← InstallView 2",
        "worker-1 ← InstallView 2",
    ]
    assert d.said("handover_started") == [
        {"name": "handover_started", "view": 2, "moving_blocks": 2, "joining": ["server-3"], "leaving": []}
    ]
    done = d.deliver(m.ViewInstalled)
    assert done[:2] == ["“handover_completed”", "“save_started”"], "the save of x(2), which was due at that boundary"
    assert d.said("handover_completed") == [
        {"name": "handover_completed", "view": 2, "moved_blocks": 2, "iteration": 2}
    ]
    assert len(d.said("recovery_completed")) == 1, "the start; nothing is perturbed"
    ends_well(d)


def test_who_is_scaled_away_hands_over_and_ends_when_all_obey_the_view() -> None:
    d = handing_over(m.ScaleRequested(servers=2))
    assert d.history[-4:] == [
        "server-0 ← InstallView 2",
        "server-1 ← InstallView 2 w[4, 5] from server-2",
        "worker-0 ← InstallView 2",
        "worker-1 ← InstallView 2",
    ]
    for node in ("server-1", "server-0", "worker-1"):
        assert d.deliver(m.ViewInstalled, node) == []
    done = d.deliver(m.ViewInstalled, "worker-0")
    assert done[:3] == ["“handover_completed”", "“node_left”", "stop server-2"]
    ends_well(d)


def test_a_new_worker_takes_shards_and_their_blocks_and_derived_tables_are_built_again() -> None:
    d = handing_over(m.ScaleRequested(workers=3), kind="worker")
    assert d.fetches == [(2, "worker-2", "worker-1", {"docs": [6, 7]})]
    d.run(State.COMPUTING)
    assert d.controller.computing is not None
    assert d.controller.computing.phase == m.REBUILD
    ends_well(d)


def test_scaling_both_ways_at_once_is_one_view() -> None:
    d = handing_over(m.ScaleRequested(servers=2, workers=3), kind="worker")
    assert d.controller.view.nodes == ("server-0", "server-1", "worker-0", "worker-1", "worker-2")
    assert d.said("handover_started")[0]["joining"] == ["worker-2"]
    assert d.said("handover_started")[0]["leaving"] == ["server-2"]
    ends_well(d)
    assert d.stopped == ["server-2"]


@pytest.mark.parametrize("event", [m.ScaleRequested(servers=0), m.ScaleRequested(servers=4, workers=0)])
def test_nobody_scales_to_nothing(event: m.ScaleRequested) -> None:
    d = computing()
    assert d.feed(event) == ["“request_refused”"]
    assert "are too few; expected at least 1" in d.said("request_refused")[0]["reason"]
    ends_well(d)


def test_a_node_that_is_scaled_away_again_before_it_has_started_never_joins() -> None:
    d = computing()
    d.feed(m.ScaleRequested(servers=4))
    assert d.feed(m.ScaleRequested(servers=3)) == ["“scale_requested”"]
    assert d.deliver(m.NodeJoined) == ["“node_left”", "stop server-3"]
    ends_well(d)
    assert d.controller.view.number == 1


# ------------------------------------------------------------------------------------------------------------ draining
def test_a_drained_node_hands_over_what_it_holds() -> None:
    d = computing()
    assert d.feed(m.DrainRequested("server-0", "asked to")) == ["“drain_requested”"]
    d.run(lambda d: bool(d.said("node_left")))
    assert d.fetches == [(2, "server-1", "server-0", {"w": [0, 1]}), (2, "server-2", "server-0", {"w": [6, 7]})]
    assert d.stopped == ["server-0"]
    ends_well(d)
    assert len(d.said("recovery_completed")) == 1


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("server-7", "there is no node server-7; there are server-0, worker-0, worker-1"),
        ("server-0", "server-0 is the last server; add another one first, or stop the run"),
    ],
)
def test_a_drain_that_cannot_be_is_refused_with_a_reason(node: str, reason: str) -> None:
    d = computing(servers=1)
    assert d.feed(m.DrainRequested(node, "asked to")) == ["“request_refused”"]
    assert d.said("request_refused") == [
        {"name": "request_refused", "request": f"drain {node}", "reason": reason},
    ]
    ends_well(d)


def test_draining_twice_is_draining_once() -> None:
    d = computing()
    d.feed(m.DrainRequested("server-0", "asked to"))
    assert d.feed(m.DrainRequested("server-0", "asked to")) == []
    d.run(lambda d: bool(d.said("handover_started")))
    assert d.feed(m.DrainRequested("server-0", "asked to")) == []
    ends_well(d)
    assert (d.stopped, d.said("request_refused")) == (["server-0"], [])


def test_a_preempted_node_waits_for_its_replacement_if_it_is_the_last() -> None:
    d = computing(servers=1, replaces=True)
    assert d.feed(m.DrainRequested("server-0", "preempted", replace=True)) == ["“drain_requested”", "start server-1"]
    d.run(lambda d: d.clock.iteration == 3, without=(m.NodeJoined,))
    assert d.controller.view.servers == ("server-0",)
    d.run(lambda d: bool(d.said("node_left")))
    assert d.fetches == [(2, "server-1", "server-0", {"w": list(range(8))})]
    ends_well(d)


# ------------------------------------------------------------------------------------------------------- beside a save
def test_the_hand_over_waits_for_the_save_in_flight_and_training_goes_on_meanwhile() -> None:
    d = Driver(checkpoint=PARTIAL, stop=Stop(max_iters=9, eval_every_iters=100))
    d.start()
    d.run(lambda d: d.step is SaveStep.WRITING, without=(m.SaveCommitted,))
    began = d.clock.iteration
    d.feed(m.DrainRequested("server-0", "asked to"))
    d.run(lambda d: d.clock.iteration == began + 3, without=(m.SaveCommitted,))
    assert d.said("handover_started") == []
    d.deliver(m.SaveCommitted)
    d.run(lambda d: bool(d.said("handover_started")))
    assert d.clock.iteration == began + 4, "at the first commit after the save"
    assert d.step is SaveStep.IDLE
    ends_well(d)


def test_the_save_that_is_due_at_the_boundary_of_a_hand_over_is_made_by_the_new_owners() -> None:
    d = handing_over(m.DrainRequested("server-0", "asked to"))
    d.run(lambda d: d.step is SaveStep.STAGING)
    started = d.said("save_started")[-1]
    assert started["iteration"] == d.said("handover_started")[0]["view"] == 2
    assert not any("server-0 ←" in line for line in d.history[-20:])
    ends_well(d)


# ------------------------------------------------------------------------------------------------ losses on the way in
def test_a_joiner_that_is_lost_before_it_is_in_a_view_costs_nothing() -> None:
    d = computing()
    d.feed(m.ScaleRequested(servers=4))
    assert d.lose("server-3") == ["“node_lost”", "“request_refused”"]
    assert d.said("request_refused")[0]["reason"] == "it could not be started"
    ends_well(d)
    assert d.controller.view.number == 1


def test_a_joiner_that_is_ready_and_then_lost_costs_nothing() -> None:
    d = computing()
    d.feed(m.ScaleRequested(servers=4))
    d.deliver(m.NodeJoined)
    assert d.lose("server-3") == ["“node_lost”"]
    ends_well(d)
    assert d.controller.view.number == 1


def test_a_joiner_lost_during_the_hand_over_gives_its_blocks_back_to_be_held_where_they_were() -> None:
    d = handing_over(m.ScaleRequested(servers=4))
    done = d.lose("server-3")
    assert done[:3] == ["“node_lost”", "“view_changed”", "“recovery_started”"]
    assert d.said("recovery_started")[-1]["lost_blocks"] == 0, "its giver holds them still"
    assert done[3:] == [
        "server-0 ← InstallView 2",
        "server-1 ← InstallView 2",
        "server-2 ← InstallView 2",
        "worker-0 ← InstallView 2",
        "worker-1 ← InstallView 2",
    ]
    ends_well(d)


# ----------------------------------------------------------------------------------------------- losses on the way out
def test_a_departing_node_that_is_lost_is_recovered_from_as_any_other() -> None:
    d = handing_over(m.DrainRequested("server-0", "asked to"))
    d.deliver(m.ViewInstalled, "server-1")  # has fetched its part
    assert d.lose("server-0") == [
        "“node_lost”",
        "“view_changed”",
        "“recovery_started”",
        "server-1 ← InstallView 2",
        "server-2 ← InstallView 2 w[6, 7]",
        "worker-0 ← InstallView 2",
        "worker-1 ← InstallView 2",
    ]
    assert d.said("recovery_started")[-1]["lost_blocks"] == 2
    done = d.deliver(m.ViewInstalled)
    assert done[0] == "“recovery_completed”"
    assert d.stopped == []
    assert d.said("handover_completed") == []
    ends_well(d)


def test_a_departing_node_that_has_handed_over_everything_can_be_lost_at_no_cost() -> None:
    d = handing_over(m.DrainRequested("server-0", "asked to"))
    d.deliver(m.ViewInstalled, "server-1")
    d.deliver(m.ViewInstalled, "server-2")
    assert d.lose("server-0") == ["“node_lost”"]
    assert d.state is State.INSTALLING
    done = d.deliver(m.ViewInstalled)
    assert done[0] == "“handover_completed”"
    assert d.stopped == []
    ends_well(d)


def test_a_departing_node_lost_under_full_recovery_takes_everything_back() -> None:
    d = handing_over(m.DrainRequested("server-0", "asked to"), FULL)
    assert d.controller.saves.last_unit == unit(2)
    assert d.lose("server-0") == ["“node_lost”", "claim a term from x(2)"]
    assert d.deliver(m.TermClaimed)[2:] == [
        "server-1 ← InstallView 4 w[0, 1, 2, 3]",
        "server-2 ← InstallView 4 w[4, 5, 6, 7]",
        "worker-0 ← InstallView 4",
        "worker-1 ← InstallView 4",
    ]
    assert d.clock.iteration == 2
    d.run()
    assert d.finish is not None
    assert d.finish.saved


def test_another_node_lost_during_a_hand_over_makes_a_view_that_still_fetches_from_who_departs() -> None:
    d = handing_over(m.DrainRequested("server-0", "asked to"))
    d.deliver(m.ViewInstalled, "server-1")
    assert d.lose("server-1")[3:] == [
        "server-2 ← InstallView 2 w[0, 1, 2, 3] w[6, 7] from server-0",
        "worker-0 ← InstallView 2",
        "worker-1 ← InstallView 2",
    ]
    done = d.deliver(m.ViewInstalled)
    assert done[:3] == ["“recovery_completed”", "“node_left”", "stop server-0"]
    ends_well(d)


def test_a_drained_node_lost_before_the_hand_over_begins_is_an_ordinary_loss() -> None:
    d = computing()
    d.feed(m.DrainRequested("server-0", "asked to"))
    done = d.lose("server-0")
    assert done[1:3] == ["“view_changed”", "“recovery_started”"]
    ends_well(d)
    assert d.said("node_left") == []


def test_who_was_to_leave_stays_when_it_becomes_the_last_of_its_kind() -> None:
    d = computing(servers=2)
    d.feed(m.DrainRequested("server-1", "asked to"))
    assert d.lose("server-0")[:2] == ["“node_lost”", "“request_refused”"]
    ends_well(d)
    assert d.controller.view.servers == ("server-1",)


# --------------------------------------------------------------------------------------------------------- replacement
def test_a_lost_node_is_replaced_and_the_survivors_go_on_meanwhile() -> None:
    d = computing(replaces=True)
    assert d.lose("server-0")[:4] == ["“node_lost”", "start server-3", "“view_changed”", "“recovery_started”"]
    d.run(lambda d: d.clock.iteration == 3, without=(m.NodeJoined,))
    assert d.controller.view.servers == ("server-1", "server-2")
    d.run(lambda d: bool(d.said("handover_completed")))
    assert d.controller.view.servers == ("server-1", "server-2", "server-3")
    assert d.said("handover_started")[0]["joining"] == ["server-3"]
    ends_well(d)


def test_with_all_servers_lost_the_run_waits_for_the_one_that_is_coming() -> None:
    d = computing(servers=1, replaces=True)
    assert d.lose("server-0") == ["“node_lost”", "start server-1", "“waiting_for_node”"]
    assert d.said("waiting_for_node") == [{"name": "waiting_for_node", "kind": "server"}]
    assert d.state is State.WAITING
    assert d.deliver(m.NodeJoined) == [
        "“node_joined”",
        "“view_changed”",
        "“recovery_started”",
        "server-1 ← InstallView 1 w[0, 1, 2, 3, 4, 5, 6, 7]",
        "worker-0 ← InstallView 1",
        "worker-1 ← InstallView 1",
    ]
    assert d.deliver(m.ViewInstalled)[0] == "“recovery_completed”"
    ends_well(d)


def test_with_all_servers_lost_under_full_recovery_a_term_is_claimed_first() -> None:
    d = computing(FULL, at=3, servers=1, replaces=True)
    assert d.lose("server-0") == ["“node_lost”", "start server-1", "claim a term from x(2)"]
    assert d.deliver(m.TermClaimed) == ["“waiting_for_node”"]
    done = d.deliver(m.NodeJoined)
    assert done[3] == "server-1 ← InstallView 3 w[0, 1, 2, 3, 4, 5, 6, 7]"
    assert d.controller.term == 2
    d.run()
    assert d.finish is not None
    assert d.finish.saved


def test_with_both_kinds_lost_the_run_waits_for_both() -> None:
    d = computing(servers=1, workers=1, replaces=True)
    d.lose("server-0")
    assert d.lose("worker-0") == ["“node_lost”", "start worker-1"]
    assert d.deliver(m.NodeJoined, "worker-1") == ["“node_joined”", "“waiting_for_node”"]
    assert d.deliver(m.NodeJoined, "server-1")[1:3] == ["“view_changed”", "“recovery_started”"]
    assert d.controller.view.nodes == ("server-1", "worker-1")
    ends_well(d)


def test_without_a_replacement_coming_the_run_ends_with_its_last_server() -> None:
    d = computing(servers=1)
    assert d.lose("server-0") == ["“node_lost”", "“run_finished”", "finish: nodes-lost, not saved"]


def test_a_request_to_stop_does_not_wait_for_a_node() -> None:
    d = computing(servers=1, replaces=True)
    d.lose("server-0")
    assert d.feed(m.StopRequested("Ctrl-C")) == [
        "“stop_requested”",
        "“run_finished”",
        "finish: nodes-lost, not saved",
    ]
    assert d.finish is not None
    assert d.finish.reason == "stopped while waiting for a node to join"


def test_a_node_scaled_in_and_away_again_is_taken_when_it_is_all_that_is_left() -> None:
    d = computing(servers=1)
    d.feed(m.ScaleRequested(servers=2))
    d.feed(m.ScaleRequested(servers=1))
    assert d.lose("server-0") == ["“node_lost”", "“request_refused”", "“waiting_for_node”"]
    assert d.deliver(m.NodeJoined)[:2] == ["“node_joined”", "“view_changed”"]
    ends_well(d)


def test_a_crash_loop_of_the_last_server_ends() -> None:
    d = computing(servers=1, replaces=True)
    d.lose("server-0")
    for n in range(1, MOST_FAILED_STARTS + 1):
        assert d.lose(f"server-{n}") == ["“node_lost”", f"start server-{n + 1}"]
    done = d.lose(f"server-{MOST_FAILED_STARTS + 1}")
    assert done == ["“node_lost”", "“request_refused”", "“run_finished”", "finish: nodes-lost, not saved"]


def test_a_crash_loop_beside_others_ends_and_they_go_on() -> None:
    d = computing(replaces=True)
    d.lose("server-0")
    for n in range(3, 20):
        if d.controller.membership.coming("server"):
            d.run(lambda d, n=n: d.controller.view.nodes.count(f"server-{n}") > 0)
            d.lose(f"server-{n}")
    assert [r["node"] for r in d.said("node_lost")] == ["server-0", "server-3", "server-4", "server-5", "server-6"]
    assert d.said("request_refused")[0]["request"] == "replace server-6"
    ends_well(d)


# ------------------------------------------------------------------------------------------------------------- silence
def listen(d: Driver, now_s: float, heard: tuple[str, ...]) -> list[str]:
    """Heartbeats of some, then a tick."""
    for node in heard:
        assert d.feed(m.Heartbeat(node, now_s)) == []
    return d.feed(m.Tick(now_s))


def test_a_silent_node_is_stopped_first_and_then_recovered_from() -> None:
    d = computing(silence_s=3.0)
    others = ("server-0", "server-2", "worker-0", "worker-1")
    for now_s in (0.0, 1.0, 2.0, 3.0):
        assert listen(d, now_s, others) == []
    d.inbox = [e for e in d.inbox if getattr(e, "node", None) != "server-1"]
    done = listen(d, 4.0, others)
    assert done == [
        "stop server-1",
        "“node_lost”",
        "“view_changed”",
        "“recovery_started”",
        "server-0 ← InstallView 1",
        "server-2 ← InstallView 1 w[2, 3]",
        "worker-0 ← InstallView 1",
        "worker-1 ← InstallView 1",
    ]
    reason = "no sign of life for 4.0 s; it hangs, is stopped, or is cut off"
    assert d.said("node_lost") == [{"name": "node_lost", "node": "server-1", "reason": reason}]
    assert listen(d, 5.0, others) == [], "once"
    ends_well(d)


def test_heartbeats_keep_a_node_that_does_nothing_else() -> None:
    d = computing(silence_s=3.0)
    for now_s in range(100):
        assert listen(d, float(now_s), d.controller.view.nodes) == []


def test_a_late_heartbeat_does_not_bring_a_node_back() -> None:
    d = computing(silence_s=3.0)
    others = ("server-0", "server-2", "worker-0", "worker-1")
    for now_s in (0.0, 1.0, 2.0, 3.0, 4.0):
        listen(d, now_s, others)
    assert d.feed(m.Heartbeat("server-1", 4.5)) == []
    assert "server-1" not in d.controller.view.nodes


def test_nodes_that_are_ready_or_departing_are_listened_to_as_well() -> None:
    d = computing(silence_s=3.0)
    d.feed(m.ScaleRequested(servers=4))
    d.deliver(m.NodeJoined)
    others = d.controller.view.nodes
    for now_s in (0.0, 1.0, 2.0, 3.0):
        listen(d, now_s, others)
    assert listen(d, 4.0, others) == ["stop server-3", "“node_lost”"]
    d.feed(m.DrainRequested("server-0", "asked to"))
    d.run(lambda d: bool(d.said("handover_started")))
    for now_s in (5.0, 6.0, 7.0):
        listen(d, now_s, d.controller.view.nodes)
    assert listen(d, 8.0, d.controller.view.nodes)[:3] == ["stop server-0", "“node_lost”", "“view_changed”"]


def test_when_all_are_silent_the_run_ends_once() -> None:
    d = computing(silence_s=3.0)
    for now_s in (0.0, 1.0, 2.0, 3.0):
        listen(d, now_s, ())
    listen(d, 4.0, ())
    assert d.finish is not None
    assert d.finish.outcome == "nodes-lost"
    assert d.feed(m.Tick(5.0)) == []


# ------------------------------------------------------------------------------------------------------------ any order
@pytest.mark.parametrize("seed", range(40))
def test_any_order_of_requests_losses_and_answers_ends_well(seed: int) -> None:
    rng = stream(seed, "comings and goings")
    checkpoint = (PARTIAL, FULL, Checkpoint("full", 1, 2), Checkpoint("random", "1/2", 2))[seed % 4]
    d = Driver(
        make_layout(("server", "worker")[seed // 4 % 2]),
        n_phases=1 + seed // 8 % 2,
        checkpoint=checkpoint,
        stop=Stop(max_iters=8),
        replaces=bool(seed // 16 % 2),
    )
    d.start()
    n_left = 8
    for _ in range(5000):
        if not d.inbox or d.finish is not None:
            break
        if n_left and rng.random() < 0.05:
            n_left -= 1
            _something_happens(d, rng)
            continue
        speakers = [getattr(e, "node", f"engine {i}") for i, e in enumerate(d.inbox)]
        d.feed(d.inbox.pop(speakers.index(speakers[int(rng.integers(len(speakers)))])))
    assert d.finish is not None
    assert (d.finish.outcome, d.finish.saved) == ("max-iters", True)


def _something_happens(d: Driver, rng: Any) -> None:
    view, nodes = d.controller.view, d.controller.view.nodes
    node = nodes[int(rng.integers(len(nodes)))]
    peers = [n for n in (view.servers if node in view.servers else view.workers) if n not in d.lost]
    match int(rng.integers(4)):
        case 0 if len(peers) > 1 and node not in d.lost:
            d.lose(node)
        case 1:
            d.feed(m.ScaleRequested(*(int(rng.integers(1, 5)) for _ in range(2))))
        case 2:
            d.feed(m.DrainRequested(node, "preempted", replace=True))
        case _:
            d.feed(m.DrainRequested(node, "asked to"))

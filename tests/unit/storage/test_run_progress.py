"""Records become what a person wants to know of a run."""

from __future__ import annotations

import numpy as np

from scarml.control.history import Record
from scarml.storage.live_status import NodeStatus, SavesStatus, Status
from scarml.storage.run_progress import RunProgress


def after(*records: tuple[str, dict], ages=None) -> RunProgress:
    progress = RunProgress(ages=ages)
    for name, fields in records:
        progress.take_in(Record(name, fields))
    return progress


STARTED = ("run_started", {"servers": ["server-0", "server-1"], "workers": ["worker-0"], "iteration": 4, "executed": 6})


def names(status: Status) -> dict[str, bool]:
    return {n.name: n.alive for n in status.nodes}


def test_all_of_it_becomes_a_status():
    progress = after(
        STARTED,
        ("iteration_committed", {"iteration": 5, "executed": 7}),
        ("loss_evaluated", {"loss_sum": 9.0, "loss_mean": 0.5, "iteration": 5}),
        ("save_committed", {"size_bytes": 100, "iteration": 4}),
        ("save_failed", {"cause": "the disk is full"}),
        ("node_lost", {"node": "server-1", "reason": "killed"}),
        ages=lambda: {"W": np.array([0, 3, 4])},
    )
    assert progress.status(lambda name: (7, "far") if name == "worker-0" else (None, None)) == Status(
        iteration=5,
        executed=7,
        loss={"loss_sum": 9.0, "loss_mean": 0.5},
        activity="training",
        nodes=(
            NodeStatus("server-0", "server"),
            NodeStatus("server-1", "server", alive=False),
            NodeStatus("worker-0", "worker", pid=7, host="far"),
        ),
        saves=SavesStatus(1, 100, 4, 1, 2, "the disk is full"),
    )


def test_nodes_join_and_leave():
    view = {"servers": ["server-0", "server-2"], "workers": ["worker-0"]}
    moving = {"moving_blocks": 1200, "joining": ["server-2"], "leaving": ["server-1"]}
    progress = after(STARTED, ("view_changed", view), ("handover_started", moving))
    assert progress.activity == "handing over 1,200 blocks"
    assert names(progress.status()) == dict.fromkeys(["server-0", "server-1", "server-2", "worker-0"], True)
    progress.take_in(Record("node_left", {"node": "server-1", "reason": "drained"}))
    progress.take_in(Record("handover_completed", {"moved_blocks": 1200, "iteration": 5}))
    assert progress.activity == "training"
    assert names(progress.status()) == dict.fromkeys(["server-0", "server-2", "worker-0"], True)


def test_one_that_is_lost_stays_lost_in_later_views():
    view = {"servers": ["server-0"], "workers": ["worker-0"]}
    progress = after(STARTED, ("node_lost", {"node": "server-1"}), ("view_changed", view))
    assert names(progress.status()) == {"server-0": True, "server-1": False, "worker-0": True}


def test_of_many_lost_nodes_the_last_are_told():
    progress = after(STARTED)
    progress.take_in(Record("view_changed", {"servers": [f"server-{i}" for i in range(2, 1000)], "workers": []}))
    for i in range(2, 1000):
        progress.take_in(Record("node_lost", {"node": f"server-{i}"}))
    lost = [name for name, alive in names(progress.status()).items() if not alive]
    assert lost == [f"server-{i}" for i in range(968, 1000)]


def test_what_it_is_doing():
    for name, fields, activity in (
        ("recovery_started", {"lost_blocks": 1000}, "recovering 1,000 blocks"),
        ("waiting_for_node", {"kind": "server"}, "waiting for a server"),
        ("stop_requested", {"reason": "x"}, "stopping at the next boundary"),
        ("run_finished", {"outcome": "converged"}, "converged"),
    ):
        assert after((name, fields)).activity == activity


def test_ages_that_are_not_known_are_not_told():
    assert after(STARTED, ages=lambda: {"W": np.zeros(3, int)}).status().saves == SavesStatus()


def test_who_was_lost_and_replaced_is_not_counted_any_more():
    progress = after(STARTED)
    before = names(progress.status())
    progress.take_in(Record("node_lost", {"node": "server-0"}))
    assert names(progress.status())["server-0"] is False
    rest = [n for n in before if n.startswith("server") and n != "server-0"]
    progress.take_in(Record("view_changed", {"servers": [*rest, "server-9"], "workers": []}))
    after_that = names(progress.status())
    assert "server-0" not in after_that
    assert after_that["server-9"]
    assert len(after_that) == len(before)


def test_while_processes_start_and_while_a_node_is_missing_the_run_says_so():
    progress = after(("nodes_starting", {"n_nodes": 1}))
    assert progress.status().activity == "starting 1 process"
    progress.take_in(Record(*STARTED))
    progress.take_in(Record("waiting_for_node", {"kind": "worker"}))
    assert progress.status().activity == "waiting for a worker"

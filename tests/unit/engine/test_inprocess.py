"""The engine in one process: its threads, and a cluster whose nodes die while others look."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.unit.engine.nodes import SEED, Cast

from scarml.checkpoint.selection import Checkpoint
from scarml.control import messages as m
from scarml.control.controller import Controller
from scarml.control.history import Record
from scarml.control.stop import Stop
from scarml.engine.fault_plan import FaultPlan, Kill
from scarml.engine.inprocess import InProcess
from scarml.engine.node import Reply
from scarml.engine.threads import ThreadScheduler

WAIT_S = 20.0


def engine(
    *, kills: tuple[str, ...] = (), max_iters: int | None = 5, on_record: Callable[[Record], None] = lambda _: None
) -> InProcess:
    cast = Cast()
    controller = Controller(
        cast.training.layout,
        ["server-0", "server-1", "server-2"],
        ["worker-0", "worker-1"],
        n_phases=1,
        seed=SEED,
        checkpoint=Checkpoint(fraction="1/4", interval_iters=4),
        stop=Stop(max_iters=max_iters),
    )
    return InProcess(
        cast.training,
        controller,
        cast.folder,
        n_threads=2,
        faults=FaultPlan([Kill.parse(k) for k in kills]),
        on_record=on_record,
    )


def test_a_node_is_always_on_the_same_lane_and_in_order() -> None:
    scheduler = ThreadScheduler(3, 1)
    seen: dict[str, list[tuple[int, str]]] = {f"node {n}": [] for n in range(7)}
    for i in range(50):
        for node, log in seen.items():
            scheduler.deliver("controller", node, lambda log=log, i=i: log.append((i, threading.current_thread().name)))  # type: ignore[misc]
    scheduler.close()
    for log in seen.values():
        assert [i for i, _ in log] == list(range(50))
        assert len({thread for _, thread in log}) == 1


def test_an_error_in_any_thread_comes_to_the_one_that_waits_for_events() -> None:
    scheduler = ThreadScheduler(1, 1)
    scheduler.deliver("controller", "node", lambda: 1 // 0)  # type: ignore[arg-type,return-value]
    assert isinstance(scheduler.events.get(timeout=WAIT_S), ZeroDivisionError)
    scheduler.write("node", lambda: {}["x"])
    assert isinstance(scheduler.events.get(timeout=WAIT_S), KeyError)
    scheduler.close()


def test_timers_and_the_clock() -> None:
    scheduler = ThreadScheduler(1, 1)
    before_s = scheduler.now_s()
    scheduler.post(m.TimerFired(1))
    assert scheduler.events.get(timeout=WAIT_S) == m.TimerFired(1)
    scheduler.post(m.TimerFired(2), delay_s=0.01)
    assert scheduler.events.get(timeout=WAIT_S) == m.TimerFired(2)
    assert scheduler.now_s() >= before_s + 0.01
    scheduler.post(m.TimerFired(3), delay_s=1000)
    scheduler.close()
    assert scheduler.events.empty()
    assert all(t.finished.is_set() for t in threading.enumerate() if isinstance(t, threading.Timer))


def test_writes_are_drained() -> None:
    scheduler = ThreadScheduler(2, 1)
    log: list[str] = []
    gate = threading.Event()
    scheduler.write("node", lambda: (gate.wait(WAIT_S), scheduler.deliver("node", "node", lambda: log.append("told"))))  # type: ignore[arg-type,return-value]
    gate.set()
    scheduler.drain_writes()
    assert log == ["told"]
    scheduler.close()


def test_a_run_and_its_times() -> None:
    records: list[Record] = []
    run = engine(on_record=records.append)
    assert run.run(m.Start(1)).outcome == "max-iters"
    times = [r.t_s for r in records]
    assert times == sorted(times)


def test_a_request_to_stop_from_another_thread() -> None:
    def on_record(record: Record) -> None:
        if record.name == "iteration_committed" and record["iteration"] == 3:
            thread = threading.Thread(target=run.post, args=(m.StopRequested("enough"),))
            thread.start()
            thread.join()

    run = engine(max_iters=None, on_record=on_record)
    finish = run.run(m.Start(1))
    assert (finish.outcome, finish.reason, finish.saved) == ("stopped", "enough", True)


def test_losses_are_called_simulated_and_their_perturbation_exact() -> None:
    records: list[Record] = []
    engine(kills=("servers:1@2", "worker-1@3"), on_record=records.append).run(m.Start(1))
    lost = [r for r in records if r.name == "node_lost"]
    assert [r["simulated"] for r in lost] == [True, True]
    assert "killed by the fault plan on x(2), simulated" in lost[0]["reason"]
    first, second = (r for r in records if r.name == "recovery_completed" and r["kind"] != "start")
    assert first["perturbation_is_exact"]
    assert first["perturbation"] > 0
    assert second["perturbation"] == 0, "this model keeps nothing at the workers"


def test_a_dead_node_says_nothing_more() -> None:
    run = engine()
    nodes = run.nodes.live
    run.nodes.kill("server-1", "test")
    assert "server-1" in nodes, "whoever was looking at the nodes sees no change under the eyes"
    assert "server-1" not in run.nodes.live
    assert "server-1" in run.nodes.dead
    scheduler = run._scheduler
    assert scheduler.events.get(timeout=WAIT_S) == m.NodeLost("server-1", "test")
    run.nodes.host("server-1")._pass_on(Reply(m.Prepared("server-1", 1, 1)))
    run.nodes.kill("server-1", "again")
    assert scheduler.events.empty()
    scheduler.close()


def test_a_save_that_a_loss_ended_does_not_mean_that_the_store_fails() -> None:
    seen = []

    def on_record(record: Record) -> None:
        if record.name == "view_changed":
            seen.append(run._store_fails)

    run = engine(kills=("servers:1@2/lag1",), on_record=on_record)
    run.run(m.Start(1))
    assert seen == [False], "else later saves would not be waited for, and the run could not be repeated"

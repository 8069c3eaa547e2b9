"""The controller and held-out metrics: when they are evaluated, what is told, and when training stops by them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.control.driver import Driver

from scarml.checkpoint.selection import Checkpoint
from scarml.control import messages as m
from scarml.control.early_stopping import BestSoFar
from scarml.control.stop import HeldOut, Stop
from scarml.control.transitions import State
from scarml.core.metric import Metric
from scarml.errors import UsageError

RMSE = HeldOut((Metric("rmse", of_mean="root"),), n_examples=4)
RARELY = Checkpoint(fraction="1", interval_iters=100)
OFTEN = Checkpoint(fraction="1", interval_iters=1)


def every(n: int) -> HeldOut:
    return HeldOut(RMSE.metrics, RMSE.n_examples, n)


def of(d: Driver) -> list[tuple[int, float]]:
    return [(r["iteration"], r["metrics"]["rmse"]) for r in d.said("metrics_evaluated")]


def u_shaped(iteration: int) -> float:
    return abs(iteration - 4) + 1.0


def test_the_loss_comes_first_then_the_metrics_then_the_next_phase() -> None:
    d = Driver(checkpoint=RARELY, held_out=RMSE)
    d.start()
    d.run(State.EVALUATING)
    assert d.deliver(m.LossComputed) == [
        "“loss_evaluated”",
        "worker-0 ← EvaluateMetrics 0",
        "worker-1 ← EvaluateMetrics 0",
    ]
    assert d.state is State.EVALUATING
    done = d.deliver(m.MetricsComputed)
    assert done == ["“metrics_evaluated”", "worker-0 ← ComputePhase 1", "worker-1 ← ComputePhase 1"]
    assert d.said("metrics_evaluated") == [
        {"name": "metrics_evaluated", "iteration": 0, "executed": 0, "metrics": {"rmse": 1.0}}
    ]


def test_they_are_evaluated_every_so_many_iterations_and_at_the_end() -> None:
    d = Driver(checkpoint=RARELY, held_out=every(3), stop=Stop(max_iters=8, eval_every_iters=100))
    d.start()
    d.run()
    assert [k for k, _ in of(d)] == [0, 3, 6, 8]
    assert [r["iteration"] for r in d.said("loss_evaluated")] == [0, 8]


def test_sums_are_added_in_the_order_of_shards() -> None:
    d = Driver(workers=1, checkpoint=RARELY, held_out=HeldOut((Metric("mean"),), n_examples=1))
    d.start()
    d.run(State.EVALUATING)
    d.deliver(m.LossComputed)
    d.inbox = []
    sums = [1.0, 1e100, 1.0, -1e100]
    for shard in (3, 1, 2):
        assert d.feed(m.MetricsComputed("worker-0", 1, 0, {shard: {"mean": sums[shard]}})) == []
    assert d.feed(m.LossComputed("worker-0", 1, 0, {0: 7.0})) == [], "the loss is known: a late part of it is nothing"
    d.feed(m.MetricsComputed("worker-0", 1, 0, {0: {"mean": sums[0]}}))
    assert d.said("metrics_evaluated")[0]["metrics"] == {"mean": 0.0}


def test_training_stops_when_the_metric_gets_no_better() -> None:
    d = Driver(checkpoint=RARELY, held_out=every(2), stop=Stop(max_iters=99, patience=2))
    d.rmse = u_shaped
    d.start()
    d.run()
    assert d.finish == m.Finish("stopped-early", "rmse was no better in 2 evaluations: the best was 1 on x(4)", True)
    assert of(d) == [(0, 5.0), (2, 3.0), (4, 1.0), (6, 3.0), (8, 5.0)]
    last = d.said("metrics_evaluated")[-1]
    assert [last[k] for k in ("stops_by", "best", "best_iteration", "n_since_best")] == ["rmse", 1.0, 4, 2]
    assert d.said("run_finished")[0]["iteration"] == 8


def test_convergence_counts_before_the_metric_and_the_metric_before_the_limit() -> None:
    for stop, outcome in [
        (Stop(loss_sum_below=2.0, patience=1), "converged"),
        (Stop(max_iters=1, patience=1), "stopped-early"),
        (Stop(max_iters=1, patience=2), "max-iters"),
    ]:
        d = Driver(checkpoint=RARELY, held_out=RMSE, stop=stop)
        d.start()
        d.run()
        assert d.finish is not None
        assert d.finish.outcome == outcome


@pytest.mark.parametrize("node", ["worker-0", "server-1"])
def test_a_node_lost_meanwhile_is_recovered_from_and_the_state_evaluated_anew(node: str) -> None:
    d = Driver(checkpoint=RARELY, held_out=RMSE, stop=Stop(max_iters=4, patience=9))
    d.rmse = u_shaped
    d.start()
    d.run(lambda d: d.clock.iteration == 2 and d.state is State.EVALUATING)
    d.deliver(m.LossComputed)
    d.deliver(m.MetricsComputed, "worker-1")
    late = d.next_is(m.MetricsComputed)
    d.lose(node)
    d.rmse = lambda iteration: u_shaped(iteration) + 0.5
    assert d.state is State.INSTALLING
    d.feed(late)
    d.run()
    assert of(d) == [(0, 5.0), (1, 4.0), (2, 3.5), (3, 2.5), (4, 1.5)]
    last = d.said("metrics_evaluated")[-1]
    assert (last["best"], last["n_since_best"]) == (1.5, 0)


def test_a_save_takes_with_it_what_was_known_before_it() -> None:
    d = Driver(checkpoint=OFTEN, held_out=every(2), stop=Stop(max_iters=5, patience=9))
    d.rmse = u_shaped
    d.start()
    d.run()
    known = [d.extras[i]["early_stopping"] for i in sorted(d.extras)]
    assert [(k["iteration"], k["best"], k["n_since"]) for k in known] == [
        (0, 5.0, 0),  # of x(1)
        (0, 5.0, 0),
        (2, 3.0, 0),
        (2, 3.0, 0),
        (4, 1.0, 0),
        (4, 1.0, 0),  # of the end
    ]


def test_without_early_stopping_nothing_is_stored_beside_the_blocks() -> None:
    d = Driver(checkpoint=OFTEN, held_out=RMSE)
    d.start()
    d.run()
    assert set(d.extras.values()) == {None}


@pytest.mark.parametrize("killed_at", [3, 4, 5, 6, 7])
def test_going_on_from_a_save_judges_as_if_nothing_had_happened(killed_at: int) -> None:
    def driver() -> Driver:
        d = Driver(checkpoint=OFTEN, held_out=every(2), stop=Stop(max_iters=99, patience=2))
        d.rmse = u_shaped
        return d

    killed = driver()
    killed.start()
    killed.run(lambda d: d.clock.iteration == killed_at and d.state is State.COMPUTING)
    newest = max(killed.extras)
    at = killed.said("save_started")[-1]["iteration"]
    resumed = driver()
    resumed.start(term=2, commit=at, iteration=at, best=BestSoFar.from_extra(killed.extras[newest]))
    resumed.run()
    assert resumed.finish is not None
    assert resumed.finish.reason == "rmse was no better in 2 evaluations: the best was 1 on x(4)"
    assert resumed.clock.iteration == 8


def test_an_evaluation_of_the_end_out_of_turn_does_not_count() -> None:
    stopped = Driver(checkpoint=OFTEN, held_out=every(4), stop=Stop(max_iters=5, patience=9))
    stopped.rmse = lambda iteration: 1.0 + iteration
    stopped.start()
    stopped.run()
    assert [(r["iteration"], r["n_since_best"]) for r in stopped.said("metrics_evaluated")] == [(0, 0), (4, 1), (5, 1)]


def test_a_full_recovery_counts_again_from_where_it_goes_back_to() -> None:
    full = Checkpoint("full", "1", 4, "full")
    d = Driver(checkpoint=full, held_out=RMSE, stop=Stop(max_iters=99, patience=5))
    d.rmse = u_shaped
    d.start()
    d.run(lambda d: d.clock.iteration == 7 and d.state is State.COMPUTING)
    assert d.said("metrics_evaluated")[-1]["n_since_best"] == 3
    d.lose("server-0")
    d.run()
    values: list[Any] = [(r["iteration"], r["n_since_best"]) for r in d.said("metrics_evaluated")]
    assert values[:8] == [*((k, 0) for k in range(5)), (5, 1), (6, 2), (7, 3)]
    assert values[8:] == [(4, 0), (5, 1), (6, 2), (7, 3), (8, 4), (9, 5)]
    assert d.finish is not None
    assert d.finish.outcome == "stopped-early"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stop(patience=0), "--patience is 0; expected at least 1"),
        (lambda: Stop(patience=1, min_delta=-1), "--min-delta is -1; expected a finite number of at least 0"),
        (lambda: Stop(patience=1, min_delta=float("nan")), "--min-delta is nan"),
        (lambda: Stop(metric="rmse"), "--metric is for early stopping; give --patience as well"),
        (lambda: Stop(min_delta=0.1), "--min-delta is for early stopping"),
        (lambda: every(0), "--metrics-every is 0; expected at least 1"),
        (lambda: HeldOut(RMSE.metrics, 0), "the held-out data has no examples"),
        (lambda: Driver(stop=Stop(patience=1)), "the model has none"),
        (lambda: Driver(stop=Stop(patience=1, metric="f1"), held_out=RMSE), "'f1' is unknown; the model has rmse"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()

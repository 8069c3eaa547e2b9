"""What the event log tells of convergence."""

from __future__ import annotations

from typing import Any

from scarml.storage.loss_history import LossCurve, PastRecovery, iteration_seconds, loss_curves, past_recoveries


def loss(iteration: Any, value: Any) -> dict[str, Any]:
    return {"event": "loss_evaluated", "iteration": iteration, "loss_sum": value}


def recovery(kind: str, lost: int, age: float | None, **more: Any) -> dict[str, Any]:
    return {
        "event": "recovery_completed",
        "kind": kind,
        "lost_blocks": lost,
        "mean_age_iters": age,
        "iteration": 2,
        **more,
    }


def test_curves_are_cut_where_something_was_lost_and_not_where_nothing_was() -> None:
    events = [
        recovery("start", 0, None), loss(0, 9.0), loss(1, 5.0), recovery("partial", 3, 1.5), loss(1, 6.0), loss(2, 4.0),
        recovery("start", 0, 0.0), loss(2, 4.0), loss(3, 3.0),  # resumed with everything saved
        recovery("start", 0, 2.5), loss(2, 4.5),  # resumed after kill -9
        {"event": "rolled_back", "iteration": 0}, loss(0, 9.0), loss(2, 4.0), loss(1, 5.0),
    ]  # fmt: skip
    assert loss_curves(events) == [
        LossCurve((0, 1), (9.0, 5.0)),
        LossCurve((1, 2, 3), (6.0, 4.0, 3.0)),
        LossCurve((2,), (4.5,)),
        LossCurve((0, 2), (9.0, 4.0)),
        LossCurve((1,), (5.0,)),
    ]


def test_odd_events_count_for_nothing() -> None:
    odd = [loss("0", 1.0), loss(0, "1"), loss(True, 1.0), loss(1, float("nan")), loss(2, True), {"event": 3}, {}]
    assert loss_curves(odd) == []
    assert past_recoveries([*odd, {"event": "recovery_completed", "iteration": 1, "lost_blocks": "3"}]) == []
    assert iteration_seconds([*odd, {"event": "iteration_committed", "t_s": "soon"}]) is None


def test_past_recoveries_say_what_was_noted() -> None:
    events = [recovery("start", 0, None), recovery("partial", 3, 1.5, perturbation=0.25), recovery("full", 2, None)]
    assert past_recoveries(events) == [
        PastRecovery(2, "partial", 3, 1.5, 0.25),
        PastRecovery(2, "full", 2, None, None),
    ]


def test_iteration_seconds_leave_out_what_a_recovery_took() -> None:
    at = [1.0, 2.0, 3.0]
    commits: list[dict[str, Any]] = [{"event": "iteration_committed", "t_s": t} for t in at]
    later: list[dict[str, Any]] = [{"event": "iteration_committed", "t_s": t} for t in (100.0, 101.0)]
    assert iteration_seconds([*commits, recovery("partial", 1, 1.0), *later]) == 1.0
    assert iteration_seconds(commits[:1]) is None

"""Failures on purpose: what can be asked for, and who is lost."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from scarml.control.view import View
from scarml.engine.fault_plan import FaultPlan, Kill
from scarml.errors import UsageError

VIEW = View(1, ("server-0", "server-1", "server-2", "server-3"), ("worker-0", "worker-1"), {}, ())


@pytest.mark.parametrize(
    ("text", "kill"),
    [
        ("servers:2@20", Kill("servers", 2, 20)),
        ("workers:1@0", Kill("workers", 1, 0)),
        ("servers:1/2@7", Kill("servers", Fraction(1, 2), 7)),
        ("servers:1/1@7/lag1", Kill("servers", Fraction(1), 7, 1)),
        ("server-3@20", Kill("servers", "server-3", 20)),
        ("worker-12@3/lag0", Kill("workers", "worker-12", 3, 0)),
    ],
)
def test_parse(text: str, kill: Kill) -> None:
    assert Kill.parse(text) == kill


@pytest.mark.parametrize(
    "text",
    [
        "",
        "servers",
        "servers:2",
        "nodes:2@20",
        "servers:-1@2",
        "servers:2@x",
        "servers:2@2/lag2",
        " servers:2@2",
        "server-@2",
    ],
)
def test_what_cannot_be_parsed_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match=r"--kill '.*' is not understood; expected for example servers:2@20"):
        Kill.parse(text)


@pytest.mark.parametrize("text", ["servers:0@2", "workers:0/3@2", "servers:3/2@2", "servers:1/0@2"])
def test_nobody_or_more_than_all_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--kill '.*' loses no node, or more than all; expected at least one node"):
        Kill.parse(text)


@pytest.mark.parametrize("rate", [-0.1, 1, 1.5, float("nan")])
def test_a_rate_that_is_no_probability_is_refused(rate: float) -> None:
    with pytest.raises(UsageError, match=r"--fail-rate is .*; expected a probability per iteration, 0 <= rate < 1"):
        FaultPlan(fail_rate=rate)


def test_each_kill_fires_once_at_its_iteration_and_lag() -> None:
    plan = FaultPlan([Kill.parse("servers:2@5"), Kill.parse("worker-1@5/lag1"), Kill.parse("servers:1/2@3")])
    assert plan.due(4, 0, VIEW) == []
    assert len(plan.unfired) == 3
    assert len(set(plan.due(5, 0, VIEW))) == 2
    assert plan.due(5, 0, VIEW) == []
    assert plan.due(5, 1, VIEW) == ["worker-1"]
    assert plan.unfired == [Kill("servers", Fraction(1, 2), 3)]
    assert plan.n_fired == 3


def test_two_kills_at_once_take_different_nodes() -> None:
    plan = FaultPlan([Kill.parse("servers:2@5"), Kill.parse("servers:2@5")])
    assert sorted(plan.due(5, 0, VIEW)) == list(VIEW.servers)


@pytest.mark.parametrize(
    ("text", "n"), [("servers:1/2@1", 2), ("servers:1/9@1", 1), ("servers:9@1", 4), ("workers:2/3@1", 1)]
)
def test_how_many_are_lost(text: str, n: int) -> None:
    assert len(FaultPlan([Kill.parse(text)]).due(1, 0, VIEW)) == n


def test_a_kill_of_a_node_that_is_not_there_stays_unfired() -> None:
    plan = FaultPlan([Kill.parse("server-9@1")])
    assert plan.due(1, 0, VIEW) == []
    assert plan.unfired == [Kill.parse("server-9@1")]
    assert plan.n_fired == 0
    assert plan.due(1, 0, VIEW) == []


def test_the_seed_decides() -> None:
    def victims(seed: int) -> list[list[str]]:
        plan = FaultPlan([Kill("servers", 1, k) for k in range(20)], seed=seed)
        return [plan.due(k, 0, VIEW) for k in range(20)]

    assert victims(1) == victims(1)
    assert victims(1) != victims(2)
    assert {v for vs in victims(1) for v in vs} == set(VIEW.servers), "all are drawn sooner or later"


def test_random_failures_have_the_rate_and_spare_the_last_server() -> None:
    plan = FaultPlan(fail_rate=0.25, seed=3)
    n = sum(len(plan.due(k, 0, VIEW)) for k in range(4000))
    assert abs(n / 4000 - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 4000)
    assert plan.due(1, 1, VIEW) == []
    last = View(1, ("server-2",), ("worker-0",), {}, ())
    assert all(plan.due(k, 0, last) == [] for k in range(100))


def test_whether_anybody_is_ever_lost() -> None:
    assert FaultPlan().is_empty
    assert not FaultPlan(fail_rate=0.1).is_empty
    plan = FaultPlan([Kill.parse("servers:1@1")])
    plan.due(1, 0, VIEW)
    assert not plan.is_empty

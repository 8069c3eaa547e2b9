"""A node's lease: how long it may go on without having heard the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scarml.control import messages as m
from scarml.engine.lease import FOR_EVER, Lease
from scarml.engine.node import Reply, Store, Stored
from scarml.engine.node_host import NodeHost


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_lease_lasts_until_the_controller_has_been_silent_for_longer_than_it(clock: Clock) -> None:
    lease = Lease(3.0, clock)
    clock.now_s = 103.0
    assert not lease.is_over
    clock.now_s = 103.1
    assert lease.is_over


def test_every_word_of_the_controller_renews_it(clock: Clock) -> None:
    lease = Lease(3.0, clock)
    for clock.now_s in (102.0, 104.0, 106.0):
        lease.renew()
    clock.now_s = 109.0
    assert not lease.is_over
    clock.now_s = 109.1
    assert lease.is_over


def test_too_late_is_too_late(clock: Clock) -> None:
    lease = Lease(3.0, clock)
    clock.now_s = 104.0
    lease.renew()
    assert lease.is_over
    clock.now_s = 100.0
    assert lease.is_over, "even if the clock is turned back"


def test_a_lease_without_length_lasts_for_ever(clock: Clock) -> None:
    lease = Lease(None, clock)
    clock.now_s = 1e12
    assert not lease.is_over
    assert not FOR_EVER.is_over


# ---------------------------------------------------------------------------------------------------------- its effect
class Counting:
    """A node that answers every order, and counts them; its answers; and what would be done later."""

    def __init__(self, outputs: list[Any] | None = None) -> None:
        self.name = "server-0"
        self.orders: list[Any] = []
        self.said: list[m.Event] = []
        self.later: list[Callable[[], None]] = []
        self._outputs = [Reply(m.Committed("server-0", 1, 1))] if outputs is None else outputs

    def handle(self, order: Any) -> list[Any]:
        self.orders.append(order)
        return self._outputs

    def passes(self, source: str, output: Any) -> bool:
        return True

    def post(self, source: str, event: m.Event) -> None:
        self.said.append(event)

    def write(self, node: str, task: Callable[[], None]) -> None:
        self.later.append(task)

    def deliver(self, source: str, node: str, task: Callable[[], None], may_repeat: bool = False) -> None:
        task()


class NoFolder:
    """A run folder into which nobody may write."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} of the run folder is used")


def host(node: Any, lease: Lease) -> NodeHost:
    return NodeHost(node, NoFolder(), node, node, lease)  # type: ignore[arg-type]


def test_a_node_whose_lease_is_over_obeys_nothing(clock: Clock) -> None:
    node = Counting()
    it = host(node, Lease(3.0, clock))
    it.give(m.GiveUpSave(1))
    clock.now_s = 104.0
    it.give(m.GiveUpSave(2))
    assert node.orders == [m.GiveUpSave(1)]
    assert node.said == [m.Committed("server-0", 1, 1)]
    assert it.is_over


def test_what_was_staged_before_is_not_stored_after_the_lease_is_over(clock: Clock) -> None:
    node = Counting([Store(None)])  # type: ignore[arg-type]
    it = host(node, Lease(3.0, clock))
    it.give(m.GiveUpSave(1))
    clock.now_s = 104.0
    (write,) = node.later
    write()
    assert not any(isinstance(order, Stored) for order in node.orders)


def test_a_node_that_has_been_closed_is_over_whatever_its_lease(clock: Clock) -> None:
    node = Counting()
    it = host(node, Lease(3.0, clock))
    it.close()
    it.give(m.GiveUpSave(1))
    assert it.is_over
    assert node.orders == []

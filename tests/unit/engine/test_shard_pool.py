"""Threads that work on shards: their order, and that nobody gets far ahead."""

from __future__ import annotations

import threading
from collections.abc import Callable

from scarml.engine.shard_pool import ShardPool

WAIT_S = 20.0


def run(task: Callable[[], None]) -> None:
    task()


def test_lower_shards_come_first_and_losses_before_all() -> None:
    order: list[str] = []
    gate, done = threading.Event(), threading.Event()
    pool = ShardPool(1, 100, run)
    pool.submit(1, 0, lambda: gate.wait(WAIT_S))  # type: ignore[arg-type,return-value]
    for shard in (5, 3, 4):
        pool.submit(1, shard, lambda s=shard: order.append(f"shard {s}"))  # type: ignore[misc]
    pool.submit(0, 9, lambda: order.append("loss 9"))
    pool.submit(2, 0, lambda: (order.append("next phase"), done.set()))  # type: ignore[arg-type,return-value]
    gate.set()
    assert done.wait(WAIT_S)
    pool.close()
    assert order[-4:] == ["shard 3", "shard 4", "shard 5", "next phase"]
    assert "loss 9" in order


def test_a_shard_waits_until_what_is_far_before_it_is_folded() -> None:
    begun: list[int] = []
    changed = threading.Condition()

    def begin(shard: int) -> None:
        with changed:
            begun.append(shard)
            changed.notify_all()

    def have_begun(n: int) -> bool:
        with changed:
            return changed.wait_for(lambda: len(begun) >= n, WAIT_S)

    pool = ShardPool(2, 3, run)
    for shard in range(8):
        pool.submit(1, shard, lambda s=shard: begin(s))  # type: ignore[misc]
    assert have_begun(3)
    pool.folded(1, 2)
    assert have_begun(5)
    pool.folded(1, 8)
    assert have_begun(8)
    pool.close()
    assert sorted(begun) == list(range(8))


def test_shards_of_an_earlier_commit_are_not_held_back() -> None:
    done = threading.Event()
    pool = ShardPool(1, 1, run)
    pool.folded(7, 0)
    pool.submit(3, 99, done.set)
    assert done.wait(WAIT_S)
    pool.close()


def test_word_of_an_earlier_commit_is_ignored() -> None:
    begun = threading.Event()
    pool = ShardPool(1, 2, run)
    pool.folded(2, 0)
    pool.folded(1, 50)
    pool.submit(2, 1, begun.set)
    assert begun.wait(WAIT_S)
    pool.submit(2, 2, lambda: None)
    pool.close()  # shard 2 has not begun, and close does not wait for it


def test_what_a_task_raises_goes_to_the_guard_and_the_thread_goes_on() -> None:
    caught: list[BaseException] = []
    done = threading.Event()

    def guard(task: Callable[[], None]) -> None:
        try:
            task()
        except ZeroDivisionError as e:
            caught.append(e)

    pool = ShardPool(1, 9, guard)
    pool.submit(1, 0, lambda: 1 // 0)  # type: ignore[arg-type,return-value]
    pool.submit(1, 1, done.set)
    assert done.wait(WAIT_S)
    pool.close()
    assert len(caught) == 1

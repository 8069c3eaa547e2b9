"""A worker: shards, its own blocks, repeats, views."""

from __future__ import annotations

import pytest
from tests.unit.engine.nodes import SEED, Cast, replies

from scarml.control import messages as m
from scarml.control.view import next_view
from scarml.core.model import Context
from scarml.core.sequential import Sequential
from scarml.engine.node import RunShards
from scarml.testing import tiny_problem

pytestmark = pytest.mark.usefixtures("single_threaded_blas")
FIRST = m.ComputePhase(1, 1, Context(SEED, 1))


def test_it_computes_its_shards_and_sends_every_server_its_part() -> None:
    cast = Cast(servers=3)
    worker = cast.workers["worker-1"]
    (run,) = worker.handle(FIRST)
    assert isinstance(run, RunShards)
    assert run.shards == (1, 3)
    result = worker.run_shard(FIRST, 1)
    assert result is not None
    assert [p.node for p in result.pushes] == ["server-0", "server-1", "server-2"]
    for push in result.pushes:
        owned = cast.servers[push.node].holder.blocks["W"].ids
        assert isinstance(push.order, m.Push)
        assert all(u.ids.tolist() == owned.tolist() for u in push.order.updates)  # type: ignore[union-attr]


def test_it_is_prepared_when_all_its_shards_are_done() -> None:
    cast = Cast()
    worker = cast.workers["worker-0"]
    worker.handle(FIRST)
    a, b = worker.run_shard(FIRST, 0), worker.run_shard(FIRST, 2)
    assert a is not None
    assert b is not None
    assert replies(worker.handle(b)) == []
    assert worker.handle(b) == [], "a repeat"
    n_examples = sum(s.n_examples for s in cast.training.shards[::2])
    assert replies(worker.handle(a)) == [m.Prepared("worker-0", 1, 1, n_examples)]
    assert worker.handle(FIRST) == [], "a repeated order"


def test_a_worker_without_shards_is_prepared_at_once() -> None:
    cast = Cast(workers=6)
    assert replies(cast.workers["worker-5"].handle(FIRST)) == [m.Prepared("worker-5", 1, 1)]


def test_its_own_blocks_change_with_the_commit_and_not_before() -> None:
    cast = Cast("lda")
    cast.commit(1, m.REBUILD)
    before = {n: w.holder.blocks["assignments"].copy() for n, w in cast.workers.items()}
    order = m.ComputePhase(1, 2, Context(SEED, 1))
    for name, worker in cast.workers.items():
        worker.handle(order)
        for shard in cast.view.shards_of(name):
            result = worker.run_shard(order, shard)
            assert result is not None
            worker.handle(result)
        assert not worker.holder.blocks["assignments"].differs_from(before[name]).any()
        worker.handle(m.CommitPhase(1, 2, Context(SEED, 1)))
    model, data = tiny_problem("lda")
    sequential = Sequential(model, data, seed=SEED, n_shards=4)
    sequential.step()
    for worker in cast.workers.values():
        mine = worker.holder.blocks["assignments"]
        assert not mine.differs_from(sequential.state["assignments"].take(mine.ids)).any()


def test_a_phase_that_was_not_decided_leaves_no_trace() -> None:
    cast = Cast("lda")
    cast.commit(1, m.REBUILD)
    before = cast.workers["worker-0"].holder.blocks["assignments"].copy()
    cast.compute(2, 0, worker="worker-0")
    worker = cast.workers["worker-0"]
    worker.handle(m.InstallView(next_view(cast.view, ["server-1"]), 1, 1, {}))
    assert worker.handle(m.CommitPhase(1, 2, Context(SEED, 1))) == []
    assert not worker.holder.blocks["assignments"].differs_from(before).any()


@pytest.mark.parametrize(
    "order",
    [
        m.ComputePhase(2, 1, Context(SEED, 1)),
        m.ComputePhase(1, 2, Context(SEED, 1)),
        m.EvaluateLoss(2, 0),
        m.EvaluateLoss(1, 1),
        m.CommitPhase(1, 2, Context(SEED, 1)),
        m.CommitPhase(2, 1, Context(SEED, 1)),
    ],
)
def test_orders_of_another_view_or_commit_are_ignored(order: m.NodeOrder) -> None:
    cast = Cast()
    assert cast.workers["worker-0"].handle(order) == []
    assert cast.workers["worker-0"].holder.commit == 0


def test_the_result_of_a_shard_of_an_old_view_is_dropped() -> None:
    cast = Cast()
    worker = cast.workers["worker-0"]
    worker.handle(FIRST)
    late = worker.run_shard(FIRST, 0)
    assert late is not None
    worker.handle(m.InstallView(next_view(cast.view, ["worker-1"]), 1, 0, {}))
    assert worker.handle(late) == []


def test_a_shard_that_needs_a_server_that_is_gone_gives_nothing() -> None:
    cast = Cast()
    del cast.servers["server-1"]
    worker = cast.workers["worker-0"]
    worker.handle(FIRST)
    assert worker.run_shard(FIRST, 0) is None


def test_the_loss_of_its_shards() -> None:
    cast = Cast()
    model, data = tiny_problem("mlr")
    total = 0.0
    order = m.EvaluateLoss(1, 0)
    losses: dict[int, float] = {}
    for worker in cast.workers.values():
        (run,) = worker.handle(order)
        assert isinstance(run, RunShards)
        results = [worker.run_shard(order, shard) for shard in run.shards]
        told = [event for result in results if result is not None for event in replies(worker.handle(result))]
        assert len(told) == 1, "one event for all shards"
        losses |= told[0].losses
    for shard in sorted(losses):
        total += losses[shard]
    assert total == Sequential(model, data, seed=SEED, n_shards=4).loss_sum()


def test_reads_of_whole_tables_are_shared_between_shards_of_one_commit() -> None:
    cast = Cast()
    n_reads = 0
    read = cast.read

    def counted(*args: object) -> object:
        nonlocal n_reads
        n_reads += 1
        return read(*args)  # type: ignore[arg-type]

    cast.read = counted  # type: ignore[assignment,method-assign]
    cast.compute(worker="worker-0")
    assert n_reads == 1, "of all servers at once, for two shards"


def test_in_a_repair_it_works_on_the_lost_parts_of_its_shards() -> None:
    cast = Cast("lda")
    cast.commit(1, m.REBUILD)
    worker = cast.workers["worker-0"]
    lost = {"assignments": worker.holder.blocks["assignments"].ids[::2]}
    order = m.ComputePhase(1, 2, Context(SEED, 1, repair=1), lost)
    worker.handle(order)
    prepared = []
    for index in cast.view.shards_of("worker-0"):
        result = worker.run_shard(order, index)
        assert result is not None
        for blocks in result.local:
            mine = cast.training.shards[index].blocks["assignments"]
            assert blocks.ids.tolist() == [i for i in mine.tolist() if i in lost["assignments"]]
        prepared += replies(worker.handle(result))
    n_tokens = cast.training.layout.tables["assignments"].block_lengths[lost["assignments"]].sum()
    assert prepared == [m.Prepared("worker-0", 1, 2, int(n_tokens))]

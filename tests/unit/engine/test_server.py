"""A server: folding, repeats, commits, views, and its part of a save."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from tests.unit.engine.nodes import FAILED, SEED, SUPERSEDED, WRITTEN, Cast, replies, save, segments

from scarml.control import messages as m
from scarml.control.view import next_view
from scarml.core.block import Blocks
from scarml.core.model import Context
from scarml.core.sequential import Sequential
from scarml.engine.node import ShardResult, Stored
from scarml.errors import ProtocolError
from scarml.storage.faulty import FaultyStore
from scarml.testing import tiny_problem

pytestmark = pytest.mark.usefixtures("single_threaded_blas")


def weights(cast: Cast) -> Blocks:
    table = cast.training.layout.tables["W"]
    whole = table.empty(table.all_ids)
    for s in cast.servers.values():
        whole.put(s.holder.blocks["W"])
    return whole


@pytest.mark.parametrize("order", list(permutations(range(4)))[::5])
def test_pushes_are_folded_in_the_order_of_shards_whatever_order_they_come_in(order: tuple[int, ...]) -> None:
    cast = Cast()
    pushes = cast.compute()
    for shard in order:
        for p in pushes:
            if p.order.shard == shard:
                cast.servers[p.node].handle(p.order)
    for s in cast.servers.values():
        assert s.n_folded == 4
        s.handle(m.CommitPhase(1, 1, Context(SEED, 1)))
    model, data = tiny_problem("mlr")
    run = Sequential(model, data, seed=SEED, n_shards=4)
    run.step()
    assert not weights(cast).differs_from(run.state["W"]).any()


def test_it_is_prepared_when_it_has_every_shard_and_says_so_once() -> None:
    cast = Cast()
    server = cast.servers["server-1"]
    said = [replies(server.handle(p.order)) for p in cast.compute() if p.node == "server-1"]
    assert said == [[], [], [], [m.Prepared("server-1", 1, 1)]]


def test_a_repeated_push_counts_once() -> None:
    cast, other = Cast(), Cast()
    for p in cast.compute():
        cast.servers[p.node].handle(p.order)
        assert cast.servers[p.node].handle(p.order) == []
    for p in other.compute():
        other.servers[p.node].handle(p.order)
    for c in (cast, other):
        for s in c.servers.values():
            s.handle(m.CommitPhase(1, 1, Context(SEED, 1)))
    assert not weights(cast).differs_from(weights(other)).any()


def test_nothing_is_visible_before_the_commit() -> None:
    cast = Cast()
    before = weights(cast)
    for p in cast.compute():
        cast.servers[p.node].handle(p.order)
    assert not weights(cast).differs_from(before).any()


@pytest.mark.parametrize(("view", "commit"), [(2, 1), (0, 1), (1, 2), (1, 0)])
def test_pushes_and_commits_of_another_view_or_commit_are_ignored(view: int, commit: int) -> None:
    cast = Cast()
    push = cast.compute()[0].order
    server = cast.servers["server-0"]
    assert server.handle(m.Push(view, commit, push.ctx, push.shard, push.updates)) == []
    assert server.n_folded == 0
    assert server.handle(m.CommitPhase(view, commit, push.ctx)) == []
    assert server.holder.commit == 0


def test_a_commit_before_all_is_folded_is_an_error() -> None:
    cast = Cast()
    server = cast.servers["server-0"]
    with pytest.raises(ProtocolError, match="server-0 was told to commit 1 with 0 shards folded"):
        server.handle(m.CommitPhase(1, 1, Context(SEED, 1)))


def test_it_computes_no_shards() -> None:
    cast = Cast()
    with pytest.raises(ProtocolError, match="server-0 is a server and computes no shards"):
        cast.servers["server-0"].handle(ShardResult(m.EvaluateLoss(1, 0), 0))


def test_reads_are_of_one_view_and_commit() -> None:
    cast = Cast()
    server = cast.servers["server-0"]
    mine = server.holder.blocks["W"].ids
    got = server.read(1, 0, {"W": mine[1:3]})
    assert got is not None
    assert got["W"].ids.tolist() == mine[1:3].tolist()
    whole = server.read(1, 0, {"W": None})
    assert whole is not None
    assert whole["W"].ids.tolist() == mine.tolist()
    assert server.read(2, 0, {"W": None}) is None
    assert server.read(1, 1, {"W": None}) is None


def test_a_new_view_empties_what_was_not_decided() -> None:
    cast = Cast()
    for p in cast.compute()[:3]:
        cast.servers[p.node].handle(p.order)
    view = next_view(cast.view, ["worker-1"])
    server = cast.servers["server-0"]
    assert replies(server.handle(m.InstallView(view, 1, 0, {}))) == [m.ViewInstalled("server-0", 2)]
    assert server.n_folded == 0


def test_a_new_view_brings_lost_blocks_from_the_store_and_leaves_its_own() -> None:
    cast = Cast()
    cast.commit(1)
    lost = cast.servers["server-1"].holder.blocks["W"]
    (segment,) = segments(cast.servers["server-1"].handle(save(1, lost.ids[:2])))
    cast.folder.write_segment(segment)
    at_save = lost.take(lost.ids[:2])
    cast.commit(2)
    server = cast.servers["server-0"]
    mine = server.holder.blocks["W"].copy()
    (event,) = replies(server.handle(m.InstallView(next_view(cast.view, ["server-1"]), 1, 2, {"W": lost.ids})))
    assert (event.restored, event.from_x0, event.oldest, event.newest) == (2, len(lost) - 2, 1, 1)
    now = server.holder.blocks["W"]
    assert not now.take(mine.ids).differs_from(mine).any()
    assert not now.take(at_save.ids).differs_from(at_save).any()
    assert not now.take(lost.ids[2:]).value.any()  # MLR starts at zero
    cache = server.holder.caches["W"]
    assert cache.durable.commit[np.isin(cache.ids, at_save.ids)].tolist() == [1, 1]


def test_a_view_that_cannot_be_loaded_changes_nothing() -> None:
    cast = Cast()
    faulty = FaultyStore(cast.store)
    cast.folder.store = faulty
    cast.folder._terms._store = faulty
    faulty.fail_until_healed("connection lost")
    server = cast.servers["server-0"]
    before = server.holder.blocks["W"]
    order = m.InstallView(
        next_view(cast.view, ["server-1"]), 1, 0, {"W": cast.servers["server-1"].holder.blocks["W"].ids}
    )
    (event,) = replies(server.handle(order))
    assert isinstance(event, m.LoadFailed)
    assert "connection lost" in event.cause
    assert server.holder.view is cast.view
    assert server.holder.blocks["W"] is before
    faulty.heal()
    assert isinstance(replies(server.handle(order))[0], m.ViewInstalled)


def test_a_view_of_another_commit_is_an_error() -> None:
    cast = Cast()
    with pytest.raises(ProtocolError, match="server-0 is at commit 0; view 2 is at 7"):
        cast.servers["server-0"].handle(m.InstallView(next_view(cast.view, ["worker-0"]), 1, 7, {}))


def test_derived_tables_are_rebuilt_from_nothing() -> None:
    cast = Cast("lda")
    cast.commit(1, m.REBUILD)
    first = {n: s.holder.blocks["word_topics"].copy() for n, s in cast.servers.items()}
    cast.commit(2, m.REBUILD)
    for n, s in cast.servers.items():
        assert not s.holder.blocks["word_topics"].differs_from(first[n]).any(), "it is not added to what was there"
    assert "word_topics" not in cast.servers["server-0"].holder.caches, "and not saved"


# ------------------------------------------------------------------------------------------------------------- its save
def test_its_part_of_a_save() -> None:
    cast = Cast()
    cast.commit(1)
    server = cast.servers["server-0"]
    ids = server.holder.blocks["W"].ids
    (measured,) = replies(server.handle(m.MeasureBlocks(1, 1)))
    got, distance = measured.ids["W"], measured.values["distance"]["W"]
    assert got.tolist() == ids.tolist()
    assert (distance > 0).all()
    outputs = server.handle(save(1, ids[:2]))
    assert replies(outputs) == [m.BlocksStaged("server-0", 1, 24)]
    (segment,) = segments(outputs)
    assert (segment.term, segment.commit, segment.save_id, segment.unit) == (1, 1, 1, False)
    assert segment.tables["W"].ids.tolist() == ids[:2].tolist()
    values = segment.tables["W"].value.copy()
    cast.commit(2)
    assert np.array_equal(segment.tables["W"].value, values), "training goes on, what was staged stays"
    assert replies(server.handle(Stored(1, WRITTEN))) == [m.SaveCommitted("server-0", 1, segment.name, 100)]
    assert server.handle(Stored(1, WRITTEN)) == []
    (measured,) = replies(server.handle(m.MeasureBlocks(1, 2, changed_only=True)))
    assert measured.ids["W"].tolist() == ids.tolist()


def test_a_failed_save_is_kept_and_can_be_tried_again() -> None:
    cast = Cast()
    cast.commit(1)
    server = cast.servers["server-0"]
    ids = server.holder.blocks["W"].ids
    (segment,) = segments(server.handle(save(1, ids)))
    assert replies(server.handle(Stored(1, FAILED))) == [m.SaveFailed("server-0", 1, "the disk is full")]
    assert segments(server.handle(m.RetrySave(1))) == [segment]
    assert server.handle(m.RetrySave(2)) == []
    server.handle(m.GiveUpSave(1))
    assert server.handle(m.RetrySave(1)) == []
    (measured,) = replies(server.handle(m.MeasureBlocks(1, 2)))
    assert np.isposinf(measured.values["distance"]["W"]).all()


def test_a_writer_that_was_superseded_says_so() -> None:
    cast = Cast()
    server = cast.servers["server-0"]
    server.handle(save(0, server.holder.blocks["W"].ids[:1]))
    assert replies(server.handle(Stored(1, SUPERSEDED))) == [m.Superseded("term 2 was claimed")]


def test_blocks_that_are_not_finite_are_left_out() -> None:
    cast = Cast()
    server = cast.servers["server-0"]
    blocks = server.holder.blocks["W"]
    blocks.value[:2] = np.nan
    outputs = server.handle(save(0, blocks.ids[:2]))
    staged, committed = replies(outputs)
    assert (staged, committed) == (m.BlocksStaged("server-0", 1, 0), m.SaveCommitted("server-0", 1, None, 0))
    assert staged.left_out["W"].tolist() == blocks.ids[:2].tolist()
    assert segments(outputs) == []


@pytest.mark.parametrize("order", [m.MeasureBlocks(2, 1), save(0, [0], view=2)])
def test_orders_of_another_view_are_ignored(order: m.NodeOrder) -> None:
    assert Cast().servers["server-0"].handle(order) == []

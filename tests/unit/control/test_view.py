"""Views: who owns what, now and after losses."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.control.driver import make_layout

from scarml.control.view import Layout, View, first_view, next_view
from scarml.core.block import Field, Table
from scarml.errors import ModelError, ProtocolError
from scarml.testing import tiny_problem


def layout_of(n_partitions: int, n_shards: int) -> Layout:
    table = Table("w", n_partitions, (Field("value"),))
    return Layout({"w": table}, {"w": [np.array([p]) for p in range(n_partitions)]}, n_shards)


def names(kind: str, n: int) -> list[str]:
    return [f"{kind}-{i}" for i in range(n)]


def check_owners(view: View, layout: Layout) -> None:
    for name, table in layout.tables.items():
        owners = view.owners(layout, name)
        nodes = view.servers if table.home == "server" else view.workers
        assert set(owners) <= set(nodes)
        mine = [view.blocks_of(n, layout, name) for n in nodes]
        assert np.array_equal(np.sort(np.concatenate(mine)), table.all_ids), "a block has no owner, or two"
        index = view.owner_index(layout, name)
        for i, n in enumerate(view.nodes):
            assert np.array_equal(np.flatnonzero(index == i), view.blocks_of(n, layout, name))
    assert sorted(s for w in view.workers for s in view.shards_of(w)) == list(range(layout.n_shards))


@given(st.integers(1, 30), st.integers(1, 20), st.integers(1, 12), st.integers(1, 8))
def test_the_first_view_is_as_even_as_can_be(n_partitions: int, n_shards: int, n_servers: int, n_workers: int) -> None:
    layout = layout_of(n_partitions, n_shards)
    view = first_view(layout, names("server", n_servers), names("worker", n_workers))
    check_owners(view, layout)
    for owners, nodes in ((view.partition_owner["w"], view.servers), (view.shard_owner, view.workers)):
        load = Counter(owners)
        assert max(load.values()) - min(load[n] for n in nodes) <= 1


@given(st.data(), st.integers(1, 30), st.integers(1, 20), st.integers(2, 12), st.integers(2, 8))
def test_survivors_keep_what_they_have_and_share_the_rest_evenly(
    data: st.DataObject, n_partitions: int, n_shards: int, n_servers: int, n_workers: int
) -> None:
    layout = layout_of(n_partitions, n_shards)
    view = first_view(layout, names("server", n_servers), names("worker", n_workers))
    while len(view.servers) > 1 or len(view.workers) > 1:
        lost = data.draw(st.lists(st.sampled_from(view.servers), max_size=len(view.servers) - 1, unique=True))
        lost += data.draw(st.lists(st.sampled_from(view.workers), max_size=len(view.workers) - 1, unique=True))
        if not lost:
            break
        after = next_view(view, lost)
        assert after.number == view.number + 1
        check_owners(after, layout)
        pairs = [(view.partition_owner["w"], after.partition_owner["w"]), (view.shard_owner, after.shard_owner)]
        for old, new in pairs:
            assert all(o == n for o, n in zip(old, new, strict=True) if o not in lost), "a survivor lost something"
        for owners, nodes in ((after.partition_owner["w"], after.servers), (after.shard_owner, after.workers)):
            load = Counter(owners)
            assert max(load.values()) - min(load[n] for n in nodes) <= 1
        view = after


@pytest.mark.parametrize("lost", [["server-0", "server-1"], ["worker-0"]])
def test_a_view_without_servers_or_without_workers_is_refused(lost: list[str]) -> None:
    view = first_view(layout_of(2, 2), names("server", 2), names("worker", 1))
    with pytest.raises(ProtocolError, match=r"view 1 cannot lose .*: no server or no worker would be left"):
        next_view(view, lost)


def test_more_servers_than_partitions() -> None:
    layout = layout_of(3, 2)
    view = first_view(layout, names("server", 7), names("worker", 5))
    check_owners(view, layout)
    assert view.blocks_of("server-5", layout, "w").tolist() == []
    assert view.shards_of("worker-4") == []
    check_owners(next_view(view, ["server-0", "worker-1", "server-6"]), layout)


def test_worker_home_tables_follow_their_shards() -> None:
    layout = make_layout("worker")
    view = first_view(layout, names("server", 2), names("worker", 3))
    assert view.blocks_of("worker-1", layout, "docs").tolist() == [2, 3]
    after = next_view(view, ["worker-1"])
    assert after.blocks_of("worker-2", layout, "docs").tolist() == [2, 3, 4, 5]
    check_owners(after, layout)


@pytest.mark.parametrize("name", ["mlr", "mf", "lda", "adam", "qp"])
def test_the_layout_of_a_model(name: str) -> None:
    model, data = tiny_problem(name)
    shards = model.shards(data, 5)
    layout = Layout.of(model, model.tables(data), shards, seed=3, n_partitions=4)
    check_owners(first_view(layout, names("server", 3), names("worker", 2)), layout)
    assert layout.has_derived == (name == "lda")
    assert [t.name for t in layout.saved_tables] == [t.name for t in model.tables(data) if not t.derived]
    again = Layout.of(model, model.tables(data), shards, seed=3, n_partitions=4)
    other = Layout.of(model, model.tables(data), shards, seed=4, n_partitions=4)
    for table, parts in layout.partitions.items():
        assert all(map(np.array_equal, parts, again.partitions[table]))
    if name == "mlr":
        assert not all(map(np.array_equal, layout.partitions["W"], other.partitions["W"]))


def test_groups_are_never_parted() -> None:
    model, data = tiny_problem("adam")
    layout = Layout.of(model, model.tables(data), model.shards(data, 2), seed=0, n_partitions=3)
    for ids in layout.partitions["w"]:
        assert all(set(np.flatnonzero(np.arange(10) // 3 == g)) <= set(ids.tolist()) for g in set((ids // 3).tolist()))


def test_a_worker_home_block_in_no_shard_is_an_error_of_the_model() -> None:
    model, data = tiny_problem("lda")
    shards = model.shards(data, 3)
    with pytest.raises(ModelError, match=r"of worker-home table 'assignments' are not in exactly one shard"):
        Layout.of(model, model.tables(data), shards[1:], seed=0)
    with pytest.raises(ModelError, match="are not in exactly one shard"):
        Layout.of(model, model.tables(data), [*shards, shards[0]], seed=0)

"""Blocks on their way from one live node to another: with all that is known of them, and back if need be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.engine.nodes import FAILED, SEED, WRITTEN, Cast, replies, save, segments

from scarml.checkpoint.version_index import Version
from scarml.control import messages as m
from scarml.control.recovery_coordinator import RecoveryCoordinator
from scarml.core.sequential import Sequential
from scarml.engine.node import Stored
from scarml.engine.server import Server
from scarml.engine.worker import Worker
from scarml.errors import ProtocolError
from scarml.testing import tiny_problem


class Moving(Cast):
    """A cast whose nodes come and go, and its recovery coordinator."""

    def __init__(self, problem: str = "mlr", servers: int = 2, workers: int = 2) -> None:
        super().__init__(problem, servers, workers)
        self.commits = 0
        self.coordinator = RecoveryCoordinator(self.training.layout, list(self.servers), list(self.workers))
        for node in self.nodes:
            self.coordinator.settle(node)

    def save(self, node: str, ids: Any, save_id: int, outcome: Any = WRITTEN, table: str = "W") -> None:
        """One save of one node, and what becomes of it; at the present commit."""
        order = save(self.commits, ids, save_id, self.view.number, table)
        (segment,) = segments(self.nodes[node].handle(order))
        if outcome is not WRITTEN:
            self.nodes[node].handle(Stored(save_id, outcome))
            self.nodes[node].handle(m.GiveUpSave(save_id))
            return
        self.folder.write_segment(segment)
        self.nodes[node].handle(Stored(save_id, outcome))

    def step(self, iteration: int | None = None, phase: int = 0) -> None:
        """One commit everywhere."""
        self.commits += 1
        answers = self.commit(self.commits, phase, iteration)
        assert [e.node for e in answers if isinstance(e, m.Committed)] == list(self.nodes)

    def reshape(self, leaving: Any = (), servers: Any = (), workers: Any = ()) -> dict[str, m.InstallView]:
        """Make the next view; the orders for its nodes."""
        for name in servers:
            self.servers[name] = Server(name, self.training, self.folder.reader, self)
        for name in workers:
            self.workers[name] = Worker(name, self.training, self.folder.reader, self)
        self.coordinator.reshape(leaving, servers, workers)
        return self._orders()

    def lose(self, *nodes: str) -> dict[str, m.InstallView]:
        """Nodes are gone; the orders for the rest."""
        for name in nodes:
            (self.servers if name in self.servers else self.workers).pop(name)
        self.coordinator.lose(nodes)
        return self._orders()

    def _orders(self) -> dict[str, m.InstallView]:
        self.view = self.coordinator.view
        return {
            node: m.InstallView(self.view, 1, self.commits, takeover.load, takeover.fetch)
            for node, takeover in self.coordinator.takeovers().items()
        }

    def install(self, orders: dict[str, m.InstallView], *nodes: str) -> None:
        """These nodes (all) obey."""
        for node in nodes or orders:
            (answer,) = replies(self.nodes[node].handle(orders[node]))
            assert isinstance(answer, m.ViewInstalled), answer
            self.coordinator.settle(node)

    def retire(self, *nodes: str) -> None:
        """They have left the view, and end."""
        for name in nodes:
            (self.servers if name in self.servers else self.workers).pop(name)

    def state(self, table: str) -> np.ndarray:
        """The values of a table, from its owners."""
        n_blocks = self.training.layout.tables[table].n_blocks
        found: dict[int, Any] = {}
        for node in self.nodes.values():
            if table in node.holder.blocks:
                blocks = node.holder.blocks[table]
                found.update(zip(blocks.ids.tolist(), blocks.value.copy(), strict=True))
        assert sorted(found) == list(range(n_blocks))
        return np.array([found[i] for i in range(n_blocks)])


def known(cast: Moving, node: str, ids: Any, table: str = "W") -> list[Any]:
    """All that a node has of some blocks."""
    holder = cast.nodes[node].holder
    part = holder.caches[table].part(ids)
    return [
        holder.blocks[table].take(ids).value.tolist(),
        part.saved.value.tolist(),
        *([v.term.tolist(), v.commit.tolist(), v.iteration.tolist()] for v in (part.durable, part.staged)),
        part.given_up.tolist(),
        part.taken_over.tolist(),
    ]


def saved_differently(servers: int = 2) -> tuple[Moving, np.ndarray]:
    """Of the blocks of server-0 the first is durable, the second given up, of the third both; and all have moved."""
    cast = Moving(servers=servers)
    mine = cast.view.blocks_of("server-0", cast.training.layout, "W")
    assert len(mine) >= 3
    cast.step()
    cast.save("server-0", mine[[0, 2]], save_id=1)
    cast.step()
    cast.save("server-0", mine[[1, 2]], save_id=2, outcome=FAILED)
    cast.step()
    return cast, mine


# --------------------------------------------------------------------------------------------------- what goes along
def test_blocks_go_with_their_cache_their_versions_and_what_was_given_up() -> None:
    cast, mine = saved_differently(servers=3)
    before = known(cast, "server-0", mine)
    assert before[2][1][:3] == [1, 0, 1]
    assert before[3][1][:3] == [1, 2, 2]
    assert before[4][:3] == [False, True, True]
    orders = cast.reshape(leaving=["server-0"])
    cast.install(orders, "server-1", "server-2")
    for taker in ("server-1", "server-2"):
        taken = orders[taker].fetch["server-0"]["W"]
        at = np.searchsorted(mine, taken)
        assert known(cast, taker, taken) == _at(before, at)
    total = sum(len(orders[n].fetch["server-0"]["W"]) for n in ("server-1", "server-2"))
    assert total == len(mine)


def _at(whole: list[Any], at: np.ndarray) -> list[Any]:
    values, saved, durable, staged, given_up, taken_over = (
        [[v[i] for i in at] for v in part] if n in (2, 3) else [part[i] for i in at] for n, part in enumerate(whole)
    )
    return [values, saved, durable, staged, given_up, taken_over]


def test_what_was_given_up_comes_first_in_the_next_save_wherever_it_is_now() -> None:
    cast, mine = saved_differently()
    cast.install(cast.reshape(leaving=["server-0"]), "server-1")
    (measured,) = replies(cast.servers["server-1"].handle(m.MeasureBlocks(2, 3)))
    ids, distances = measured.ids["W"], measured.values["distance"]["W"]
    assert ids[np.isinf(distances)].tolist() == mine[[1, 2]].tolist()
    (changed,) = replies(cast.servers["server-1"].handle(m.MeasureBlocks(2, 4, changed_only=True)))
    assert set(mine.tolist()) <= set(changed.ids["W"].tolist())


def test_a_block_that_is_durable_and_unchanged_is_not_saved_again_by_its_new_owner() -> None:
    cast = Moving()
    cast.step()
    for i, node in enumerate(cast.servers):
        mine = cast.view.blocks_of(node, cast.training.layout, "W")
        cast.save(node, mine, save_id=1 + i)
    cast.install(cast.reshape(leaving=["server-0"]))
    (changed,) = replies(cast.servers["server-1"].handle(m.MeasureBlocks(2, 3, changed_only=True)))
    assert changed.ids["W"].tolist() == []


def test_the_new_owner_saves_what_it_took_over_under_its_own_name() -> None:
    cast, mine = saved_differently()
    cast.install(cast.reshape(leaving=["server-0"]), "server-1")
    cast.save("server-1", mine, save_id=3)
    stored = cast.folder.reader(1).read_newest(cast.training.layout.tables["W"], mine)
    assert stored.versions.commit.tolist() == [3] * len(mine)
    assert not stored.blocks.differs_from(cast.servers["server-1"].holder.blocks["W"].take(mine)).any()
    held = cast.servers["server-1"].holder.caches["W"].part(mine)
    assert held.durable.commit.tolist() == held.staged.commit.tolist() == [3] * len(mine)


def test_what_was_handed_over_is_a_copy() -> None:
    cast, mine = saved_differently()
    orders = cast.reshape(leaving=["server-0"])
    cast.install(orders, "server-1")
    before = known(cast, "server-1", mine)
    cast.servers["server-0"].holder.blocks["W"].value[...] = -1
    cast.servers["server-0"].holder.caches["W"].durable.set(np.arange(len(mine)), Version(9, 9, 9))
    assert known(cast, "server-1", mine) == before


@pytest.mark.usefixtures("single_threaded_blas")
@pytest.mark.parametrize("problem", ["mlr", "mf", "adam"])
def test_training_goes_on_as_if_nothing_had_moved(problem: str) -> None:
    cast = Moving(problem)
    reference = Sequential(*tiny_problem(problem), seed=SEED, n_shards=4)
    changes: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"servers": ["server-2"], "workers": ["worker-2"]}, ()),
        ({"leaving": ["server-0", "worker-1"]}, ("server-0", "worker-1")),
        ({"leaving": ["server-1"], "servers": ["server-3"]}, ("server-1",)),
    ]
    for iteration, (change, gone) in enumerate(changes, start=1):
        reference.step()
        for phase in range(cast.training.model.n_phases):
            cast.step(iteration, phase)
        cast.install(cast.reshape(**change))
        cast.retire(*gone)
        for table, blocks in reference.state.items():
            assert np.array_equal(cast.state(table), blocks.value)


def test_blocks_that_live_with_shards_go_with_their_shards() -> None:
    cast = Moving("lda")
    mine = cast.view.blocks_of("worker-0", cast.training.layout, "assignments")
    values = cast.workers["worker-0"].holder.blocks["assignments"]
    cast.save("worker-0", mine[:2], save_id=1, table="assignments")
    orders = cast.reshape(leaving=["worker-0"])
    assert orders["worker-1"].fetch["worker-0"]["assignments"].tolist() == mine.tolist()
    cast.install(orders, "worker-1")
    now = cast.workers["worker-1"].holder.blocks["assignments"].take(mine)
    assert not now.differs_from(values).any()
    part = cast.workers["worker-1"].holder.caches["assignments"].part(mine)
    assert part.durable.term.tolist() == [1, 1] + [0] * (len(mine) - 2)


# ------------------------------------------------------------------------------------------------ the giver's side
def test_the_giver_hands_over_before_and_after_it_obeys_the_view_until_the_next_commit() -> None:
    cast, mine = saved_differently()
    giver = cast.servers["server-0"].holder
    orders = cast.reshape(servers=["server-2"])
    moved = orders["server-2"].fetch["server-0"]["W"]
    before = known(cast, "server-0", moved)
    cast.install(orders, "server-0")
    assert giver.blocks["W"].ids.tolist() == giver.caches["W"].ids.tolist() == np.setdiff1d(mine, moved).tolist()
    cast.install(orders, "server-2", "server-1", "worker-0", "worker-1")
    assert known(cast, "server-2", moved) == before
    again = giver.hand_over(cast.commits, {"W": moved})
    assert again is not None
    assert again["W"][0].blocks.value.tolist() == before[0]
    cast.step()
    with pytest.raises(ProtocolError, match=r"server-0 does not hold blocks .* of W"):
        giver.hand_over(cast.commits, {"W": moved})


def test_the_giver_gets_them_back_when_the_view_did_not_go_through() -> None:
    cast, mine = saved_differently()
    before = known(cast, "server-0", mine)
    cast.install(cast.reshape(servers=["server-2"]), "server-0")
    orders = cast.lose("server-2")
    assert orders["server-0"].load == {}
    assert orders["server-0"].fetch == {}
    cast.install(orders)
    assert cast.servers["server-0"].holder.blocks["W"].ids.tolist() == mine.tolist()
    assert known(cast, "server-0", mine) == before
    cast.step()


def test_blocks_that_go_through_two_nodes_between_two_commits_stay_what_they_are() -> None:
    cast, mine = saved_differently()
    before = known(cast, "server-0", mine)
    cast.install(cast.reshape(servers=["server-2"]))
    cast.install(cast.reshape(leaving=["server-0", "server-1"]))
    cast.retire("server-0", "server-1")
    assert known(cast, "server-2", mine) == before
    cast.step()


def test_nobody_hands_over_what_it_never_held() -> None:
    cast = Moving()
    others = cast.view.blocks_of("server-1", cast.training.layout, "W")
    with pytest.raises(ProtocolError, match=rf"server-0 does not hold blocks \[{others[0]}"):
        cast.servers["server-0"].holder.hand_over(0, {"W": others})


def test_nobody_hands_over_at_another_commit() -> None:
    cast, mine = saved_differently()
    assert cast.servers["server-0"].holder.hand_over(cast.commits + 1, {"W": mine}) is None
    assert cast.servers["server-0"].holder.hand_over(cast.commits - 1, {"W": mine}) is None


# ------------------------------------------------------------------------------------------------ the taker's side
def test_a_taker_whose_giver_is_gone_changes_nothing_and_says_so() -> None:
    cast, _ = saved_differently()
    held = cast.servers["server-1"].holder.blocks["W"].ids.tolist()
    orders = cast.reshape(leaving=["server-0"])
    cast.retire("server-0")
    (answer,) = replies(cast.servers["server-1"].handle(orders["server-1"]))
    assert answer == m.LoadFailed("server-1", 2, "server-0 does not hand its blocks over")
    holder = cast.servers["server-1"].holder
    assert holder.blocks["W"].ids.tolist() == holder.caches["W"].ids.tolist() == held
    assert holder.obeys(1)


def test_a_taker_that_is_told_twice_has_the_blocks_once() -> None:
    cast, mine = saved_differently()
    orders = cast.reshape(leaving=["server-0"])
    before = known(cast, "server-0", mine)
    cast.install(orders, "server-1")
    cast.install(orders, "server-1")
    assert known(cast, "server-1", mine) == before
    assert len(np.unique(cast.servers["server-1"].holder.blocks["W"].ids)) == len(cast.state("W"))


def test_a_taker_fetches_from_one_giver_and_loads_what_another_has_lost() -> None:
    cast = Moving(servers=3)
    cast.step()
    layout = cast.training.layout
    parts = {n: cast.view.blocks_of(n, layout, "W") for n in cast.servers}
    cast.save("server-1", parts["server-1"], save_id=1)
    saved = cast.servers["server-1"].holder.blocks["W"].copy()
    cast.step()
    kept = known(cast, "server-0", parts["server-0"])
    cast.reshape(leaving=["server-0"])
    orders = cast.lose("server-1")
    assert orders["server-2"].load["W"].tolist() == parts["server-1"].tolist()
    assert orders["server-2"].fetch["server-0"]["W"].tolist() == parts["server-0"].tolist()
    cast.install(orders)
    assert known(cast, "server-2", parts["server-0"]) == kept
    loaded = cast.servers["server-2"].holder
    assert not loaded.blocks["W"].take(parts["server-1"]).differs_from(saved).any()
    part = loaded.caches["W"].part(parts["server-1"])
    assert part.durable.commit.tolist() == [1] * len(saved)
    assert part.taken_over.all()
    assert not loaded.caches["W"].part(parts["server-0"]).taken_over.any()

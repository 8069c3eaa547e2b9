"""Who takes over what was lost, and who has yet to load it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.control.driver import make_layout

from scarml.control.recovery_coordinator import RecoveryCoordinator


def coordinator(servers: int = 3, workers: int = 2, layout: str = "server") -> RecoveryCoordinator:
    return RecoveryCoordinator(
        make_layout(layout), [f"server-{i}" for i in range(servers)], [f"worker-{i}" for i in range(workers)]
    )


def loads(recovery: RecoveryCoordinator) -> dict[str, dict[str, list[int]]]:
    found = {node: {t: ids.tolist() for t, ids in t_.load.items()} for node, t_ in recovery.takeovers().items()}
    return {node: tables for node, tables in found.items() if tables}


def n_lost(recovery: RecoveryCoordinator) -> int:
    return sum(len(ids) for ids in recovery.lost_blocks().values())


def fetches(recovery: RecoveryCoordinator) -> dict[str, dict[str, dict[str, list[int]]]]:
    found = {
        node: {h: {t: ids.tolist() for t, ids in tables.items()} for h, tables in takeover.fetch.items()}
        for node, takeover in recovery.takeovers().items()
    }
    return {node: holders for node, holders in found.items() if holders}


def settle_all(recovery: RecoveryCoordinator) -> None:
    for node in recovery.view.nodes:
        recovery.settle(node)


def test_at_first_everything_is_unsettled() -> None:
    recovery = coordinator(layout="worker")
    assert n_lost(recovery) == 16  # derived tables are not loaded
    assert loads(recovery)["worker-1"] == {"docs": [2, 3, 6, 7]}
    settle_all(recovery)
    assert n_lost(recovery) == 0
    assert loads(recovery) == {}


def test_asking_twice_gives_the_same() -> None:
    recovery = coordinator()
    settle_all(recovery)
    recovery.lose(["server-1"])
    assert loads(recovery) == loads(recovery) == {"server-2": {"w": [2, 3]}}
    recovery.settle("server-0")
    recovery.settle("server-0")
    assert loads(recovery) == {"server-2": {"w": [2, 3]}}


def test_what_is_unsettled_stays_so_until_its_owner_has_it() -> None:
    recovery = coordinator()
    settle_all(recovery)
    recovery.lose(["server-0"])  # w[0, 1] to server-1, w[6, 7] to server-2
    recovery.settle("server-1")
    recovery.lose(["worker-0"])
    assert loads(recovery) == {"server-2": {"w": [6, 7]}}
    recovery.lose(["server-2"])
    assert loads(recovery) == {"server-1": {"w": [4, 5, 6, 7]}}
    recovery.settle("server-1")
    assert loads(recovery) == {}
    assert recovery.view.number == 4


def test_what_was_settled_and_lost_again_is_unsettled_again() -> None:
    recovery = coordinator()
    settle_all(recovery)
    recovery.lose(["server-0"])
    settle_all(recovery)
    recovery.lose(["server-1"])
    assert loads(recovery) == {"server-2": {"w": [0, 1, 2, 3]}}


def test_everything_can_be_taken_back() -> None:
    recovery = coordinator(layout="worker")
    settle_all(recovery)
    recovery.unsettle_all()
    assert n_lost(recovery) == 16


def test_who_leaves_hands_over_what_it_holds() -> None:
    recovery = coordinator()
    settle_all(recovery)
    recovery.reshape(["server-1"], [], [])
    assert recovery.view.servers == ("server-0", "server-2")
    assert (loads(recovery), fetches(recovery)) == ({}, {"server-2": {"server-1": {"w": [2, 3]}}})
    recovery.lose(["worker-0"])
    assert fetches(recovery) == {"server-2": {"server-1": {"w": [2, 3]}}}, "a view that is not the last one goes on"
    assert recovery.holds("server-1")
    recovery.settle("server-2")
    assert not recovery.holds("server-1")
    assert fetches(recovery) == {}


def test_who_is_lost_while_it_hands_over_takes_with_it_what_was_not_fetched() -> None:
    recovery = coordinator()
    settle_all(recovery)
    recovery.reshape(["server-0"], [], [])
    assert fetches(recovery) == {"server-1": {"server-0": {"w": [0, 1]}}, "server-2": {"server-0": {"w": [6, 7]}}}
    recovery.settle("server-2")
    recovery.lose(["server-0"])
    assert (loads(recovery), fetches(recovery)) == ({"server-1": {"w": [0, 1]}}, {})
    assert recovery.view.servers == ("server-1", "server-2")


def test_who_joins_fetches_its_share_from_the_most_loaded() -> None:
    recovery = coordinator(servers=2)
    settle_all(recovery)
    recovery.reshape([], ["server-2", "server-3"], [])
    assert loads(recovery) == {}
    sizes = {n: len(recovery.view.blocks_of(n, make_layout("server"), "w")) for n in recovery.view.servers}
    assert set(sizes.values()) == {2}
    assert set(fetches(recovery)) == {"server-2", "server-3"}


def test_blocks_are_split_by_owner() -> None:
    recovery = coordinator(layout="worker")
    parts = recovery.split_by_owner({"w": np.array([1, 2, 6]), "docs": np.array([0]), "counts": np.array([], int)})
    assert {n: {t: ids.tolist() for t, ids in p.items()} for n, p in parts.items()} == {
        "server-0": {"w": [1, 6]},
        "server-1": {"w": [2]},
        "worker-0": {"docs": [0]},
    }


def test_blocks_are_split_by_the_owner_of_now() -> None:
    recovery = coordinator()
    recovery.split_by_owner({"w": np.arange(8)})
    recovery.lose(["server-0"])
    parts = recovery.split_by_owner({"w": np.array([0, 6])})
    assert {n: p["w"].tolist() for n, p in parts.items()} == {"server-1": [0], "server-2": [6]}


@given(st.lists(st.tuples(st.sampled_from(["lose", "settle", "leave", "join"]), st.integers(0, 9)), max_size=14))
def test_what_must_be_loaded_is_what_no_live_node_has(steps: list[tuple[str, int]]) -> None:
    recovery = coordinator(servers=5, workers=5, layout="worker")
    everything = {(t, b) for t in ("w", "docs") for b in range(8)}
    holder: dict[tuple[str, int], str] = {}
    for number, (step, i) in enumerate(steps):
        node = [f"{kind}-{n}" for kind in ("server", "worker") for n in range(5)][i]
        of_its_kind = recovery.view.servers if i < 5 else recovery.view.workers
        if step == "join":
            new = f"{node.split('-')[0]}-{5 + number}"
            recovery.reshape([], *(([new], []) if i < 5 else ([], [new])))
        elif step == "lose" and (node not in of_its_kind or len(of_its_kind) > 1):
            recovery.lose([node])  # in the view or on its way out
            holder = {b: n for b, n in holder.items() if n != node}
        elif step == "leave" and node in of_its_kind and len(of_its_kind) > 1:
            recovery.reshape([node], [], [])
        elif step == "settle" and node in of_its_kind:
            recovery.settle(node)
            for t in ("w", "docs"):
                holder |= {(t, b): node for b in recovery.view.blocks_of(node, make_layout("worker"), t).tolist()}
        owner = {
            (t, b): n
            for n in recovery.view.nodes
            for t in ("w", "docs")
            for b in recovery.view.blocks_of(n, make_layout("worker"), t).tolist()
        }
        assert set(owner) == everything
        to_load = {(t, b): n for n, tables in loads(recovery).items() for t, ids in tables.items() for b in ids}
        assert to_load == {b: owner[b] for b in everything if b not in holder}
        to_fetch = {
            (t, b): (n, h)
            for n, holders in fetches(recovery).items()
            for h, tables in holders.items()
            for t, ids in tables.items()
            for b in ids
        }
        assert to_fetch == {b: (owner[b], holder[b]) for b in everything if holder.get(b, owner[b]) != owner[b]}

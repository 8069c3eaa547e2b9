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
    found = {node: {t: ids.tolist() for t, ids in tables.items()} for node, tables in recovery.loads().items()}
    return {node: tables for node, tables in found.items() if tables}


def settle_all(recovery: RecoveryCoordinator) -> None:
    for node in recovery.view.nodes:
        recovery.settle(node)


def test_at_first_everything_is_unsettled() -> None:
    recovery = coordinator(layout="worker")
    assert recovery.n_unsettled_blocks == 16  # derived tables are not loaded
    assert loads(recovery)["worker-1"] == {"docs": [2, 3, 6, 7]}
    settle_all(recovery)
    assert recovery.n_unsettled_blocks == 0
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
    assert recovery.n_unsettled_blocks == 0
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
    assert recovery.n_unsettled_blocks == 16


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


@given(st.lists(st.tuples(st.sampled_from(["lose", "settle"]), st.integers(0, 9)), max_size=12))
def test_what_must_be_loaded_is_what_no_live_node_has(steps: list[tuple[str, int]]) -> None:
    recovery = coordinator(servers=5, workers=5, layout="worker")
    has: dict[str, set[tuple[str, int]]] = {n: set() for n in recovery.view.nodes}
    for step, i in steps:
        node = [f"{kind}-{n}" for kind in ("server", "worker") for n in range(5)][i]
        if node not in recovery.view.nodes:
            continue
        if step == "settle":
            recovery.settle(node)
            for name in ("w", "docs"):
                has[node] |= {(name, b) for b in recovery.view.blocks_of(node, make_layout("worker"), name).tolist()}
        elif len(recovery.view.servers if i < 5 else recovery.view.workers) > 1:
            recovery.lose([node])
            del has[node]
        to_load = {(t, b) for tables in loads(recovery).values() for t, ids in tables.items() for b in ids}
        everything = {(t, b) for t in ("w", "docs") for b in range(8)}
        assert to_load == everything - set().union(*has.values())
        assert recovery.n_unsettled_blocks == len(to_load)

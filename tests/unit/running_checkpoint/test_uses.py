"""Policies that go by how often rows are used, in a loop of the user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from examples import embedding_loop

import scarml as scar
from scarml.errors import UsageError
from scarml.storage.memory import MemoryStore


def opened(store: MemoryStore, **tables: np.ndarray) -> scar.RunningCheckpoint:
    return scar.RunningCheckpoint(store, tables, policy="mfu", fraction="1/8", interval=8, resume="auto")


def saved(report: Any) -> dict[str, list[int]]:
    return {name: ids.tolist() for name, ids in report.saved.items()}


def test_rows_used_most_since_their_last_save_are_saved() -> None:
    W = np.zeros((16, 2))
    with opened(MemoryStore(), W=W) as ckpt:
        ckpt.restore()
        found = []
        for k, used in enumerate([[3, 5, 3, 9, 9, 9], [3, 5, 5], np.arange(16) == 2, []], start=1):
            W += 1  # what has moved does not count
            found.append(saved(ckpt.save(k, used={"W": used})))
            ckpt.wait()
    assert found == [{"W": [3, 9]}, {"W": [3, 5]}, {"W": [2]}, {}]


def test_a_table_that_is_not_named_was_used_everywhere() -> None:
    W, b = np.zeros((6, 2)), np.zeros((2, 2))
    with opened(MemoryStore(), W=W, b=b) as ckpt:
        ckpt.restore()
        assert saved(ckpt.save(1, used={"W": [1, 4, 4]})) == {"W": [4]}
        ckpt.wait()
        assert saved(ckpt.save(2, used={"W": [0]})) == {"b": [0]}, "used twice by now"


def test_uses_between_saves_add_up() -> None:
    W = np.zeros((16, 2))
    with scar.RunningCheckpoint(MemoryStore(), {"W": W}, policy="mfu", fraction="1/16", interval=64) as ckpt:
        ckpt.restore()
        for k in (1, 2, 3):
            assert ckpt.save(k, used={"W": [k, 7]}).outcome == "not-due"
        assert saved(ckpt.save(4, used={"W": [1, 1]})) == {"W": [1]}, "1 and 7 were used thrice: it is the turn of 1"


def test_what_was_restored_counts_anew() -> None:
    store, W = MemoryStore(), np.zeros((16, 2))
    with opened(store, W=W) as ckpt:
        ckpt.restore()
        ckpt.save(1, used={"W": [0, 1, 2, 2, 2, 3, 3]})
        ckpt.wait()
        ckpt.recover({"W": [0]})
        assert saved(ckpt.save(2, used={"W": [5]})) == {"W": [1, 5]}
        ckpt.wait()
        ckpt.save(3, everything=True)
        ckpt.restore()
        assert saved(ckpt.save(4, used={"W": [9]})) == {"W": [9]}


def test_without_uses_it_is_said_what_to_give() -> None:
    W = np.zeros((16, 2))
    with opened(MemoryStore(), W=W) as ckpt:
        ckpt.restore()
        with pytest.raises(UsageError, match=r"policy mfu goes by how often .*; give it used=\{table: ids\}"):
            ckpt.save(1, touched={"W": [3]})
        with pytest.raises(UsageError, match="used names the table 'V'"):
            ckpt.save(1, used={"V": [3]})
        with pytest.raises(UsageError, match="'W' has no block 16"):
            ckpt.save(1, used={"W": [16]})
        assert ckpt.save(1, everything=True).outcome == "durable", "what is used does not matter then"


def test_other_policies_do_not_look_at_uses() -> None:
    W = np.zeros((16, 2))
    with scar.RunningCheckpoint(MemoryStore(), {"W": W}) as ckpt:
        ckpt.restore()
        W[4] = 1
        assert saved(ckpt.save(1, used={"W": [1, 2]})) == {"W": [4]}


def distances(policies: str, batch: int) -> dict[str, float]:
    found = {p: embedding_loop.distance(p, batch, n_rows=500, width=4, n_iters=60) for p in policies.split()}
    assert max(n for _, n in found.values()) <= 15 * 500 / 16, "all within the same budget"
    return {policy: d for policy, (d, _) in found.items()}


def test_while_a_save_has_room_for_all_that_were_used_counting_is_as_good_as_measuring() -> None:
    d = distances("priority mfu round", batch=8)
    assert d["priority"] == d["mfu"] < 0.3 * d["round"]


def test_beyond_that_the_rows_used_most_are_not_those_that_moved_most() -> None:
    d = distances("priority mfu ssu round random", batch=64)
    assert d["priority"] < 0.7 * min(d["mfu"], d["ssu"], d["round"])
    assert d["ssu"] < d["mfu"], "what is used most often is saved again and again, and the rest never"
    assert d["ssu"] < d["random"]

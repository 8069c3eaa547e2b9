"""State beside the tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import scarml as scar
from scarml.errors import UsageError
from scarml.running_checkpoint.extra import fill_in, pack, unpack
from scarml.storage.memory import MemoryStore


def test_what_is_packed_comes_back() -> None:
    state: dict[str, Any] = {
        "mt": np.random.RandomState(3).get_state(legacy=False),  # its state has an array in it
        "pcg": np.random.default_rng(3).bit_generator.state,
        "order": np.arange(4),
        "best": float("-inf"),
        "nested": [1, (2, "x", None, True), {"a": [np.ones(2)]}],
        "n": np.int64(5),
    }
    back = unpack(pack(state))
    assert back["pcg"] == state["pcg"]
    assert back["mt"]["state"]["key"].tolist() == state["mt"]["state"]["key"].tolist()
    assert (back["order"].tolist(), back["best"], back["n"]) == ([0, 1, 2, 3], float("-inf"), 5)
    assert back["nested"][:2] == [1, (2, "x", None, True)]
    assert back["nested"][2]["a"][0].tolist() == [1, 1]


def test_what_is_packed_is_a_copy() -> None:
    state = {"a": np.zeros(2), "l": [1]}
    packed = pack(state)
    state["a"][:] = 1
    state["l"].append(2)
    assert (packed["a"].tolist(), packed["l"]) == ([0, 0], [1])


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ([1], "extra is list; expected a dict"),
        ({1: 2}, "extra has an entry called 1"),
        ({"a/b": 2}, "extra has an entry called 'a/b'"),
        ({"f": {"g": [1, object()]}}, "extra 'f/g/1' is <object"),
        ({"a": {3: 4}}, "extra 'a' is {3: 4}"),
        ({"a": np.zeros(2, "O")}, "extra 'a' is an array of object"),
        ({"a": "x" * (1 << 20)}, "expected 1048576 at most"),
    ],
)
def test_what_cannot_be_stored_is_refused(state: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        pack(state)


def test_state_that_contains_itself_is_refused() -> None:
    state: dict[str, Any] = {}
    state["self"] = state
    with pytest.raises(UsageError, match="nested too deeply"):
        pack(state)


def test_arrays_of_the_same_form_are_filled_in_place() -> None:
    same, other = np.zeros(3), np.zeros(2)
    state: dict[str, Any] = {"same": same, "other": other, "mine": 1}
    fill_in(state, {"same": np.ones(3), "other": np.ones(3), "n": 4})
    assert state["same"] is same
    assert same.tolist() == [1, 1, 1]
    assert (state["other"].tolist(), state["mine"], state["n"]) == ([1, 1, 1], 1, 4)


def test_extra_state_is_of_the_newest_save_that_had_it() -> None:
    store, W = MemoryStore(), np.zeros((8, 1))
    with scar.RunningCheckpoint(store, {"W": W}, resume="auto") as ckpt:
        state: dict[str, Any] = {"k": 0}
        ckpt.restore(extra=state)
        for k in (1, 2, 3):
            W += 1
            state["k"] = k
            ckpt.save(k, extra=state)
            ckpt.wait()
        W += 1
        ckpt.save(4)
        ckpt.wait()
    with scar.RunningCheckpoint(store, {"W": W}, resume="auto") as ckpt:
        assert ckpt.restore(extra=state) == 4
        assert state == {"k": 3}
        assert ckpt.last_restore is not None
        assert ckpt.last_restore.extra_iteration == 3


def test_bad_extra_state_stops_nothing_that_is_under_way() -> None:
    store, W = MemoryStore(), np.zeros((8, 1))
    with scar.RunningCheckpoint(store, {"W": W}, resume="auto") as ckpt:
        ckpt.restore()
        W += 1
        with pytest.raises(UsageError, match="extra 'x' is <object"):
            ckpt.save(1, extra={"x": object()})
        assert ckpt.save(2).outcome == "staged"

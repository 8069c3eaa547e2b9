"""Blocks whose save was given up come first in the next, whatever the policy."""

from __future__ import annotations

import numpy as np
import pytest

from scarml.checkpoint.selection import Checkpoint, SaveSelector
from scarml.core.block import Field, Table

A = Table("A", 6, (Field("value"),))
B = Table("B", 6, (Field("value"),))


@pytest.mark.parametrize("policy", ["priority", "round", "random"])
def test_owed_blocks_come_first(policy: str) -> None:
    selector = SaveSelector(Checkpoint(policy, "1/4", 8), [A, B], seed=0)
    distances = {"A": np.arange(6.0) + 1, "B": np.arange(6.0) + 10}
    selector.earn()
    selector.select(distances)
    selector.owe({"A": np.array([0]), "B": np.array([1, 5])})
    selector.earn()
    chosen = selector.select(distances)
    assert {name: ids.tolist() for name, ids in chosen.items()} == {"A": [0], "B": [1, 5]}
    selector.earn()
    again = selector.select(distances)
    assert {name: ids.tolist() for name, ids in again.items()} != {"A": [0], "B": [1, 5]}


def test_an_owed_block_that_is_not_finite_is_not_saved() -> None:
    selector = SaveSelector(Checkpoint("priority", "1/4", 8), [A], seed=0)
    selector.owe({"A": np.array([0])})
    selector.earn()
    assert 0 not in selector.select({"A": np.array([np.nan, 1, 2, 3, 4, 5])})["A"]

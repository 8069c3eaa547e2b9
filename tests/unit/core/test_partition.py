from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.core.block import Field, Table
from scarml.core.partition import DEFAULT_PARTITIONS, partition_blocks


def table(n: int) -> Table:
    return Table("t", n, (Field("value"),))


@given(groups=st.lists(st.integers(0, 12), min_size=1, max_size=60), seed=st.integers(0, 9), n=st.integers(1, 20))
def test_every_block_is_in_one_partition_with_its_whole_group(groups: list[int], seed: int, n: int) -> None:
    group_of = np.array(groups)
    partitions = partition_blocks(table(len(groups)), group_of, seed, n)
    assert len(partitions) == min(n, len(set(groups)))
    assert sorted(np.concatenate(partitions).tolist()) == list(range(len(groups)))
    assert all((np.diff(p) > 0).all() for p in partitions)
    assert sum(len(set(group_of[p].tolist())) for p in partitions) == len(set(groups))
    n_groups = [len(set(group_of[p].tolist())) for p in partitions]
    assert max(n_groups) - min(n_groups) <= 1


def test_placement_is_random_and_depends_on_the_seed_alone() -> None:
    t = table(2000)
    one, again, other = (partition_blocks(t, t.all_ids, seed) for seed in (1, 1, 2))
    assert len(one) == DEFAULT_PARTITIONS
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    neighbours = sum(int((np.diff(p) == 1).sum()) for p in one)
    assert neighbours < 40  # about 7 by chance


@pytest.mark.parametrize("n", [1, 2, 255, 257])
def test_never_more_partitions_than_groups(n: int) -> None:
    t = table(n)
    assert len(partition_blocks(t, t.all_ids, 0)) == min(n, DEFAULT_PARTITIONS)
    assert len(partition_blocks(t, t.all_ids // 2, 0)) == min((n + 1) // 2, DEFAULT_PARTITIONS)

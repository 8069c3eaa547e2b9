"""Partitions: fixed sets of blocks that are owned, handed over and recovered together.

Theorem 4.2 of the paper stands on random placement, so the groups of a table are dealt to its partitions by a seeded
random permutation. What is in a partition depends on the seed alone, never on the number of nodes.
"""

from __future__ import annotations

import numpy as np

from scarml.core.block import Ids, Table
from scarml.core.rng import stream

__all__ = ["DEFAULT_PARTITIONS", "partition_blocks"]

DEFAULT_PARTITIONS = 256


def partition_blocks(table: Table, groups: Ids, seed: int, n_partitions: int = DEFAULT_PARTITIONS) -> list[Ids]:
    """Deal the blocks of a table to partitions, whole groups at a time.

    Args:
        table: the table.
        groups: the group number of each block, shape (n_blocks,); blocks of one group are never parted.
        seed: of the run.
        n_partitions: at most so many; never more than there are groups.

    Returns:
        For each partition its block ids, ascending. Every block is in exactly one.
    """
    _, group_of = np.unique(groups, return_inverse=True)
    n_groups = int(group_of.max()) + 1
    n = min(n_partitions, n_groups)
    partition_of_group = np.empty(n_groups, np.int64)
    partition_of_group[stream(seed, "partition", table.name).permutation(n_groups)] = np.arange(n_groups) % n
    partition_of = partition_of_group[group_of]
    order = np.argsort(partition_of, kind="stable")
    return np.split(order, np.cumsum(np.bincount(partition_of, minlength=n))[:-1])

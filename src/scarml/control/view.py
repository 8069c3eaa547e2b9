"""Layout and views: what there is to own, and who owns it.

The *layout* is fixed for a run: tables, their partitions, the number of shards. A *view* is numbered membership: which
node owns which partition and which shard. Its number fences messages: a node obeys, and is heard, in its own view only.
Worker-home tables have one partition a shard, owned by whoever owns the shard.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scarml.core.block import Ids, Table
from scarml.core.contract import check_groups
from scarml.core.model import Model, Shard
from scarml.core.partition import DEFAULT_PARTITIONS, partition_blocks
from scarml.errors import ModelError, ProtocolError

__all__ = ["Layout", "NodeId", "View", "first_view", "next_view"]

NodeId = str
"""``server-3``, ``worker-0``: never used again after the node is gone."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """What there is to own.

    Args:
        tables: by name, in the model's order.
        partitions: per table the block ids of each partition.
        n_shards: pieces of the data.
        n_examples: in all of them.
    """

    tables: Mapping[str, Table]
    partitions: Mapping[str, Sequence[Ids]]
    n_shards: int
    n_examples: int = 0

    @classmethod
    def of(
        cls,
        model: Model,
        tables: Sequence[Table],
        shards: Sequence[Shard],
        seed: int,
        n_partitions: int = DEFAULT_PARTITIONS,
    ) -> Layout:
        """The layout of a model on its data.

        Raises:
            ModelError: if a worker-home block belongs to no shard, or to two.
        """
        partitions: dict[str, Sequence[Ids]] = {}
        for t in tables:
            if t.home == "server":
                groups = model.groups(t)
                check_groups(t, groups)
                partitions[t.name] = partition_blocks(t, groups, seed, n_partitions)
                continue
            partitions[t.name] = [s.blocks.get(t.name, np.zeros(0, np.int64)) for s in shards]
            count = np.bincount(np.concatenate(partitions[t.name]), minlength=t.n_blocks)
            if (count != 1).any():
                stray = np.flatnonzero(count != 1)[:5].tolist()
                raise ModelError(f"blocks {stray} of worker-home table {t.name!r} are not in exactly one shard")
        return cls({t.name: t for t in tables}, partitions, len(shards), sum(s.n_examples for s in shards))

    @property
    def saved_tables(self) -> list[Table]:
        """The tables whose blocks are saved: all but the derived ones."""
        return [t for t in self.tables.values() if not t.derived]

    @property
    def has_derived(self) -> bool:
        """Whether there is something to rebuild after a loss."""
        return any(t.derived for t in self.tables.values())


@dataclass(frozen=True, slots=True)
class View:
    """Numbered membership.

    Args:
        number: from 1; a new one for every change.
        servers: live servers.
        workers: live workers.
        partition_owner: per server-home table the server that owns each partition.
        shard_owner: the worker that owns each shard.
    """

    number: int
    servers: tuple[NodeId, ...]
    workers: tuple[NodeId, ...]
    partition_owner: Mapping[str, tuple[NodeId, ...]]
    shard_owner: tuple[NodeId, ...]

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """All live nodes."""
        return self.servers + self.workers

    def owners(self, layout: Layout, table: str) -> tuple[NodeId, ...]:
        """The owner of each partition of ``table``."""
        return self.partition_owner[table] if layout.tables[table].home == "server" else self.shard_owner

    def shards_of(self, worker: NodeId) -> list[int]:
        """The shards that ``worker`` computes, ascending."""
        return [s for s, owner in enumerate(self.shard_owner) if owner == worker]

    def blocks_of(self, node: NodeId, layout: Layout, table: str) -> Ids:
        """The ids of the blocks of ``table`` that ``node`` owns, ascending."""
        mine = [
            ids
            for ids, owner in zip(layout.partitions[table], self.owners(layout, table), strict=True)
            if owner == node
        ]
        return np.sort(np.concatenate(mine)) if mine else np.zeros(0, np.int64)

    def owner_index(self, layout: Layout, table: str) -> Ids:
        """For each block the position of its owner in `nodes`, shape (n_blocks,); servers come first."""
        position = {n: i for i, n in enumerate(self.nodes)}
        index = np.empty(layout.tables[table].n_blocks, np.int64)
        for ids, owner in zip(layout.partitions[table], self.owners(layout, table), strict=True):
            index[ids] = position[owner]
        return index


def first_view(layout: Layout, servers: Sequence[NodeId], workers: Sequence[NodeId]) -> View:
    """Deal partitions to servers and shards to workers, as evenly as can be."""
    owner = {
        name: tuple(servers[p % len(servers)] for p in range(len(parts)))
        for name, parts in layout.partitions.items()
        if layout.tables[name].home == "server"
    }
    return View(
        1, tuple(servers), tuple(workers), owner, tuple(workers[s % len(workers)] for s in range(layout.n_shards))
    )


def next_view(
    view: View, gone: Collection[NodeId], new_servers: Sequence[NodeId] = (), new_workers: Sequence[NodeId] = ()
) -> View:
    """The view without the nodes that are ``gone`` and with the new ones.

    What the gone ones owned goes to the least loaded of the others. What a new one gets is taken from the most loaded
    until loads differ by at most one; everything else stays put.

    Raises:
        ProtocolError: if no server or no worker is left.
    """
    servers = (*(n for n in view.servers if n not in gone), *new_servers)
    workers = (*(n for n in view.workers if n not in gone), *new_workers)
    if not servers or not workers:
        raise ProtocolError(f"view {view.number} cannot lose {sorted(gone)}: no server or no worker would be left")
    owner = {name: _hand_over(owners, servers) for name, owners in view.partition_owner.items()}
    return View(view.number + 1, servers, workers, owner, _hand_over(view.shard_owner, workers))


def _hand_over(owners: tuple[NodeId, ...], nodes: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    held: dict[NodeId, list[int]] = {n: [] for n in nodes}
    orphans = [p for p, owner in enumerate(owners) if owner not in held]
    for p, owner in enumerate(owners):
        if owner in held:
            held[owner].append(p)
    position = {n: i for i, n in enumerate(nodes)}

    def least_loaded() -> NodeId:
        return min(nodes, key=lambda n: (len(held[n]), position[n]))

    for p in orphans:
        held[least_loaded()].append(p)
    while True:
        poor, rich = least_loaded(), max(nodes, key=lambda n: (len(held[n]), position[n]))
        if len(held[rich]) - len(held[poor]) <= 1:
            break
        held[poor].append(held[rich].pop())
    result = list(owners)
    for node, partitions in held.items():
        for p in partitions:
            result[p] = node
    return tuple(result)

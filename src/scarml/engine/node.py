"""What servers and workers have in common: blocks, their caches, the view they obey, and their part of a save.

A node is a plain object: orders in, `Output` out, no thread and no clock. An engine gives it its orders one at a time,
each from one sender in the order in which they were sent. The same nodes run in one process, in the simulation, and in
processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.block_cache import BlockCache, CachePart
from scarml.checkpoint.encoding import Encodings
from scarml.checkpoint.version_index import Version, Versions
from scarml.control import messages as m
from scarml.control.view import Layout, NodeId, View
from scarml.core.block import Blocks, Ids, Table, concatenate
from scarml.core.model import Model, Shard
from scarml.core.sequential import initial_blocks
from scarml.errors import ProtocolError, StoreError
from scarml.storage.background_writer import Outcome
from scarml.storage.node_saves import NodeSaves
from scarml.storage.segment import Segment, encode_segment
from scarml.storage.segment_reader import Damage, SegmentReader

__all__ = [
    "BlockHolder",
    "Forward",
    "HandOver",
    "Handed",
    "Node",
    "OpenReader",
    "Output",
    "Peers",
    "Reply",
    "RunShards",
    "ShardOrder",
    "ShardResult",
    "Store",
    "Stored",
    "Training",
    "Wanted",
]

ShardOrder = m.ComputePhase | m.EvaluateLoss | m.EvaluateMetrics
"""What is carried out shard by shard."""

OpenReader = Callable[[int], SegmentReader]
"""Gives the store as a term sees it."""


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """What is trained: the same on every node.

    Args:
        model: the algorithm.
        shards: the data, cut.
        layout: tables, partitions and shards.
        seed: of all random values.
        encodings: how fields are stored.
        held_out: other data, cut like the shards, which metrics are taken of; empty: none.
    """

    model: Model
    shards: Sequence[Shard]
    layout: Layout
    seed: int
    encodings: Encodings = field(default_factory=dict)
    held_out: Sequence[Shard] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """An event for the controller."""

    event: m.Event


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """An order for another node."""

    node: NodeId
    order: m.NodeOrder


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """A segment for this node's background writer; the outcome comes back as `Stored`."""

    segment: Segment


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a segment."""

    save_id: int
    outcome: Outcome


@dataclass(frozen=True, slots=True, eq=False)
class RunShards:
    """Shards for a worker to work on in parallel, lowest first; each outcome comes back as `ShardResult`."""

    order: ShardOrder
    shards: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ShardResult:
    """What became of one shard: pushes for every server and new blocks of its own, its loss, or its held-out sums."""

    order: ShardOrder
    shard: int
    pushes: tuple[Forward, ...] = ()
    local: Sequence[Blocks] = ()
    n_examples: int = 0
    loss: float = 0.0
    sums: Mapping[str, float] = field(default_factory=dict)


Output = Reply | Forward | Store | RunShards


@dataclass(frozen=True, slots=True, eq=False)
class HandOver:
    """Blocks of one table on their way from one live node to another, with their part of the cache."""

    blocks: Blocks
    cache: CachePart


Handed = dict[str, list[HandOver]]
"""Per table the blocks that one node hands over to another, in one part or several."""


Wanted = Mapping[NodeId, Mapping[str, Ids | None]]
"""Per server and table the block ids that a worker reads; None: all that the server has."""


class Peers(Protocol):
    """How a node reaches the others: the data path, behind one interface."""

    def read(self, view: int, commit: int, wanted: Wanted) -> dict[NodeId, dict[str, Blocks]] | None:
        """Per server and table the wanted blocks after a commit; None if one of the servers is gone or elsewhere."""
        ...

    def hand_over(self, holder: NodeId, commit: int, ids: Mapping[str, Ids]) -> Handed | None:
        """Per table the blocks ``ids`` that another node holds after a commit; None if it is gone or elsewhere."""
        ...


class Node(Protocol):
    """What an engine knows of a server or a worker."""

    name: NodeId
    holder: BlockHolder

    def handle(self, order: m.NodeOrder | Stored | ShardResult) -> list[Output]:
        """Carry out one order, or take in one outcome."""
        ...


_Loaded = tuple[Blocks, Versions, NDArray[np.bool_], list[str]]


class BlockHolder:
    """The blocks that one node owns, and their running checkpoint.

    Args:
        name: of the node.
        home: which tables live here, ``server`` or ``worker``.
        training: what is trained.
        open_reader: the store.
        peers: the nodes that hand blocks over.
    """

    def __init__(self, name: NodeId, home: str, training: Training, open_reader: OpenReader, peers: Peers) -> None:
        self.name = name
        self.view: View | None = None
        self.term = 0
        self.commit = 0
        self.blocks: dict[str, Blocks] = {}
        self.caches: dict[str, BlockCache] = {}
        self._training = training
        self._tables = [t for t in training.layout.tables.values() if t.home == home]
        self._open_reader = open_reader
        self._peers = peers
        self._outgoing: dict[str, list[HandOver]] = {}
        """What a view took from this node: kept until all obey that view, which the next commit shows."""
        self._moving = Lock()
        self.saves = NodeSaves(name, self.blocks, self.caches, training.encodings)

    def obeys(self, view: int) -> bool:
        """Whether orders of this view are for this node now."""
        return self.view is not None and self.view.number == view

    # ---------------------------------------------------------------------------------------------------------- views
    def install(self, order: m.InstallView) -> m.ViewInstalled | m.LoadFailed:
        """Obey a view, after loading what it asks for. Nothing changes if the store cannot be read.

        Raises:
            ProtocolError: if the order is for another commit than this node has reached.
        """
        if self.view is not None and order.commit != self.commit:
            raise ProtocolError(
                f"{self.name} is at commit {self.commit}; view {order.view.number} is at {order.commit}"
            )
        if self.view is None:
            self._warm_up()
        try:
            reader = self._open_reader(order.term)
            loaded = [self._load(t, order, reader) for t in self._tables if not t.derived]
            if any(found.any() for _, _, found, _ in loaded):
                reader.settle()
        except StoreError as e:
            return m.LoadFailed(self.name, order.view.number, str(e))
        fetched: list[Handed] = []
        for holder, ids in order.fetch.items():
            got = self._peers.hand_over(holder, order.commit, ids)
            if got is None:
                return m.LoadFailed(self.name, order.view.number, f"{holder} does not hand its blocks over")
            fetched.append(got)
        with self._moving:
            self._take_over(order, loaded, fetched)
        iterations = np.concatenate([v.iteration[found] for _, v, found, _ in loaded] or [np.zeros(0, np.int64)])
        return m.ViewInstalled(
            self.name,
            order.view.number,
            restored=len(iterations),
            from_x0=sum(int((~found).sum()) for _, _, found, _ in loaded),
            oldest=int(iterations.min()) if len(iterations) else None,
            newest=int(iterations.max()) if len(iterations) else None,
            sum_iterations=int(iterations.sum()),
            damaged=tuple(text for _, _, _, damaged in loaded for text in damaged),
            loaded={b.table.name: (b.ids, v.iteration) for b, v, _, _ in loaded if len(b)},
        )

    def _warm_up(self) -> None:
        """Save no blocks at all: what that compiles, or loads compiled, would hold training up at the first save."""
        nothing, version = np.zeros(0, np.int64), Version(0, 0, 0)
        for t in self._tables:
            if not t.derived:
                blocks = t.empty(nothing)
                cache = BlockCache(blocks, Versions.initial(0), self._training.model.distance)
                cache.score(blocks)
                staged, _ = cache.stage(blocks, nothing, version, 0)
                for _ in encode_segment(Segment(0, 0, 0, self.name, 0, False, {t.name: staged})):
                    pass

    def _load(self, table: Table, order: m.InstallView, reader: SegmentReader) -> _Loaded:
        ids = order.load.get(table.name, np.zeros(0, np.int64))
        if order.term == self.term and table.name in self.blocks:
            # It has got some already, in a view that never came to be obeyed by all: they are as of this commit.
            ids = np.setdiff1d(ids, self.blocks[table.name].ids, assume_unique=True)
        if not len(ids):
            return table.empty(ids), Versions.initial(0), np.zeros(0, bool), []
        got = reader.read_newest(table, ids)
        if not got.found.all():
            got.blocks.put(initial_blocks(self._training.model, table, ids[~got.found], self._training.seed))
        return got.blocks, got.versions, got.found, [_in_words(d) for d in got.damaged]

    def _take_over(self, order: m.InstallView, loaded: list[_Loaded], fetched: list[Handed]) -> None:
        """From here on this node holds what the view says: what it held and keeps, what it loaded, what it fetched."""
        is_start = order.view.number == 1
        self.view, self.term, self.commit = order.view, order.term, order.commit
        for blocks, versions, _, _ in loaded:
            if len(blocks) or blocks.table.name not in self.blocks:
                self._add_loaded(blocks, versions, is_start=is_start)
        for handed in fetched:
            self._add_handed(handed)
        for t in self._tables:
            ids = order.view.blocks_of(self.name, self._training.layout, t.name)
            if t.derived:
                if t.name not in self.blocks or not np.array_equal(self.blocks[t.name].ids, ids):
                    self.blocks[t.name] = t.empty(ids)
                continue
            back = np.setdiff1d(ids, self.blocks[t.name].ids, assume_unique=True)
            if len(back):  # a view that took them away was never obeyed by all
                self._add_handed({t.name: self._find(t.name, back)})
            gone = np.setdiff1d(self.blocks[t.name].ids, ids, assume_unique=True)
            if len(gone):
                self._outgoing.setdefault(t.name, []).extend(self._find(t.name, gone))
                self.blocks[t.name] = self.blocks[t.name].take(ids)
                self.caches[t.name].keep(ids)

    def _add_loaded(self, blocks: Blocks, versions: Versions, *, is_start: bool) -> None:
        name = blocks.table.name
        held = self.blocks.get(name)
        keep = np.zeros(0, np.int64) if held is None else np.setdiff1d(held.ids, blocks.ids, assume_unique=True)
        if held is None or not len(keep):
            self.blocks[name] = blocks
            distance = self._training.model.distance
            self.caches[name] = BlockCache(
                blocks, versions, distance, self._training.encodings.get(name), taken_over=not is_start
            )
        else:
            self.blocks[name] = concatenate(blocks.table, [held.take(keep), blocks])
            self.caches[name].adopt(blocks, versions)

    def _add_handed(self, handed: Handed) -> None:
        for name, parts in handed.items():
            for part in parts:
                held = self.blocks[name]
                keep = np.setdiff1d(held.ids, part.blocks.ids, assume_unique=True)  # it may have fetched some before
                self.blocks[name] = concatenate(held.table, [held.take(keep), part.blocks])
                self.caches[name].join(part.cache)

    def hand_over(self, commit: int, ids: Mapping[str, Ids]) -> Handed | None:
        """Copies of blocks that this node holds, or has held until the present view. Any thread may ask.

        Returns:
            None if this node is at another commit.

        Raises:
            ProtocolError: it does not hold them all.
        """
        with self._moving:
            if self.commit != commit:
                return None
            return {name: self._find(name, wanted) for name, wanted in ids.items()}

    def _find(self, table: str, ids: Ids) -> list[HandOver]:
        parts: list[HandOver] = []
        held = self.blocks[table]
        mine = ids[np.isin(ids, held.ids)]
        if len(mine):
            parts.append(HandOver(held.take(mine), self.caches[table].part(mine)))
        ids = np.setdiff1d(ids, mine, assume_unique=True)
        for kept in reversed(self._outgoing.get(table, [])):
            mine = ids[np.isin(ids, kept.blocks.ids)]
            if len(mine):
                parts.append(HandOver(kept.blocks.take(mine), kept.cache.take(kept.blocks.positions(mine))))
            ids = np.setdiff1d(ids, mine, assume_unique=True)
        if len(ids):
            raise ProtocolError(f"{self.name} does not hold blocks {ids[:5].tolist()} of {table}")
        return parts

    def advance(self, commit: int) -> None:
        """A commit is visible here."""
        self.commit, self._outgoing = commit, {}

    # --------------------------------------------------------------------------------------------------------- orders
    def handle(self, order: m.NodeOrder | Stored) -> list[Output]:
        """The orders that every node understands: views and saves."""
        match order:
            case m.InstallView():
                return [Reply(self.install(order))]
            case m.MeasureBlocks() if self.obeys(order.view):
                return [Reply(self.saves.measure(order))]
            case m.SaveBlocks() if self.obeys(order.view):
                events, segment = self.saves.stage(order)
                return [*map(Reply, events), *([Store(segment)] if segment else [])]
            case m.RetrySave():
                segment = self.saves.retry(order.save_id)
                return [Store(segment)] if segment else []
            case m.GiveUpSave():
                self.saves.give_up(order.save_id)
                return []
            case Stored():
                event = self.saves.stored(order.save_id, order.outcome)
                return [Reply(event)] if event else []
            case _:
                return []


def _in_words(damage: Damage) -> str:
    if damage.block is None:
        return f"{damage.segment}: {damage.problem}"
    return (
        f"{damage.segment}: block {damage.block} of table {damage.table}: {damage.problem} "
        f"(expected checksum {damage.expected}, found {damage.found}); an older copy is used"
    )

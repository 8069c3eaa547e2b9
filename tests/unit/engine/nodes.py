"""Servers and workers without an engine, to give orders to by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from scarml.checkpoint.version_index import Version
from scarml.control import messages as m
from scarml.control.view import Layout, first_view
from scarml.core.block import Blocks
from scarml.core.model import Context
from scarml.engine.node import Reply, RunShards, Store, Training
from scarml.engine.server import Server
from scarml.engine.worker import Worker
from scarml.storage.background_writer import WriteFailed, Written
from scarml.storage.memory import MemoryStore
from scarml.storage.run_folder import RunFolder
from scarml.testing import tiny_problem

SEED = 3


class Cast:
    """The nodes of a tiny problem, all in their first view."""

    def __init__(self, problem: str = "mlr", servers: int = 2, workers: int = 2, n_shards: int = 4) -> None:
        model, data = tiny_problem(problem)
        shards = model.shards(data, n_shards)
        layout = Layout.of(model, model.tables(data), shards, SEED)
        self.training = Training(model, shards, layout, SEED)
        self.store = MemoryStore()
        self.folder = RunFolder.create(self.store, {})
        self.folder.claim_term("new")
        self.servers = {
            f"server-{i}": Server(f"server-{i}", self.training, self.folder.reader, self) for i in range(servers)
        }
        self.workers = {
            f"worker-{i}": Worker(f"worker-{i}", self.training, self.folder.reader, self) for i in range(workers)
        }
        self.view = first_view(layout, list(self.servers), list(self.workers))
        for name, node in self.nodes.items():
            load = {t.name: self.view.blocks_of(name, layout, t.name) for t in layout.saved_tables}
            assert replies(node.handle(m.InstallView(self.view, 1, 0, load)))[0].view == 1

    @property
    def nodes(self) -> dict[str, Any]:
        return {**self.servers, **self.workers}

    def read(self, view: int, commit: int, wanted: Any) -> dict[str, dict[str, Blocks]] | None:
        """The data path of the workers."""
        if not set(wanted) <= set(self.servers):
            return None
        found = {server: self.servers[server].read(view, commit, tables) for server, tables in wanted.items()}
        return None if None in found.values() else found  # type: ignore[return-value]

    def hand_over(self, holder: str, commit: int, ids: Any) -> Any:
        """What one node takes over from another."""
        return self.nodes[holder].holder.hand_over(commit, ids) if holder in self.nodes else None

    def compute(
        self, commit: int = 1, phase: int = 0, worker: str | None = None, iteration: int | None = None
    ) -> list[Any]:
        """All pushes of a phase, by shard in the order of workers; the workers have prepared."""
        order = m.ComputePhase(self.view.number, commit, Context(SEED, iteration or commit, phase))
        pushes = []
        for name, node in self.workers.items():
            if worker in (None, name):
                for run in node.handle(order):
                    assert isinstance(run, RunShards)
                    for shard in run.shards:
                        result = node.run_shard(order, shard)
                        assert result is not None
                        node.handle(result)
                        pushes += list(result.pushes)
        return pushes

    def commit(self, commit: int = 1, phase: int = 0, iteration: int | None = None) -> list[Any]:
        """Compute a phase and make it visible; the replies."""
        for push in self.compute(commit, phase, iteration=iteration):
            self.servers[push.node].handle(push.order)
        order = m.CommitPhase(self.view.number, commit, Context(SEED, iteration or commit, phase))
        return [e for n in self.nodes.values() for e in replies(n.handle(order))]


def replies(outputs: list[Any]) -> list[Any]:
    """The events for the controller."""
    return [o.event for o in outputs if isinstance(o, Reply)]


def segments(outputs: list[Any]) -> list[Any]:
    """The segments to be stored."""
    return [o.segment for o in outputs if isinstance(o, Store)]


def save(commit: int, ids: Any, save_id: int = 1, view: int = 1, table: str = "W") -> m.SaveBlocks:
    """An order to save."""
    return m.SaveBlocks(view, save_id, Version(1, commit, commit), {table: np.array(ids, np.int64)}, unit=False)


WRITTEN = Written(100, 0.0)
FAILED = WriteFailed("the disk is full", "retry", 0.0)
SUPERSEDED = WriteFailed("term 2 was claimed", "superseded", 0.0)

"""One cluster of nodes and its controller: carries actions out, brings events back, and lets nodes die.

What differs between running for real and being simulated (threads or virtual time) is behind `Scheduler`; everything
else is here, once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Protocol

from scarml.checkpoint.version_index import Version
from scarml.control import messages as m
from scarml.control.controller import Controller
from scarml.control.history import Record
from scarml.control.view import NodeId
from scarml.core.block import Blocks, Ids, concatenate
from scarml.engine.node import Forward, Node, Output, Reply, RunShards, ShardResult, Store, Stored, Training
from scarml.engine.server import Server
from scarml.engine.worker import Worker
from scarml.errors import DamagedError, RunInUseError, StoreError, SupersededError
from scarml.storage.background_writer import SaveJob, write_job
from scarml.storage.compaction import Limits
from scarml.storage.run_folder import RunFolder
from scarml.storage.tidying import Tidying
from scarml.storage.unit import FullSave

__all__ = ["Cluster", "Scheduler"]


class Scheduler(Protocol):
    """When and where things run."""

    def now_s(self) -> float:
        """Seconds on the clock of this scheduler."""
        ...

    def deliver(self, source: NodeId, node: NodeId, task: Callable[[], None], may_repeat: bool = False) -> None:
        """Run ``task`` on the node's own lane: one at a time, and in order of sending from each source.

        ``may_repeat``: the receiver drops repeats, so a network may deliver it twice.
        """
        ...

    def compute(self, node: NodeId, shard: int, commit: int, task: Callable[[], None]) -> None:
        """Run ``task`` beside other shards; lower shards of a commit first."""
        ...

    def folded(self, commit: int, n_shards: int) -> None:
        """All servers have folded so many shards of a commit."""
        ...

    def write(self, node: NodeId, task: Callable[[], None]) -> None:
        """Run ``task`` in the background."""
        ...

    def post(self, event: m.Event, delay_s: float = 0.0) -> None:
        """Bring an event to the controller."""
        ...


class Cluster:
    """Nodes, their controller, and the run folder.

    Args:
        training: what is trained.
        controller: decides.
        open_folder: gives a node its own way to the run folder; ``controller`` is one of them.
        scheduler: when and where things run.
        on_record: gets every record of the run's history.
        compaction: when to compact the run folder, and how much at once.
    """

    def __init__(
        self,
        training: Training,
        controller: Controller,
        open_folder: Callable[[NodeId], RunFolder],
        scheduler: Scheduler,
        on_record: Callable[[Record], None],
        compaction: Limits | None = None,
    ) -> None:
        self.training = training
        self.controller = controller
        self.scheduler = scheduler
        self.finished: m.Finish | None = None
        self.nodes: dict[NodeId, Node] = {}
        self.dead: dict[NodeId, Node] = {}
        self.stalled: dict[NodeId, int] = {}
        """Nodes about to be lost, with the lag of their loss: never prepared again; at lag 1 they save nothing more."""
        self._on_record = on_record
        self._folding = Lock()
        self._folders = {name: open_folder(name) for name in ("controller", "compactor", *controller.view.nodes)}
        in_background = partial(scheduler.write, "compactor")
        self._tidying = Tidying(
            self._folders["compactor"], in_background, lambda cause: scheduler.post(m.Superseded(cause)), compaction
        )
        for name in controller.view.servers:
            self.nodes[name] = Server(name, training, self._folders[name].reader)
        for name in controller.view.workers:
            self.nodes[name] = Worker(name, training, self._folders[name].reader, self)

    # ------------------------------------------------------------------------------------------------------ the wiring
    def handle(self, event: m.Event) -> None:
        """Let the controller decide, and carry out what it decides."""
        for action in self.controller.handle(event):
            self._perform(action)

    def _perform(self, action: m.Action) -> None:
        match action:
            case m.Send():
                self._send("controller", action.node, action.order)
            case m.Report():
                self._on_record(action.record)
                if action.record.name == "save_committed":
                    self._tidying.after_save(self.controller.term, list(self.nodes))
            case m.SetTimer():
                self.scheduler.post(m.TimerFired(action.token), action.delay_s)
            case m.CompleteUnit():
                self.scheduler.write("controller", lambda: self._complete_unit(action))
            case m.ClaimTerm():
                self.scheduler.write("controller", lambda: self._claim_term(action.unit))
            case m.Finish():
                self.finished = action

    def _send(self, source: NodeId, name: NodeId, order: m.NodeOrder | Stored | ShardResult) -> None:
        self.scheduler.deliver(source, name, lambda: self._give(name, order), isinstance(order, m.Push))

    def _give(self, name: NodeId, order: m.NodeOrder | Stored | ShardResult) -> None:
        node = self.nodes.get(name)
        if node is None:
            return
        for output in node.handle(order):
            self._route(name, output)
        if isinstance(order, m.Push) and isinstance(node, Server):
            with self._folding:  # so that the last word is the newest: else shards could wait for ever
                servers = [n for n in self.nodes.values() if isinstance(n, Server)]
                self.scheduler.folded(order.commit, min((s.n_folded for s in servers), default=0))

    def _route(self, source: NodeId, output: Output) -> None:
        lag = self.stalled.get(source)
        if (lag is not None and _is_withheld(output, lag)) or source not in self.nodes:
            return  # in this order: a node that is killed meanwhile leaves `nodes` before `stalled`
        match output:
            case Reply():
                self.scheduler.post(output.event)
            case Forward():
                self._send(source, output.node, output.order)
            case Store():
                self.scheduler.write(source, lambda: self._store(source, output))
            case RunShards():
                for shard in output.shards:
                    self._run_shard(source, output, shard)

    def _run_shard(self, name: NodeId, run: RunShards, shard: int) -> None:
        def task() -> None:
            worker = self.nodes.get(name)
            if not isinstance(worker, Worker):
                return
            try:
                result = worker.run_shard(run.order, shard)
            except Exception:
                # A shard of an old view may see blocks change under it; what it makes of them does not count.
                if worker.holder.obeys(run.order.view):
                    raise
                return
            if result is not None:
                self._send(name, name, result)

        in_order = run.order.commit if isinstance(run.order, m.ComputePhase) else 0
        self.scheduler.compute(name, shard, in_order, task)

    def _store(self, name: NodeId, store: Store) -> None:
        outcome = write_job(self._folders[name], SaveJob(store.segment))
        self._send(name, name, Stored(store.segment.save_id, outcome))

    def _complete_unit(self, action: m.CompleteUnit) -> None:
        v = action.version
        unit = FullSave(v.term, v.commit, v.iteration, action.save_id, action.segments)
        try:
            self._folders["controller"].write_unit(unit)
        except SupersededError as e:
            self.scheduler.post(m.Superseded(str(e)))
        except StoreError as e:
            self.scheduler.post(m.UnitFailed(action.save_id, str(e)))
        else:
            self.scheduler.post(m.UnitCommitted(action.save_id))

    def _claim_term(self, version: Version | None) -> None:
        folder, own = self._folders["controller"], self.controller.term
        try:
            unit = folder.last_unit(own) if version else None
            if version and (unit is None or (unit.term, unit.commit) != (version.term, version.commit)):
                raise DamagedError(f"the full save of x({version.iteration}) is gone from the store")
            term = folder.claim_term(unit or "new", after=own)
        except (SupersededError, RunInUseError) as e:
            self.scheduler.post(m.Superseded(str(e)))
        except StoreError as e:
            self.scheduler.post(m.TermFailed(str(e)))
        else:
            self.scheduler.post(m.TermClaimed(term))

    def read(self, server: NodeId, view: int, commit: int, table: str, ids: Ids | None) -> Blocks | None:
        """The data path of the workers."""
        node = self.nodes.get(server)
        return node.read(view, commit, table, ids) if isinstance(node, Server) else None

    # -------------------------------------------------------------------------------------------------- life and death
    def kill(self, name: NodeId, reason: str) -> None:
        """A node dies with all it holds; the controller is told."""
        if name in self.nodes:
            self.dead[name] = self.nodes[name]
            self.nodes = {n: node for n, node in self.nodes.items() if n != name}  # others may be reading the old one
            self.stalled.pop(name, None)
            self.scheduler.post(m.NodeLost(name, reason))

    def state(self) -> dict[str, Blocks]:
        """Per table all blocks that live nodes hold."""
        whole: dict[str, Blocks] = {}
        for name, table in self.training.layout.tables.items():
            parts = [n.holder.blocks[name] for n in self.nodes.values() if name in n.holder.blocks]
            whole[name] = concatenate(table, parts)
        return whole


def _is_withheld(output: Output, lag: int) -> bool:
    """Whether a node that is about to be lost does not get this out any more."""
    if isinstance(output, Reply):
        if isinstance(output.event, m.Prepared):
            return True
        return lag == 1 and isinstance(output.event, (m.DistancesMeasured, m.BlocksStaged, m.SaveCommitted))
    return lag == 1 and isinstance(output, Store)

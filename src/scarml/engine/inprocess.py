"""The engine that runs a cluster in one process: nodes are objects, shards run on threads, losses are simulated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from threadpoolctl import threadpool_limits

from scarml.control import messages as m
from scarml.control.checkpoint_coordinator import SaveStep
from scarml.control.controller import Controller
from scarml.control.history import Record
from scarml.control.transitions import State
from scarml.control.view import NodeId
from scarml.core.block import Blocks
from scarml.engine.cluster import Cluster
from scarml.engine.fault_plan import FaultPlan
from scarml.engine.local_nodes import LocalNodes
from scarml.engine.node import Training
from scarml.engine.threads import ThreadScheduler
from scarml.storage.run_folder import RunFolder
from scarml.theory.perturbation import perturbation_norm

__all__ = ["InProcess"]


class InProcess:
    """Runs one cluster to its end.

    Args:
        training: what is trained.
        controller: decides.
        folder: the run.
        n_threads: for shards.
        faults: which nodes are lost, and when.
        on_record: gets every record, with the time and exact perturbations.
    """

    def __init__(
        self,
        training: Training,
        controller: Controller,
        folder: RunFolder,
        *,
        n_threads: int,
        faults: FaultPlan,
        on_record: Callable[[Record], None],
    ) -> None:
        self._scheduler = ThreadScheduler(n_threads, window=max(len(controller.view.workers), n_threads) + 1)
        self._faults = faults
        self._tell = on_record
        self._lost: list[dict[str, Blocks]] = []
        """What lost nodes held, until it is restored."""
        self._unmended: list[dict[str, Blocks]] = []
        """The same, if it is to be mended, until it is."""
        self._awaited_save: int | None = None
        self._save_begun_at: int | None = None
        self._store_fails = False
        self._kept_back: list[m.Event] = []
        self.nodes = LocalNodes(training, lambda _: folder, self._scheduler)
        for name in controller.view.servers:
            self.nodes.add(name, "server")
        for name in controller.view.workers:
            self.nodes.add(name, "worker")
        self.cluster = Cluster(controller, self.nodes, lambda _: folder, self._scheduler, self._on_record)

    def run(self, start: m.Start) -> m.Finish:
        """Train until the controller says that it is over.

        Raises:
            Whatever a model or a node raised.
        """
        with threadpool_limits(1):
            try:
                self.cluster.handle(start)
                while self.cluster.finished is None:
                    self.cluster.handle(self._next_event())
                    self._strike()
            finally:
                self._scheduler.close()
        return self.cluster.finished

    def _next_event(self) -> m.Event:
        """The next event; with losses planned, no phase is decided before the save in flight is settled.

        Else what a loss costs, and how much is saved, would depend on how fast the store is, and the run could not be
        repeated. A store that fails does not hold up training.
        """
        while True:
            waits = (
                not self._faults.is_empty
                and not self._store_fails
                and self.cluster.controller.saves.step is not SaveStep.IDLE
            )
            if self._kept_back and not waits:
                return self._kept_back.pop(0)
            event = self._scheduler.events.get()
            if isinstance(event, BaseException):
                raise event
            if not (waits and isinstance(event, m.Prepared)):
                return event
            self._kept_back.append(event)

    def post(self, event: m.Event) -> None:
        """Bring an event to the controller, from any thread or a signal handler."""
        self._scheduler.post(event)

    def write(self, task: Callable[[], None]) -> None:
        """Run a task beside training, one after the other."""
        self._scheduler.write("driver", task)

    def place(self, name: NodeId) -> tuple[int | None, str | None]:
        """Nodes have no processes of their own."""
        return None, None

    def state(self) -> dict[str, Blocks]:
        """Per table all blocks, at a boundary or after the end."""
        return self.nodes.state(self.cluster.controller.view)

    # -------------------------------------------------------------------------------------------------------- records
    def _on_record(self, record: Record) -> None:
        extra: dict[str, Any] = {}
        match record.name:
            case "iteration_committed":
                self._doom(record["iteration"])
            case "save_started" if not record["final"]:
                self._save_begun_at = record["iteration"]
            case "save_started":  # the run is about to end: who is lost now has no part in its last save
                self.nodes.stalled.update(dict.fromkeys(self.nodes.stalled, 1))
            case "save_failed":
                self._store_fails = True
            case "save_committed":
                self._awaited_save, self._store_fails = None, False
            case "save_given_up":  # because the store failed, or because a node was lost
                self._awaited_save = None
            case "node_lost":
                extra = {"simulated": True}
            case "recovery_started" if record["kind"] == "full":
                self._lost.append({name: blocks.copy() for name, blocks in self.state().items()})
            case "recovery_completed" if record["kind"] != "start":
                extra = {**self._perturbation(self._lost), "perturbation_age_iters": 0}
                self._unmended = self._lost if record["kind"] == "repair" else []
                self._lost = []
            case "repair_completed":
                extra = self._perturbation(self._unmended)
                self._unmended = []
        self._tell(replace(record, fields={**record.fields, **extra}, t_s=self._scheduler.now_s()))

    def _perturbation(self, lost: list[dict[str, Blocks]]) -> dict[str, Any]:
        """How far the state is from what was lost: exact, since nothing is lost here during a repair."""
        state = self.state()
        pairs = [
            (state[name].take(blocks.ids), blocks)
            for held in lost
            for name, blocks in held.items()
            if not blocks.table.derived and len(blocks)
        ]
        norm = perturbation_norm(pairs, self.nodes.training.model.distance)
        return {"perturbation": norm, "perturbation_is_exact": True}

    # --------------------------------------------------------------------------------------------------------- losses
    def _doom(self, iteration: int) -> None:
        """On x(iteration): choose who is lost in the next phase; they will never be prepared for it."""
        view = self.cluster.controller.view
        for lag in (0, 1):
            victims = [n for n in self._faults.due(iteration, lag, view) if n in self.nodes.live]
            if victims and lag == 1:
                self._scheduler.drain_writes()
            self.nodes.stalled.update(dict.fromkeys(victims, lag))
        self._awaited_save = iteration if self.nodes.stalled else None
        self._save_begun_at = None

    def _strike(self) -> None:
        """After every event: lose the doomed once the next phase is under way and the save of x(T) is settled.

        If there is no next phase, because x(T) is the end, they are lost during the last save.
        """
        doomed = self.nodes.stalled
        if not doomed or self.cluster.controller.state not in (State.COMPUTING, State.HOLDING, State.SAVING):
            return
        if 1 not in doomed.values() and self._awaited_save is not None:
            if self._save_begun_at == self._awaited_save:
                return
            self._scheduler.drain_writes()
        iteration = self.cluster.controller.clock.iteration
        for name in list(doomed):
            self._lost.append(self.nodes.live[name].holder.blocks)
            self.nodes.kill(name, f"killed by the fault plan on x({iteration}), simulated")

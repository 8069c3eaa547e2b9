"""The engine on Ray: runs one cluster of real processes to its end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from scarml.control import messages as m
from scarml.control.controller import Controller
from scarml.control.history import Record
from scarml.control.view import NodeId
from scarml.core.block import Blocks
from scarml.engine.cluster import Cluster
from scarml.engine.fault_plan import FaultPlan
from scarml.engine.node import Training
from scarml.engine.ray.connection import RayCluster
from scarml.engine.ray.setup import Setup
from scarml.engine.threads import ThreadScheduler
from scarml.errors import ClusterLostError
from scarml.storage.run_folder import RunFolder

__all__ = ["RayEngine"]


class RayEngine:
    """Runs one cluster to its end.

    Args:
        training: what is trained; the nodes get everything but the shards.
        data: the name of a data set, which every worker reads for itself, or the data.
        held_out: what of it, or beside it, metrics are taken of: see `scarml.data.held_out.load_with_held_out`.
        controller: decides.
        folder: the run.
        url: of the run folder, as every process can open it.
        silence_s: of a node, after which it is lost.
        faults: whose processes are killed, and when: for real.
        on_record: gets every record, with the time.
        ray_cluster: where the processes are; it is opened if it is not, and closed by whoever made it.
    """

    def __init__(  # noqa: PLR0913 - keyword-only, from the one place that makes it
        self,
        training: Training,
        controller: Controller,
        folder: RunFolder,
        *,
        data: Any,
        held_out: Any = None,
        url: str,
        silence_s: float,
        faults: FaultPlan,
        on_record: Callable[[Record], None],
        ray_cluster: RayCluster,
    ) -> None:
        self._training = training
        self._data = data
        self._held_out = held_out
        self._controller = controller
        self._folder = folder
        self._url = url
        self._silence_s = silence_s
        self._faults = faults
        self._tell = on_record
        self._ray_cluster = ray_cluster
        self._scheduler = ThreadScheduler(1)
        self._nodes: Any = None
        self._killed: set[NodeId] = set()
        self._state: dict[str, Blocks] = {}

    def run(self, start: m.Start) -> m.Finish:
        """Train until the controller says that it is over.

        Raises:
            ClusterError: there is no Ray, or no process of a node.
            ClusterLostError: Ray has died under the run.
            Whatever a model or a node raised.
        """
        with ExitStack() as stack:
            stack.callback(self._scheduler.close)
            view = self._controller.view
            self._tell(Record("nodes_starting", {"n_nodes": len(view.nodes)}, self._scheduler.now_s()))
            self._ray_cluster.open()
            nodes = self._make_nodes(stack)
            kinds: dict[NodeId, m.NodeKind] = {**dict.fromkeys(view.servers, "server")}
            kinds |= dict.fromkeys(view.workers, "worker")
            nodes.start_all(kinds)
            cluster = Cluster(self._controller, nodes, lambda _: self._folder, self._scheduler, self._on_record)
            cluster.handle(start)
            while cluster.finished is None:
                event = self._scheduler.events.get()
                if isinstance(event, BaseException):
                    raise event
                cluster.handle(event)
            self._scheduler.drain_writes()
            if nodes.gcs_lost is not None and cluster.finished.outcome in ("stopped", "nodes-lost"):
                saved = "everything is saved" if cluster.finished.saved else "what was saved before is safe"
                raise ClusterLostError(
                    f"the head of Ray is gone (its GCS, {nodes.gcs_lost}); training has stopped at "
                    f"x({self._controller.clock.iteration}), and {saved}"
                )
            if cluster.finished.outcome in m.AT_BOUNDARY:
                self._state = nodes.state(self._controller.view, self._training.layout.tables)
            return cluster.finished

    def _make_nodes(self, stack: ExitStack) -> Any:
        import ray

        from scarml.engine.ray.remote_nodes import RemoteNodes

        training = self._training
        data, held_out = (
            d if d is None or isinstance(d, str | int | float) else ray.put(d) for d in (self._data, self._held_out)
        )
        setup = Setup(
            training.model,
            training.layout,
            training.seed,
            training.encodings,
            self._url,
            data,
            held_out,
            self._silence_s,
        )
        self._nodes = RemoteNodes(self._ray_cluster, setup, self._scheduler.events.put, self._silence_s)
        stack.callback(self._nodes.close)
        return self._nodes

    def post(self, event: m.Event) -> None:
        """Bring an event to the controller, from any thread or a signal handler."""
        self._scheduler.post(event)

    def write(self, task: Callable[[], None]) -> None:
        """Run a task beside training, one after the other."""
        self._scheduler.write("driver", task)

    def state(self) -> dict[str, Blocks]:
        """Per table all blocks, after an end at a boundary."""
        return self._state

    def place(self, name: NodeId) -> tuple[int | None, str | None]:
        """Number and host of the process of a node."""
        return (None, None) if self._nodes is None else self._nodes.place(name)

    def _on_record(self, record: Record) -> None:
        extra: dict[str, Any] = {}
        match record.name:
            case "run_started":
                extra = {"processes": [self._process(n) for n in (*record["servers"], *record["workers"])]}
            case "node_joined":
                extra = self._process(record["node"])
            case "node_lost":
                extra = {"simulated": False, "killed": record["node"] in self._killed}
                self._nodes.stop(record["node"])  # should it live after all
        self._tell(replace(record, fields={**record.fields, **extra}, t_s=self._scheduler.now_s()))
        if record.name == "iteration_committed":
            self._kill(self._faults.due(record["iteration"], 0, self._controller.view), record["iteration"])

    def _kill(self, names: list[NodeId], iteration: int) -> None:
        """Lose nodes on purpose, for real."""
        if not names:
            return
        fields = {"iteration": iteration, "processes": [self._process(n) for n in names]}
        at_s = self._scheduler.now_s()
        for name in names:
            self._killed.add(name)
            self._nodes.kill(name)
        self._tell(Record("nodes_killed", fields, at_s))

    def _process(self, name: NodeId) -> dict[str, Any]:
        pid, host = self.place(name)
        return {"node": name, "pid": pid, "host": host}

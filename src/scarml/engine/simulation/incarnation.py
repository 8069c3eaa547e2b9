"""One start of a simulated cluster, and all that can go wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from scarml.checkpoint.version_index import Version
from scarml.control import messages as m
from scarml.control.controller import Controller
from scarml.control.history import Record
from scarml.control.stop import HeldOut, Stop
from scarml.control.view import NodeId
from scarml.engine.cluster import Cluster
from scarml.engine.lease import Lease
from scarml.engine.local_nodes import LocalNodes
from scarml.engine.node import Training
from scarml.engine.simulation.metrics_witness import MetricsWitness
from scarml.engine.simulation.scenario import Scenario
from scarml.engine.simulation.virtual_time import VirtualScheduler
from scarml.engine.simulation.witness import Follower, Witness
from scarml.storage.local import LocalStore
from scarml.storage.run_folder import RunFolder
from scarml.storage.run_start import start_from
from scarml.storage.simulated_disk import SimulatedDisk
from scarml.storage.terms import Base

__all__ = ["DriverDiedError", "Incarnation", "World"]

NEVER = 1_000
"""A patience that no life is long enough for: what early stopping knows is looked at, and does not end the run."""


@dataclass(slots=True)
class World:
    """What outlives a start of the cluster.

    Args:
        rng: decides everything.
        trace: a hash of everything that happens.
        scenario: what the life is about.
        training: what is trained.
        witness: holds everything against the invariants.
        held_out: what is evaluated on held-out data; None: nothing.
        metrics: holds that against a sequential run.
        disk: the shared store.
        on_fault: told the name of everything that goes wrong.
    """

    rng: np.random.Generator
    trace: Any
    scenario: Scenario
    training: Training
    witness: Witness
    held_out: HeldOut | None
    metrics: MetricsWitness
    disk: SimulatedDisk
    on_fault: Callable[[str], None]


class SimulatedNodes(LocalNodes):
    """Nodes that take a while to start, or do not, and that live on when they are wrongly taken for lost."""

    def __init__(
        self,
        training: Training,
        open_folder: Callable[[NodeId], RunFolder],
        scheduler: VirtualScheduler,
        new_lease: Callable[[], Lease],
        rng: np.random.Generator,
    ) -> None:
        super().__init__(training, open_folder, scheduler, new_lease)
        self._virtual = scheduler
        self._rng = rng

    def __contains__(self, name: NodeId) -> bool:
        return name in self._hosts

    def ping(self) -> None:
        """The controller speaks to every node it knows of, and each that lives answers."""
        for name in self.live:
            self._virtual.deliver("controller", name, partial(self._answer, name))

    def _answer(self, name: NodeId) -> None:
        host = self.host(name)
        host.lease.renew()
        if not host.is_over:
            self._virtual.post(m.Heartbeat(name, self._virtual.now_s()))

    def start(self, name: NodeId, kind: m.NodeKind) -> None:
        """After a while; one in five cannot be started."""
        delay_s = 0.1 * float(self._rng.random())
        if self._rng.random() < 0.2:
            self._virtual.post(m.NodeLost(name, "it could not be started"), delay_s)
        else:
            self._virtual.at(delay_s, "start", lambda: LocalNodes.start(self, name, kind))

    def stop(self, name: NodeId) -> None:
        """Who has left ends. Who was taken for lost cannot be reached: it goes on until its lease is over."""
        node = self.live.get(name)
        if node is not None:
            self.forget(name)


class DriverDiedError(Exception):
    """The controller's process is gone, and with it this incarnation."""


class Incarnation:
    """One start of the cluster, until it finishes or its driver dies."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._rng = world.rng
        scenario = world.scenario
        n_servers = scenario.servers if number == 1 else int(self._rng.integers(1, 5))
        n_workers = scenario.workers if number == 1 else int(self._rng.integers(1, 4))
        self._disks: dict[NodeId, SimulatedDisk] = {}
        self._power_cords: set[NodeId] = set()
        self._n_file_operations: dict[NodeId, int] = {}
        self._listens = True
        self._number = number
        self.scheduler: VirtualScheduler = VirtualScheduler(self._rng, world.trace)
        controller = Controller(
            world.training.layout,
            [f"server-{number}{i:02d}" for i in range(n_servers)],
            [f"worker-{number}{i:02d}" for i in range(n_workers)],
            n_phases=world.training.model.n_phases,
            n_repair_phases=world.training.model.n_repair_phases,
            seed=world.training.seed,
            checkpoint=scenario.checkpoint,
            stop=Stop(
                max_iters=scenario.max_iters,
                eval_every_iters=int(self._rng.integers(1, 4)),
                patience=NEVER if world.held_out is not None else None,
            ),
            held_out=world.held_out,
            silence_s=scenario.silence_s,
            replaces=scenario.replaces,
        )
        self.nodes = SimulatedNodes(
            world.training,
            self._open,
            self.scheduler,
            lambda: Lease(scenario.silence_s, self.scheduler.now_s),
            self._rng,
        )
        for name in controller.view.servers:
            self.nodes.add(name, "server")
        for name in controller.view.workers:
            self.nodes.add(name, "worker")
        self.cluster = Cluster(controller, self.nodes, self._open, self.scheduler, self._on_record, scenario.compaction)
        self.follower = Follower(world.witness, self.cluster, self.nodes)
        self.scheduler.on_event = self._handle
        self.scheduler.on_post = self._on_post

    def _open(self, name: NodeId) -> RunFolder:
        self._disks[name] = disk = self._world.disk.process()
        return RunFolder(LocalStore("/run", disk, token=f"{self._number}-{name}"), {})

    def start(self) -> None:
        """Claim a term, as `scarml.job` does, and go. Raises StoreError, or dies."""
        folder = RunFolder(LocalStore("/run", self._disks["controller"], token=f"{self._number}-start"), {})
        full = self._world.scenario.checkpoint.recovery == "full"
        last = folder.last_term()
        unit = folder.last_unit(last) if last is not None else None
        base: Base = "new" if last is None else (unit or "new") if full else "parent"
        term = folder.claim_term(base)
        reader = folder.reader(term)
        start = start_from(reader, term, unit)
        self._world.witness.require(not reader.damaged_segments(), 2, f"torn segments: {reader.damaged_segments()}")
        if full:
            self._world.witness.note_taken_back(start.unit)
        self._world.metrics.goes_on_at(start.iteration)
        self._handle(start)
        self._listen()

    def _listen(self) -> None:
        """A heartbeat of everybody, and again after a while."""
        if not self._listens:
            return
        self.nodes.ping()
        self.scheduler.post(m.Tick(self.scheduler.now_s()))
        self.scheduler.at(self._world.scenario.silence_s / 6, "listen", self._listen)

    def stop_listening(self) -> None:
        """The controller says nothing more: who has not ended by itself, its lease ends."""
        self._listens = False

    def plan_faults(self, n: int) -> None:
        """Let ``n`` things go wrong at random moments from now."""
        horizon_s = 0.02 * self._world.scenario.max_iters
        for _ in range(n):
            name, fault = _FAULTS[self._rng.integers(len(_FAULTS))]
            self.scheduler.at(float(self._rng.random()) * horizon_s, name, partial(self._strike, name, fault))

    def step(self) -> bool:
        """One task. Returns whether there was one. Raises DriverDiedError."""
        ran = self.scheduler.step()
        if ran is None:
            return False
        owner, crash = ran
        self._check_lease(owner)
        if crash is not None:
            if owner in self._power_cords:
                self._world.disk.crash()
                raise DriverDiedError("power loss in a file operation")
            if owner in ("controller", "compactor", "outside"):
                raise DriverDiedError("crash at a file operation")
            self.kill(owner, "crashed at a file operation")
        return True

    def _check_lease(self, name: NodeId) -> None:
        """A node that has just done something: it has left the store alone if its lease is over."""
        if name not in self.nodes:
            return
        before, now = self._n_file_operations.get(name, 0), len(self._disks[name].log)
        self._n_file_operations[name] = now
        if now > before:
            story = f"{name} works on the store after its lease is over"
            self._world.witness.require(not self.nodes.host(name).lease.is_over, 3, story)

    def kill(self, name: NodeId, reason: str) -> None:
        """A node's process dies; what it has written stays."""
        if name in self.nodes.live:
            self._disks[name].kill()
            self.scheduler.forget(name)
            self.nodes.kill(name, reason)

    # ------------------------------------------------------------------------------------------------------- watching
    def _handle(self, event: m.Event) -> None:
        self.follower.before(event)
        self.cluster.handle(event)
        self.follower.after()

    def _on_post(self, event: m.Event) -> None:
        full = self._world.scenario.checkpoint.recovery == "full"
        if isinstance(event, m.SaveCommitted) and not (full and self.follower.is_cut_off):
            # With full recovery a part of a save promises nothing to the next start: only complete full saves do.
            self.follower.reported(event.node)

    def _on_record(self, record: Record) -> None:
        controller = self.cluster.controller
        full = self._world.scenario.checkpoint.recovery == "full"
        unit = controller.saves.last_unit or Version(0, 0, 0)
        if record.name == "recovery_started":
            if full:
                self._world.witness.note_taken_back(controller.saves.last_unit)
            self.follower.restoring(everything=full)
        elif record.name == "recovery_completed":
            self.follower.recovered(record["view"], exactly=unit if full else None)
        elif record.name == "metrics_evaluated" and not self.follower.is_cut_off:
            self._world.metrics.evaluated(record.fields, self.follower.state_in_view())

    # ---------------------------------------------------------------------------------------------------------- faults
    def _strike(self, name: str, fault: Callable[[Incarnation], None]) -> None:
        self._world.on_fault(name)
        fault(self)

    def any_nodes(self, n: int) -> list[NodeId]:
        """Some live nodes."""
        names = list(self.nodes.live)
        return [names[i] for i in self._rng.permutation(len(names))[:n]]

    def kill_nodes(self, n: int) -> None:
        """Kill some at once."""
        for name in self.any_nodes(n):
            self.kill(name, "killed")

    def pause_nodes(self, n: int) -> None:
        """Some are stopped for a while, some so long that they are taken for lost; then they go on."""
        for name in self.any_nodes(n):
            self.scheduler.pause(name, self._silence_s())

    def cut_off_node(self) -> None:
        """One cannot reach the controller for a while, but the other nodes and the store."""
        for name in self.any_nodes(1):
            self.scheduler.cut_off(name, self._silence_s())

    def slow_down_node(self) -> None:
        """One is slow for a while."""
        for name in self.any_nodes(1):
            self.scheduler.slow_down(name, self._silence_s())

    def _silence_s(self) -> float:
        return float(self._rng.choice([0.5, 1.1, 3.0]) * self._rng.random()) * 2 * self._world.scenario.silence_s

    def drain_node(self) -> None:
        """Somebody asks a node to leave."""
        for name in self.any_nodes(1):
            self.scheduler.post(m.DrainRequested(name, "asked to"))

    def preempt_node(self) -> None:
        """A node is told that it has a grace time; then it is killed."""
        for name in self.any_nodes(1):
            self.scheduler.post(m.DrainRequested(name, "preempted", replace=True))
            grace_s = float(self._rng.random()) * 0.1
            self.scheduler.at(grace_s, "grace time over", partial(self.kill, name, "preempted"))

    def scale(self) -> None:
        """Somebody wants another number of nodes."""
        servers, workers = (int(self._rng.integers(0, 6)) for _ in range(2))
        self.scheduler.post(m.ScaleRequested(servers, workers or None))

    def crash_in_file_operation(self) -> None:
        """A node, or the driver, dies in one of its next file operations."""
        name = (self.any_nodes(1) or ["controller"])[0]
        if self._rng.random() < 0.4:
            name = ("controller", "compactor")[self._rng.integers(2)]
        self._disks[name].crash_at_op(int(self._rng.integers(1, 30)))

    def lose_power_in_file_operation(self) -> None:
        """Everything dies in one of the next file operations of a node, or of the compactor."""
        name = "compactor" if self._rng.random() < 0.3 else (self.any_nodes(1) or ["controller"])[0]
        self._power_cords.add(name)
        self._disks[name].crash_at_op(int(self._rng.integers(1, 30)))

    def fail_store(self) -> None:
        """The store refuses everything, for some or for all, for a while."""
        names = list(self._disks) if self._rng.random() < 0.5 else self.any_nodes(1)
        for name in names:
            self._disks[name].fail_always("connection lost")

        def heal() -> None:
            for name in names:
                self._disks[name].heal()

        self.scheduler.at(float(self._rng.choice([0.5, 2.0, 20.0]) * self._rng.random()), "heal", heal)

    def fill_store(self) -> None:
        """The disk is full for a while."""
        self._world.disk.volume.capacity_bytes = 0
        self.scheduler.at(float(self._rng.random()) * 1.0, "make room", self._world.disk.heal)

    def slow_store(self) -> None:
        """Writes take long for a while."""
        self.scheduler.slow_writes(True)
        self.scheduler.at(float(self._rng.random()), "fast again", partial(self.scheduler.slow_writes, False))

    def lose_power(self) -> None:
        """Everything dies, and the disk loses what was not synced."""
        self._world.disk.crash()
        raise DriverDiedError("power loss")

    def lose_driver(self) -> None:
        """The driver is cut off: it and its nodes go on for a while, beside those of the next start."""
        self.follower.is_cut_off = True
        raise DriverDiedError("driver cut off")


_FAULTS: list[tuple[str, Callable[[Incarnation], None]]] = [
    ("kill one", lambda i: i.kill_nodes(1)),
    ("kill one again", lambda i: i.kill_nodes(1)),
    ("kill two at once", lambda i: i.kill_nodes(2)),
    ("kill all nodes", lambda i: i.kill_nodes(99)),
    ("pause one", lambda i: i.pause_nodes(1)),
    ("pause two", lambda i: i.pause_nodes(2)),
    ("cut one off", Incarnation.cut_off_node),
    ("slow one down", Incarnation.slow_down_node),
    ("drain one", Incarnation.drain_node),
    ("preempt one", Incarnation.preempt_node),
    ("scale", Incarnation.scale),
    ("scale again", Incarnation.scale),
    ("crash in a file operation", Incarnation.crash_in_file_operation),
    ("crash in a file operation again", Incarnation.crash_in_file_operation),
    ("store down", Incarnation.fail_store),
    ("disk full", Incarnation.fill_store),
    ("store slow", Incarnation.slow_store),
    ("power loss", Incarnation.lose_power),
    ("power loss in a file operation", Incarnation.lose_power_in_file_operation),
    ("power loss in a file operation", Incarnation.lose_power_in_file_operation),
    ("driver cut off", Incarnation.lose_driver),
    ("request to stop", lambda i: i.scheduler.post(m.StopRequested("asked to"))),
]

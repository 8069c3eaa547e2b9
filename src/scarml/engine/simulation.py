"""A whole cluster's life in virtual time: seeded, single-threaded, and watched by a `Witness`.

One seed decides everything: the problem, the nodes, the settings, the order of deliveries, what fails and when, and what
a simulated disk keeps of it. A life ends when the training is done and everything is durable; until then its cluster is
started again after each death, as a user would with the same command. A failing life names its seed; the same seed gives
the same life.

    >>> from scarml.testing import tiny_problem
    >>> live(seed=1, problem=tiny_problem("mlr")).outcome
    'max-iters'
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scarml.checkpoint.selection import Checkpoint
from scarml.checkpoint.version_index import Version
from scarml.control import messages as m
from scarml.control.controller import Controller, Stop
from scarml.control.history import Record
from scarml.control.view import Layout, NodeId
from scarml.core.model import Model
from scarml.core.rng import stream
from scarml.core.sequential import Sequential
from scarml.engine.cluster import Cluster
from scarml.engine.node import Training
from scarml.engine.witness import Follower, InvariantError, Witness
from scarml.errors import StoreError
from scarml.storage.local import LocalStore
from scarml.storage.run_folder import RunFolder
from scarml.storage.simulated_disk import SimulatedCrash, SimulatedDisk

__all__ = ["Life", "Scenario", "VirtualScheduler", "live"]

MAX_STARTS = 25
MAX_TASKS = 60_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """What one life is about, drawn from its seed.

    Args:
        servers, workers, shards: of each start; later starts may have other numbers of nodes.
        partitions: of each table, at most.
        checkpoint: the settings.
        max_iters: iterations to be done.
        n_faults: how many times something goes wrong; then the rest of the life is quiet, so that it can end.
    """

    servers: int
    workers: int
    shards: int
    partitions: int
    checkpoint: Checkpoint
    max_iters: int
    n_faults: int

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Scenario:
        """Draw one."""
        if rng.random() < 0.3:
            recovery = "full" if rng.random() < 0.7 else "partial"
            checkpoint = Checkpoint("full", 1, int(rng.integers(1, 5)), recovery)  # type: ignore[arg-type]
        else:
            fraction, interval = [("1/8", 8), ("1/4", 8), ("1/2", 4), ("1/3", 4), ("1", 2)][rng.integers(5)]
            policy = ("priority", "priority", "round", "random")[rng.integers(4)]
            budget_in = ("blocks", "bytes")[rng.integers(2)]
            checkpoint = Checkpoint(policy, fraction, interval, budget_in=budget_in)  # type: ignore[arg-type]
        return cls(
            servers=int(rng.integers(1, 5)),
            workers=int(rng.integers(1, 4)),
            shards=int(rng.integers(1, 6)),
            partitions=int(rng.integers(1, 9)),
            checkpoint=checkpoint,
            max_iters=int(rng.integers(4, 16)),
            n_faults=int(rng.integers(0, 7)),
        )


@dataclass(slots=True)
class Life:
    """What became of a life.

    Args:
        seed: gives it again.
        scenario: what it was about.
        outcome: how its last start ended.
        starts: how often its cluster was started.
        faults: what went wrong, and how often.
        checks: how often each invariant was checked.
        trace: a hash of every delivery in order: the same seed gives the same.
    """

    seed: int
    scenario: Scenario
    outcome: str = ""
    starts: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    trace: str = ""


class VirtualScheduler:
    """Virtual time: every task waits a random while; per link and per writer they keep their order.

    Args:
        rng: decides delays, and which repeatable deliveries come twice.
        trace: fed with every task that runs.
    """

    def __init__(self, rng: np.random.Generator, trace: Any) -> None:
        self._rng = rng
        self._trace = trace
        self._now_s = 0.0
        self._tasks: list[tuple[float, int, NodeId, str, Callable[[], None]]] = []
        self._n = 0
        self._last: dict[tuple[str, NodeId, NodeId], float] = {}
        self.write_s = 0.01
        self.on_event: Callable[[m.Event], None] = lambda _: None
        self.on_post: Callable[[m.Event], None] = lambda _: None

    def now_s(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def deliver(self, source: NodeId, node: NodeId, task: Callable[[], None], may_repeat: bool = False) -> None:
        """In order from each source; a repeat comes later, out of order."""
        self._put(node, "deliver", task, self._in_order(("link", source, node), self._delay(0.002)))
        if may_repeat and self._rng.random() < 0.1:
            self._put(node, "repeat", task, self._delay(0.04))

    def compute(self, node: NodeId, shard: int, commit: int, task: Callable[[], None]) -> None:
        """In any order."""
        self._put(node, f"shard {shard}", task, self._delay(0.005))

    def folded(self, commit: int, n_shards: int) -> None:
        """Nothing is held back here."""

    def write(self, node: NodeId, task: Callable[[], None]) -> None:
        """In order for each node."""
        self._put(node, "write", task, self._in_order(("writer", node, node), self._delay(self.write_s)))

    def post(self, event: m.Event, delay_s: float = 0.0) -> None:
        """From each node in order; timers exactly."""
        self.on_post(event)
        source = getattr(event, "node", "controller")
        name = type(event).__name__
        due = self._now_s + delay_s if delay_s else self._in_order(("post", source, "controller"), self._delay(0.002))
        self._put("controller", name, lambda: self.on_event(event), due)

    def at(self, delay_s: float, name: str, task: Callable[[], None]) -> None:
        """Something from outside happens."""
        self._put("outside", name, task, self._now_s + delay_s)

    def step(self) -> tuple[NodeId, BaseException | None] | None:
        """Run the next task. Returns whose it was and the crash that it died of; None if there is no task."""
        if not self._tasks:
            return None
        due_s, _, owner, name, task = heapq.heappop(self._tasks)
        self._now_s = max(self._now_s, due_s)
        self._trace.update(f"{owner} {name} {self._now_s:.9f};".encode())
        try:
            task()
        except SimulatedCrash as crash:
            return owner, crash
        return owner, None

    def forget(self, owner: NodeId) -> None:
        """A process has died: what it had still to do is not done."""
        self._tasks = [t for t in self._tasks if t[2] != owner or t[3] in ("deliver", "repeat")]
        heapq.heapify(self._tasks)

    def _delay(self, typical_s: float) -> float:
        slow = 10.0 if self._rng.random() < 0.02 else 1.0
        return self._now_s + typical_s * slow * float(self._rng.random())

    def _in_order(self, key: tuple[str, NodeId, NodeId], due_s: float) -> float:
        self._last[key] = max(due_s, self._last.get(key, 0.0) + 1e-9)
        return self._last[key]

    def _put(self, owner: NodeId, name: str, task: Callable[[], None], due_s: float) -> None:
        self._n += 1
        heapq.heappush(self._tasks, (due_s, self._n, owner, name, task))


class _DriverDied(Exception):
    """The controller's process is gone, and with it this incarnation."""


class _Incarnation:
    """One start of the cluster, until it finishes or its driver dies."""

    def __init__(self, life: _Living, number: int) -> None:
        self._life = life
        self._rng = life.rng
        scenario = life.scenario
        n_servers = scenario.servers if number == 1 else int(self._rng.integers(1, 5))
        n_workers = scenario.workers if number == 1 else int(self._rng.integers(1, 4))
        self._disks: dict[NodeId, SimulatedDisk] = {}
        self._power_cords: set[NodeId] = set()
        self._number = number
        self.scheduler = VirtualScheduler(self._rng, life.trace)
        controller = Controller(
            life.training.layout,
            [f"server-{number}{i:02d}" for i in range(n_servers)],
            [f"worker-{number}{i:02d}" for i in range(n_workers)],
            n_phases=life.training.model.n_phases,
            seed=life.training.seed,
            checkpoint=scenario.checkpoint,
            stop=Stop(max_iters=scenario.max_iters, eval_every_iters=int(self._rng.integers(1, 4))),
        )
        self.cluster = Cluster(life.training, controller, self._open, self.scheduler, self._on_record)
        self.follower = Follower(life.witness, self.cluster)
        self.scheduler.on_event = self._handle
        self.scheduler.on_post = self._on_post

    def _open(self, name: NodeId) -> RunFolder:
        self._disks[name] = disk = self._life.disk.process()
        return RunFolder(LocalStore("/run", disk, token=f"{self._number}-{name}"), {})

    def start(self) -> None:
        """Claim a term, as `scarml.job` does, and go. Raises StoreError, or dies."""
        folder = RunFolder(LocalStore("/run", self._disks["controller"], token=f"{self._number}-start"), {})
        full = self._life.scenario.checkpoint.recovery == "full"
        last = folder.last_term()
        unit = folder.last_unit(last) if last is not None else None
        base = "new" if last is None else (unit or "new") if full else "parent"
        term = folder.claim_term(base)  # type: ignore[arg-type]
        reader = folder.reader(term)
        newest = reader.newest_version() or Version(0, 0, 0)
        self._life.witness.require(not reader.damaged_segments(), 2, f"torn segments: {reader.damaged_segments()}")
        version = Version(unit.term, unit.commit, unit.iteration) if unit else None
        if full:
            self._life.witness.note_taken_back(version)
        self._handle(m.Start(term, newest.commit, newest.iteration, newest.iteration, version))

    def plan_faults(self, n: int) -> None:
        """Let ``n`` things go wrong at random moments from now."""
        horizon_s = 0.02 * self._life.scenario.max_iters
        for _ in range(n):
            name, fault = _FAULTS[self._rng.integers(len(_FAULTS))]
            self.scheduler.at(float(self._rng.random()) * horizon_s, name, lambda name=name, f=fault: self._strike(name, f))

    def step(self) -> bool:
        """One task. Returns whether there was one. Raises _DriverDied."""
        ran = self.scheduler.step()
        if ran is None:
            return False
        owner, crash = ran
        if crash is not None:
            if owner in self._power_cords:
                self._life.disk.crash()
                raise _DriverDied("power loss in a file operation")
            if owner in ("controller", "outside"):
                raise _DriverDied("crash at a file operation")
            self.kill(owner, "crashed at a file operation")
        return True

    def kill(self, name: NodeId, reason: str) -> None:
        """A node's process dies; what it has written stays."""
        if name in self.cluster.nodes:
            self._disks[name].kill()
            self.scheduler.forget(name)
            self.cluster.kill(name, reason)

    # ------------------------------------------------------------------------------------------------------- watching
    def _handle(self, event: m.Event) -> None:
        self.follower.before(event)
        self.cluster.handle(event)
        self.follower.after()

    def _on_post(self, event: m.Event) -> None:
        if isinstance(event, m.SaveCommitted):
            self.follower.reported(event.node)

    def _on_record(self, record: Record) -> None:
        controller = self.cluster.controller
        full = self._life.scenario.checkpoint.recovery == "full"
        unit = controller.saves.last_unit or Version(0, 0, 0)
        if record.name == "recovery_started":
            if full:
                self._life.witness.note_taken_back(controller.saves.last_unit)
            self.follower.restoring(everything=full)
        elif record.name == "recovery_completed":
            self.follower.recovered(exactly=unit if full else None)

    # ---------------------------------------------------------------------------------------------------------- faults
    def _strike(self, name: str, fault: Callable[[_Incarnation], None]) -> None:
        self._life.life.faults[name] += 1
        fault(self)

    def any_nodes(self, n: int) -> list[NodeId]:
        """Some live nodes."""
        names = list(self.cluster.nodes)
        return [names[i] for i in self._rng.permutation(len(names))[:n]]

    def kill_nodes(self, n: int) -> None:
        """Kill some at once."""
        for name in self.any_nodes(n):
            self.kill(name, "killed")

    def crash_in_file_operation(self) -> None:
        """A node, or the driver, dies in one of its next file operations."""
        name = "controller" if self._rng.random() < 0.2 else (self.any_nodes(1) or ["controller"])[0]
        self._disks[name].crash_at_op(int(self._rng.integers(1, 30)))

    def lose_power_in_file_operation(self) -> None:
        """Everything dies in one of the next file operations of a node."""
        name = (self.any_nodes(1) or ["controller"])[0]
        self._power_cords.add(name)
        self._disks[name].crash_at_op(int(self._rng.integers(1, 30)))

    def fail_store(self) -> None:
        """The store refuses everything, for some or for all, for a while."""
        names = list(self._disks) if self._rng.random() < 0.5 else self.any_nodes(1)
        for name in names:
            self._disks[name].fail_always("connection lost")
        self.scheduler.at(float(self._rng.choice([0.5, 2.0, 20.0]) * self._rng.random()), "heal", lambda: [self._disks[n].heal() for n in names])

    def fill_store(self) -> None:
        """The disk is full for a while."""
        self._life.disk.volume.capacity_bytes = 0
        self.scheduler.at(float(self._rng.random()) * 1.0, "make room", self._life.disk.heal)

    def slow_store(self) -> None:
        """Writes take long for a while."""
        self.scheduler.write_s = 0.3
        self.scheduler.at(float(self._rng.random()) * 1.0, "fast again", lambda: setattr(self.scheduler, "write_s", 0.01))

    def lose_power(self) -> None:
        """Everything dies, and the disk loses what was not synced."""
        self._life.disk.crash()
        raise _DriverDied("power loss")

    def lose_driver(self) -> None:
        """The driver is cut off: it and its nodes go on for a while, beside those of the next start."""
        self._life.zombies.append(self)
        raise _DriverDied("driver cut off")


_FAULTS: list[tuple[str, Callable[[_Incarnation], None]]] = [
    ("kill one", lambda i: i.kill_nodes(1)),
    ("kill one again", lambda i: i.kill_nodes(1)),
    ("kill two at once", lambda i: i.kill_nodes(2)),
    ("kill all nodes", lambda i: i.kill_nodes(99)),
    ("crash in a file operation", _Incarnation.crash_in_file_operation),
    ("crash in a file operation again", _Incarnation.crash_in_file_operation),
    ("store down", _Incarnation.fail_store),
    ("disk full", _Incarnation.fill_store),
    ("store slow", _Incarnation.slow_store),
    ("power loss", _Incarnation.lose_power),
    ("power loss in a file operation", _Incarnation.lose_power_in_file_operation),
    ("power loss in a file operation", _Incarnation.lose_power_in_file_operation),
    ("driver cut off", _Incarnation.lose_driver),
    ("request to stop", lambda i: i.scheduler.post(m.StopRequested("asked to"))),
]


class _Living:
    """A life while it is being lived."""

    def __init__(self, seed: int, problem: tuple[Model, Any]) -> None:
        self.rng = stream(seed, "life")
        self.scenario = Scenario.draw(self.rng)
        self.life = Life(seed, self.scenario)
        self.trace = hashlib.sha256()
        self.zombies: list[_Incarnation] = []
        model, data = problem
        shards = model.shards(data, self.scenario.shards)
        layout = Layout.of(model, model.tables(data), shards, seed, self.scenario.partitions)
        self.training = Training(model, shards, layout, seed)
        self.witness = Witness(Sequential(model, data, seed=seed, n_shards=self.scenario.shards))
        self.disk = SimulatedDisk(self.rng)

    def run(self) -> Life:
        RunFolder.create(LocalStore("/run", self.disk.process(), token="creator"), {})
        faults_left = self.scenario.n_faults
        for number in range(1, MAX_STARTS + 1):
            self.life.starts = number
            now = int(self.rng.integers(0, faults_left + 1)) if number < MAX_STARTS // 2 else 0
            faults_left -= now
            finish = self._one_start(number, now)
            if finish is not None and finish.outcome in ("max-iters", "converged") and finish.saved:
                self.life.outcome = finish.outcome
                self.life.checks = self.witness.n_checks
                self.life.trace = self.trace.hexdigest()
                return self.life
            self.disk.heal()
        raise InvariantError(f"invariant 8 is broken: not done after {MAX_STARTS} starts")

    def _one_start(self, number: int, n_faults: int) -> m.Finish | None:
        for _ in range(int(self.rng.integers(0, 30))):
            self._step_zombies()
        incarnation = _Incarnation(self, number)
        try:
            if n_faults and self.rng.random() < 0.1:
                incarnation.crash_in_file_operation()
            incarnation.start()
            incarnation.plan_faults(n_faults)
            for _ in range(MAX_TASKS):
                if incarnation.cluster.finished is not None:
                    self._check_end(incarnation)
                    return incarnation.cluster.finished
                if self.zombies and self.rng.random() < 0.3:
                    self._step_zombies()
                if not incarnation.step():
                    raise InvariantError("invariant 8 is broken: nothing is left to happen, and the run is not over")
        except (_DriverDied, SimulatedCrash, StoreError):
            return None
        raise InvariantError(f"invariant 8 is broken: not done after {MAX_TASKS} tasks")

    def _step_zombies(self) -> None:
        for zombie in list(self.zombies):
            try:
                alive = zombie.cluster.finished is None and zombie.step()
            except (_DriverDied, SimulatedCrash):
                alive = False
            if not alive and zombie in self.zombies:
                self.zombies.remove(zombie)

    def _check_end(self, incarnation: _Incarnation) -> None:
        """A run that ended with everything saved: its folder holds exactly its last state."""
        finish, cluster = incarnation.cluster.finished, incarnation.cluster
        if finish is None or not finish.saved:
            return
        folder = RunFolder(LocalStore("/run", self.disk.process(), token=f"reader-{self.life.starts}"), {})
        reader = folder.reader(cluster.controller.term)
        for name, blocks in cluster.state().items():
            if not blocks.table.derived:
                stored = reader.read_newest(blocks.table, blocks.table.all_ids)
                same = ~stored.blocks.differs_from(blocks) | ~stored.found
                story = f"blocks {np.flatnonzero(~same)[:5].tolist()} of {name} are not stored as they ended"
                self.witness.require(bool(same.all()), 2, story)


def live(seed: int, problem: tuple[Model, Any]) -> Life:
    """Live one life.

    Args:
        seed: decides everything.
        problem: a model and its data, small.

    Raises:
        InvariantError: an invariant is broken; the message has the seed.
    """
    living = _Living(seed, problem)
    try:
        return living.run()
    except InvariantError:
        raise
    finally:
        living.zombies.clear()

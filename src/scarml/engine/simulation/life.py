"""A whole cluster's life in virtual time: seeded, single-threaded, and watched by a `Witness`.

One seed decides everything: the nodes, the settings, the order of deliveries, what fails and when, and what a simulated
disk keeps of it. A life ends when the training is done and everything is durable; until then its cluster is started
again after each death, as a user would with the same command. A failing life names its seed; the same seed gives the
same life.

    >>> from scarml.testing import tiny_problem
    >>> live(seed=1, problem=tiny_problem("mlr")).outcome
    'max-iters'
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from scarml.control import messages as m
from scarml.control.stop import HeldOut
from scarml.control.view import Layout
from scarml.core.model import Model
from scarml.core.rng import stream
from scarml.core.sequential import Sequential, State, initial_blocks
from scarml.engine.node import Training
from scarml.engine.simulation.incarnation import DriverDiedError, Incarnation, World
from scarml.engine.simulation.metrics_witness import MetricsWitness
from scarml.engine.simulation.scenario import Scenario
from scarml.engine.simulation.witness import InvariantError, Witness
from scarml.errors import StoreError
from scarml.storage.local import LocalStore
from scarml.storage.run_folder import RunFolder
from scarml.storage.simulated_disk import SimulatedCrash, SimulatedDisk

__all__ = ["Life", "live"]

METRICS_EVERY = 2
MAX_STARTS = 25
MAX_TASKS = 60_000
MAX_TASKS_AFTER_THE_END = 2_000


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


class _Living:
    """A life while it is being lived."""

    def __init__(self, seed: int, problem: tuple[Model, Any], held_out: Any) -> None:
        rng = stream(seed, "life")
        scenario = Scenario.draw(rng, seed)
        model, data = problem
        shards = model.shards(data, scenario.shards)
        tables = model.tables(data)
        layout = Layout.of(model, tables, shards, seed, scenario.partitions)
        encodings = scenario.checkpoint.encodings(tables)
        evaluated = () if held_out is None else model.held_out_shards(held_out, scenario.shards)
        n_examples = sum(shard.n_examples for shard in evaluated)
        witness = Witness(Sequential(model, data, seed=seed, n_shards=scenario.shards), encodings)
        plan = HeldOut(tuple(model.metrics), n_examples, METRICS_EVERY) if evaluated else None
        self._life = Life(seed, scenario)
        self._zombies: list[Incarnation] = []
        self._world = World(
            rng=rng,
            trace=hashlib.sha256(),
            scenario=scenario,
            training=Training(model, shards, layout, seed, encodings, evaluated),
            witness=witness,
            held_out=plan,
            metrics=MetricsWitness(witness, evaluated, METRICS_EVERY),
            disk=SimulatedDisk(rng),
            on_fault=lambda name: self._life.faults.update([name]),
        )

    def run(self) -> Life:
        life, rng = self._life, self._world.rng
        RunFolder.create(LocalStore("/run", self._world.disk.process(), token="creator"), {})
        faults_left = self._world.scenario.n_faults
        for number in range(1, MAX_STARTS + 1):
            life.starts = number
            now = int(rng.integers(0, faults_left + 1)) if number < MAX_STARTS // 2 else 0
            faults_left -= now
            finish = self._one_start(number, now)
            if finish is not None and finish.outcome in ("max-iters", "converged") and finish.saved:
                life.outcome = finish.outcome
                life.checks = self._world.witness.n_checks
                life.trace = self._world.trace.hexdigest()
                return life
            self._world.disk.heal()
        raise InvariantError(f"invariant 8 is broken: not done after {MAX_STARTS} starts")

    def _one_start(self, number: int, n_faults: int) -> m.Finish | None:
        rng = self._world.rng
        for _ in range(int(rng.integers(0, 30))):
            self._step_zombies()
        incarnation = Incarnation(self._world, number)
        try:
            if n_faults and rng.random() < 0.1:
                incarnation.crash_in_file_operation()
            incarnation.start()
            incarnation.plan_faults(n_faults)
            return self._until_finished(incarnation)
        except DriverDiedError:
            if incarnation.follower.is_cut_off:
                self._zombies.append(incarnation)
        except (SimulatedCrash, StoreError):
            pass  # the start itself failed; the next one tries again
        return None

    def _until_finished(self, incarnation: Incarnation) -> m.Finish:
        for _ in range(MAX_TASKS):
            finish = incarnation.cluster.finished
            if finish is not None:
                if finish.saved:
                    self._check_end(incarnation)
                return finish
            if self._zombies and self._world.rng.random() < 0.3:
                self._step_zombies()
            if not incarnation.step():
                raise InvariantError("invariant 8 is broken: nothing is left to happen, and the run is not over")
        raise InvariantError(f"invariant 8 is broken: not done after {MAX_TASKS} tasks")

    def _step_zombies(self) -> None:
        for zombie in list(self._zombies):
            try:
                alive = zombie.cluster.finished is None and zombie.step()
            except (DriverDiedError, SimulatedCrash):
                alive = False
            if not alive:
                self._zombies.remove(zombie)

    def _check_end(self, incarnation: Incarnation) -> None:
        """A run that ended with everything saved: its folder holds its last state, and that is how it stays.

        After the end some nodes may live on that were taken for lost, some files may still be tidied up, and the power
        may fail.
        """
        state = incarnation.follower.state_in_view()
        self._check_stored(incarnation, state)
        incarnation.stop_listening()
        try:
            for _ in range(MAX_TASKS_AFTER_THE_END):
                if not incarnation.step():
                    break
        except DriverDiedError:
            pass
        self._check_stored(incarnation, state)

    def _check_stored(self, incarnation: Incarnation, state: State) -> None:
        store = LocalStore("/run", self._world.disk.process(), token=f"reader-{self._life.starts}")
        reader = RunFolder(store, {}).reader(incarnation.cluster.controller.term)
        training = self._world.training
        for name, blocks in state.items():
            table = blocks.table
            if table.derived:
                continue
            stored = reader.read_newest(table, table.all_ids)
            missing = table.all_ids[~stored.found]
            stored.blocks.put(initial_blocks(training.model, table, missing, training.seed))
            wrong = table.all_ids[stored.blocks.differs_from(blocks)][:5].tolist()
            self._world.witness.require(not wrong, 2, f"blocks {wrong} of {name} are not stored as they ended")


def live(seed: int, problem: tuple[Model, Any], held_out: Any = None) -> Life:
    """Live one life.

    Args:
        seed: decides everything.
        problem: a model and its data, small.
        held_out: other data, for metrics.

    Raises:
        InvariantError: an invariant is broken; the message has the seed.
    """
    try:
        return _Living(seed, problem, held_out).run()
    except InvariantError as error:
        raise InvariantError(f"seed {seed}: {error}") from error

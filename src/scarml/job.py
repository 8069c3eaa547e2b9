"""The runtime's front door: a model, its data, an engine and a checkpoint make a run.

Example:
    >>> import scarml as scar
    >>> job = scar.Job(scar.QP(), servers=2, workers=1, stop=scar.Stop(max_iters=5), run=None)
    >>> job.run().iterations
    5
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from scarml.checkpoint.selection import Checkpoint
from scarml.control import messages as m
from scarml.control.controller import Controller
from scarml.control.history import Record
from scarml.control.stop import HeldOut, Stop
from scarml.control.view import Layout
from scarml.core.block import Table
from scarml.core.contract import check_held_out_shards, check_metrics, check_n_phases, check_shards, check_tables
from scarml.core.model import Model, Shard
from scarml.core.repair import check_n_repair_phases
from scarml.core.sequential import digest
from scarml.data.held_out import TEST, load_with_held_out
from scarml.data.registry import has_test
from scarml.engine.engine import Engine
from scarml.engine.fault_plan import FaultPlan, Kill
from scarml.engine.inprocess import InProcess
from scarml.engine.node import Training
from scarml.errors import ClusterLostError, UsageError
from scarml.result import Result
from scarml.running_checkpoint.stop_signals import StopWish
from scarml.storage.event_log import BufferedEventLog
from scarml.storage.live_control import LiveControl
from scarml.storage.local import LocalStore
from scarml.storage.memory import MemoryStore
from scarml.storage.open_store import open_store
from scarml.storage.run_folder import RunFolder
from scarml.storage.run_records import RunRecords
from scarml.storage.run_start import Resume, check_same_settings, claim_start, describe, open_run
from scarml.storage.store import Store
from scarml.storage.store_url import parse_url, redact_url

if TYPE_CHECKING:
    from scarml.engine.ray.connection import RayCluster

__all__ = ["EngineName", "Job"]

EngineName = Literal["inprocess", "ray"]

MOST = {"servers": 10_000, "workers": 10_000, "shards": 1_000_000, "threads": 1_000}
"""Beyond what makes sense in one process; a slip of the finger must not eat the machine's memory."""


class Job:
    """One training run on a parameter server.

    Args:
        model: the algorithm.
        data: its data, or the name of a data set (``scarml data list``).
        servers, workers: nodes at the start, at least 1 each.
        checkpoint: what to save, how often, and how to recover.
        stop: when training is done; without a criterion or a limit it runs until it is told to stop.
        loss_mean_below: instead of ``stop.loss_sum_below``: converged when the loss per example is below it.
        held_out: data to judge by, which is not trained on: a share of ``data``, such as 0.1, chosen by ``seed``; other
            data, or the name of a data set; or ``test``, the test part of the data set ``data``, which is the default
            where metrics are wanted.
        metrics_every: iterations between evaluations of the model's metrics on it; 1 by default where anything is held
            out, or ``stop`` has a patience.
        run: the run folder; None keeps everything in memory, for experiments.
        resume: ``never`` refuses a folder that has a run in it, ``must`` needs one, ``auto`` starts or continues.
        seed: of all random values.
        shards: pieces of the data; results depend on it in the last bits, never on the number of nodes.
        threads: for shards; with engine ``ray`` every process has one.
        engine: ``inprocess``; ``ray``: every node in a process of its own; or a `RayCluster` to run them on.
        ray_address: of a Ray to join; by default that of ``RAY_ADDRESS``, or one is started on this machine.
        replace: whether a lost node is replaced by a new one; else the others take over for good.
        silence_s: with engine ``ray``, a node that gives no sign of life for so long is lost.
        kills: losses on purpose; simulated, or with engine ``ray`` by SIGKILL.
        fail_rate: besides, the probability per iteration that a random server is lost.
        on_event: gets every `Record` of the run's history.
        config: settings as the user gave them, kept in the run's description.
        handle_signals: a first SIGINT or SIGTERM ends the run at the next boundary with everything saved.
        store: instead of ``run``: any store, for tests.

    Raises:
        UsageError: one sentence for what is wrong with the arguments.
    """

    def __init__(  # noqa: PLR0913 - keyword-only settings; the command line has one option for each
        self,
        model: Model,
        data: Any = None,
        *,
        servers: int = 4,
        workers: int = 2,
        checkpoint: Checkpoint | None = None,
        stop: Stop | None = None,
        loss_mean_below: float | None = None,
        held_out: Any = None,
        metrics_every: int | None = None,
        run: str | Path | None = None,
        resume: Resume = "never",
        seed: int = 0,
        shards: int = 16,
        threads: int = 2,
        engine: EngineName | RayCluster = "inprocess",
        ray_address: str | None = None,
        replace: bool = False,
        silence_s: float = 10.0,
        kills: Sequence[Kill] = (),
        fail_rate: float = 0.0,
        on_event: Callable[[Record], None] | None = None,
        config: Mapping[str, Any] | None = None,
        handle_signals: bool = False,
        store: Store | None = None,
    ) -> None:
        for name, value in (("servers", servers), ("workers", workers), ("shards", shards), ("threads", threads)):
            if value < 1:
                raise UsageError(f"--{name} is {value}; expected at least 1")
            if value > MOST[name]:
                raise UsageError(f"--{name} is {value}; expected at most {MOST[name]:,}")
        if resume not in ("auto", "must", "never"):
            raise UsageError(f"--resume {resume!r} is unknown; choose auto, must or never")
        if run is not None and store is not None:
            raise UsageError("run and store both say where to save; give one of them")
        if run is None and store is None and resume == "must":
            raise UsageError("--resume must needs a run folder to resume; name it with --run")
        self._model = model
        self._data_name = data if isinstance(data, str) else None
        self._stop = stop or Stop()
        if metrics_every is not None and metrics_every < 1:
            raise UsageError(f"--metrics-every is {metrics_every}; expected at least 1 iteration")
        is_judged = metrics_every is not None or self._stop.patience is not None or held_out is not None
        self._metrics_every = metrics_every or 1
        self._held_out = _what_is_held_out(model, data, held_out, self._stop) if is_judged else None
        self._whole_data = data
        self._data, self._held_out_data = load_with_held_out(data, self._held_out, seed)
        self._servers = [f"server-{i}" for i in range(servers)]
        self._workers = [f"worker-{i}" for i in range(workers)]
        self._checkpoint = Checkpoint() if checkpoint is None else checkpoint
        if not isinstance(self._checkpoint, Checkpoint):
            raise UsageError(f"checkpoint is {checkpoint!r}; expected scar.Checkpoint(…) or Checkpoint.preset(…)")
        self._loss_mean_below = loss_mean_below
        self._run = None if run is None else str(run)
        self._url = ""
        self._where = "memory" if run is None else redact_url(str(run))
        self._store: Store | None = open_store(str(run)) if run is not None else store
        self._resume = resume
        self._seed = seed
        self._n_shards = shards
        self._threads = threads
        if isinstance(engine, str) and engine not in ("inprocess", "ray"):
            raise UsageError(f"--engine {engine!r} is unknown; choose inprocess or ray")
        self._is_on_ray = engine != "inprocess"
        if not self._is_on_ray and ray_address is not None:
            raise UsageError("--ray-address needs --engine ray")
        if self._is_on_ray and any(k.lag for k in kills):
            raise UsageError("--kill …/lag1 is possible where losses are simulated only: with --engine inprocess")
        self._ray_cluster = None if isinstance(engine, str) else engine
        self._ray_address = ray_address
        self._replace = replace
        self._silence_s = silence_s
        self._faults = FaultPlan(kills, fail_rate, seed)
        self._faults.check(self._servers, self._workers)
        self._on_event = on_event
        self._config = dict(config or {})
        self._handle_signals = handle_signals
        self._engine: Engine | None = None
        self._controller: Controller | None = None
        self._stop_wish = StopWish(self._stop_at_signal)

    @property
    def tables(self) -> Sequence[Table]:
        """What the model keeps its state in.

        Raises:
            ModelError: it breaks the `Model` protocol.
        """
        tables = self._model.tables(self._data)
        check_tables(tables)
        return tables

    @property
    def is_stopping(self) -> bool:
        """Whether a signal has asked it to stop; for ``on_event``, while it runs."""
        return self._stop_wish.signal_name is not None

    @property
    def unfired_kills(self) -> list[Kill]:
        """Planned losses that have not happened (yet)."""
        return self._faults.unfired

    def saved_iterations(self) -> Mapping[str, Any]:
        """Per table the iteration of each block's durable value; for ``on_event``, while it runs."""
        return {} if self._controller is None else self._controller.saves.saved_iterations

    def run(self) -> Result:
        """Train to the end.

        Returns:
            What happened; see `Result`.

        Raises:
            ModelError: the model breaks the `Model` protocol.
            RunExistsError, RunInUseError: the folder cannot be used so.
            StoreError: the folder cannot be read or written at the start. (Later failures do not stop training.)
            ClusterError: with the engine ray: there is no Ray, or no room on it.
            ClusterLostError: Ray has died; the run can be resumed.
        """
        training = self._cut()
        with ExitStack() as stack:
            ray_cluster = self._open_ray(stack) if self._is_on_ray else None
            if ray_cluster is not None:
                self._url = self._reachable_url(stack)
            tables = list(training.layout.tables.values())
            description = describe(self._model, self._data_name, self._seed, self._n_shards, tables, self._checkpoint)
            if self._held_out is not None:
                description["held_out"] = self._held_out if isinstance(self._held_out, float | str) else "given"
            store = MemoryStore() if self._store is None else self._store
            folder, is_new = open_run(
                store,
                {**description, "config": self._config},
                self._resume,
                self._where,
                check_same=partial(check_same_settings, self._where, description),
                to_go_on="--resume auto",
            )
            stack.enter_context(folder.owned(on_lost=self._give_up))
            start = claim_start(folder, is_new, self._checkpoint.recovery, self._where)
            n_examples = training.layout.n_examples
            result = Result(checkpoint=self._checkpoint, n_examples=n_examples)
            log = BufferedEventLog(partial(folder.append_events, start.term), self._in_background)
            records = RunRecords(result.take_in, log, self._on_event)
            stop = self._stop_for(n_examples)
            engine = self._engine = self._make_engine(training, folder, records.take_in, stop, ray_cluster)
            if self._handle_signals:
                stack.enter_context(self._stop_wish.listening())
            records.control = self._live_control(folder, start.term, engine)
            try:
                with records.listening():
                    finish = engine.run(start)
            except ClusterLostError as e:
                records.close(f"ray-lost: {e}")
                raise
            records.close(f"{finish.outcome}: {finish.reason}")
            state = engine.state() if finish.outcome in m.AT_BOUNDARY else {}
            result.end(finish, digest(state) if state else None)
            return result

    def _cut(self) -> Training:
        """What is trained, in shards and partitions, and seen to keep to the `Model` protocol."""
        check_n_phases(self._model.n_phases)
        check_n_repair_phases(self._model.n_repair_phases)
        tables = self.tables
        shards = self._model.shards(self._data, self._n_shards)
        check_shards({t.name: t for t in tables}, shards, self._n_shards)
        layout = Layout.of(self._model, tables, shards, self._seed)
        held_out = self._held_out_shards(tables)
        return Training(self._model, shards, layout, self._seed, self._checkpoint.encodings(tables), held_out)

    def _live_control(self, folder: RunFolder, term: int, engine: Engine) -> LiveControl | None:
        if self._store is None:
            return None  # nobody else can reach a run that is in memory only
        return LiveControl(
            folder,
            term,
            post=engine.post,
            in_background=engine.write,
            place=engine.place,
            saved_iterations=self.saved_iterations,
        )

    def _reachable_url(self, stack: ExitStack) -> str:
        """The run folder as every process can open it. A run without one gets one, for as long as it lasts."""
        if self._store is None:
            folder = stack.enter_context(TemporaryDirectory(prefix="scar-run-"))
            self._store = open_store(folder)
            return folder
        if isinstance(self._store, LocalStore):
            return str(Path(self._store.root).absolute())
        if self._run is not None and parse_url(self._run).scheme == "s3":
            return self._run
        raise UsageError(
            f"--engine ray has a process for every node, and they cannot all reach {self._where}; "
            "expected a folder or s3://bucket/prefix"
        )

    def _open_ray(self, stack: ExitStack) -> RayCluster:
        """Ray is started or joined before anything is made: if that fails, there is nothing to undo."""
        from scarml.engine.ray.connection import RayCluster, require_ray

        require_ray()
        return self._ray_cluster or stack.enter_context(RayCluster(self._ray_address))

    def _in_background(self, task: Callable[[], None]) -> None:
        if self._engine is not None:
            self._engine.write(task)

    def _stop_for(self, n_examples: int) -> Stop:
        if self._loss_mean_below is None:
            return self._stop
        return dataclasses.replace(self._stop, loss_sum_below=self._loss_mean_below * n_examples)

    def _held_out_shards(self, tables: Sequence[Table]) -> Sequence[Shard]:
        if self._held_out_data is None:
            return ()
        shards = self._model.held_out_shards(self._held_out_data, self._n_shards)
        check_held_out_shards({t.name: t for t in tables}, shards, self._n_shards)
        return shards

    def _evaluated(self, held_out: Sequence[Shard]) -> HeldOut | None:
        if not held_out:
            return None
        return HeldOut(tuple(self._model.metrics), sum(s.n_examples for s in held_out), self._metrics_every)

    def _make_engine(
        self,
        training: Training,
        folder: RunFolder,
        on_record: Callable[[Record], None],
        stop: Stop,
        ray_cluster: RayCluster | None,
    ) -> Engine:
        controller = self._controller = Controller(
            training.layout,
            self._servers,
            self._workers,
            n_phases=self._model.n_phases,
            n_repair_phases=self._model.n_repair_phases,
            seed=self._seed,
            checkpoint=self._checkpoint,
            stop=stop,
            held_out=self._evaluated(training.held_out),
            silence_s=self._silence_s if self._is_on_ray else None,
            replaces=self._replace,
        )
        if ray_cluster is None:
            return InProcess(
                training, controller, folder, n_threads=self._threads, faults=self._faults, on_record=on_record
            )
        from scarml.engine.ray.engine import RayEngine

        return RayEngine(
            training,
            controller,
            folder,
            data=self._whole_data,
            held_out=self._held_out,
            url=self._url,
            silence_s=self._silence_s,
            faults=self._faults,
            on_record=on_record,
            ray_cluster=ray_cluster,
        )

    def _give_up(self, cause: str) -> None:
        """The run is no longer this process's."""
        if self._engine is not None:
            self._engine.post(m.Superseded(cause))

    def _stop_at_signal(self, name: str) -> None:
        """A first signal asks for a graceful stop; a second one of the same kind does what it always does."""
        if self._engine is not None:
            self._engine.post(m.StopRequested(f"signal {name}"))


def _what_is_held_out(model: Model, data: Any, held_out: Any, stop: Stop) -> Any:
    """See that there is something to tell of, and something to tell it on."""
    check_metrics(model.metrics)
    if not model.metrics:
        raise UsageError(f"{type(model).__name__} has no held-out metrics; see Model.metrics for how it gets some")
    if stop.patience is not None:
        stop.metric_of(tuple(model.metrics))
    if held_out is not None:
        return held_out
    if isinstance(data, str) and has_test(data):
        return TEST
    what = f"{data} has no test part" if isinstance(data, str) else "none is given"
    raise UsageError(
        f"held-out metrics need data that is not trained on, and {what}; hold out a share of it with --held-out 0.1, "
        "or name other data"
    )

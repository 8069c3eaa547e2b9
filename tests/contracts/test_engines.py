"""Every engine passes the contract of engines; and what only the engine in one process can be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.contracts.engine_contract import N_ITERS, OFTEN, SEED, SHARDS, EngineContract, Problem, reference

import scarml as scar
from scarml.core.block import Blocks
from scarml.core.model import Computed, Model
from scarml.core.sequential import Sequential, digest
from scarml.engine.fault_plan import Kill
from scarml.errors import ModelError, RunExistsError, StoreError, UsageError
from scarml.storage.faulty import FaultyStore
from scarml.storage.memory import MemoryStore
from scarml.storage.run_folder import RunFolder
from scarml.testing import tiny_problem


class InProcessJob:
    """Jobs on the engine in one process, and a look at their nodes."""

    def job(self, problem: Problem, **settings: Any) -> scar.Job:
        return scar.Job(*problem, **settings)


class TestInProcess(InProcessJob, EngineContract):
    pass


class Watched:
    """A job whose nodes a test may look at when something is recorded."""

    def __init__(self, problem: str, **settings: Any) -> None:
        self.at: dict[str, Callable[[scar.Record], None]] = {}
        defaults = {"seed": SEED, "shards": SHARDS, "stop": scar.Stop(max_iters=N_ITERS), "checkpoint": OFTEN}
        self._job = scar.Job(*tiny_problem(problem), on_event=self._look, **{**defaults, **settings})

    def run(self) -> scar.Result:
        return self._job.run()

    @property
    def nodes(self) -> dict[str, dict[str, Blocks]]:
        """By live node its blocks."""
        engine = self._job._engine
        assert engine is not None
        return {name: node.holder.blocks for name, node in engine.nodes.live.items()}

    @property
    def state(self) -> dict[str, Blocks]:
        engine = self._job._engine
        assert engine is not None
        return engine.state()

    def _look(self, record: scar.Record) -> None:
        if record.name in self.at:
            self.at[record.name](record)


@pytest.mark.parametrize("problem", ["mlr", "mf", "lda", "adam"])
@pytest.mark.parametrize("kill", ["servers:1/2@3", "workers:1@3", "servers:1@3/lag1"])
def test_partial_recovery_leaves_the_blocks_of_survivors_as_they_are(problem: str, kill: str) -> None:
    watched = Watched(problem, servers=4, workers=3, kills=[Kill.parse(kill)])
    before: dict[str, dict[str, Blocks]] = {}
    n_checked = 0

    def remember(_: scar.Record) -> None:
        before.update({n: {t: b.copy() for t, b in blocks.items()} for n, blocks in watched.nodes.items()})

    def compare(record: scar.Record) -> None:
        nonlocal n_checked
        if record["kind"] == "start":
            return
        for node, blocks in watched.nodes.items():
            for table, held in before[node].items():
                if held.table.derived:
                    continue  # rebuilt by the next commit
                assert not blocks[table].take(held.ids).differs_from(held).any(), (node, table)
                n_checked += len(held)

    watched.at = {"recovery_started": remember, "recovery_completed": compare}
    watched.run()
    assert n_checked > 0


@pytest.mark.parametrize("lag", ["", "/lag1"])
def test_a_lost_worker_of_lda_gets_its_documents_back_and_counts_are_conserved(lag: str) -> None:
    _, data = tiny_problem("lda")
    watched = Watched("lda", workers=3, kills=[Kill.parse(f"workers:2@2{lag}"), Kill.parse("servers:2@3")])

    def count(_: scar.Record) -> None:
        state = watched.state
        assert len(state["assignments"]) == len(data.lengths)
        assert (state["word_topics"].value.sum(axis=1) == np.bincount(data.words, minlength=data.n_words)).all()
        assert (state["word_topics"].value.sum(axis=0) == state["topic_totals"].value[0]).all()

    watched.at = {"iteration_committed": count}
    result = watched.run()
    assert [r["lost_blocks"] > 0 for r in result.recoveries] == [True, False], "servers hold derived tables only"


@pytest.mark.parametrize("full_size", [False, pytest.param(True, marks=pytest.mark.ci)])
def test_three_hundred_servers_for_fewer_partitions(full_size: bool) -> None:
    model, data = (scar.MLR(batch_size=2000), "mnist-10k") if full_size else tiny_problem("mlr")
    settings: dict[str, Any] = {"data": data, "seed": SEED, "shards": 4, "stop": scar.Stop(max_iters=3)}
    many = scar.Job(model, servers=300, workers=2, checkpoint=scar.Checkpoint("round", "1/2", 2), **settings).run()
    one = scar.Job(model, servers=1, workers=1, checkpoint=OFTEN, **settings).run()
    assert many.digest == one.digest
    assert many.saved


# ---------------------------------------------------------------------------------------------------------- resuming
def run_in(where: Any, problem: str = "mlr", n_iters: int = N_ITERS, **settings: Any) -> scar.Result:
    key = "run" if isinstance(where, Path) else "store"
    defaults = {"seed": SEED, "shards": SHARDS, "checkpoint": OFTEN, "resume": "auto"}
    return scar.Job(
        *tiny_problem(problem), stop=scar.Stop(max_iters=n_iters), **{**defaults, key: where, **settings}
    ).run()


@pytest.mark.usefixtures("single_threaded_blas")
@pytest.mark.parametrize("problem", ["mlr", "mf", "lda", "adam"])
@pytest.mark.parametrize("policy", ["priority", "full"])
def test_going_on_with_other_nodes_is_the_same_as_never_having_stopped(problem: str, policy: str) -> None:
    store = MemoryStore()
    full = scar.Checkpoint("full", 1, 4, "full")
    more: dict[str, Any] = {"checkpoint": full} if policy == "full" else {}
    first = run_in(store, problem, 2, servers=3, workers=2, **more)
    assert first.saved
    second = run_in(store, problem, 3, servers=1, workers=4, **more)
    assert second.resumed_from is not None
    assert second.resumed_from["iteration"] == 2
    third = run_in(store, problem, N_ITERS, servers=5, workers=1, **more)
    assert third.digest == reference(problem)
    assert third.iterations == N_ITERS


def test_a_run_that_is_done_can_be_resumed_and_does_nothing(tmp_path: Path) -> None:
    first = run_in(tmp_path / "run")
    again = run_in(tmp_path / "run")
    assert (again.iterations, again.digest) == (first.iterations, first.digest)


def test_a_run_at_a_fixed_point_still_says_how_far_it_came() -> None:
    store = MemoryStore()
    still = (scar.MLR(learning_rate=1e-300, batch_size=20), tiny_problem("mlr")[1])
    scar.Job(*still, store=store, stop=scar.Stop(max_iters=4)).run()
    again = scar.Job(*still, store=store, resume="must", stop=scar.Stop(max_iters=4)).run()
    assert again.resumed_from is not None
    assert again.resumed_from["iteration"] == 4


def test_a_folder_with_a_run_in_it_is_refused(tmp_path: Path) -> None:
    run_in(tmp_path / "run", resume="never")
    with pytest.raises(RunExistsError, match=r"has a run in it; continue it with --resume auto, or name another"):
        run_in(tmp_path / "run", resume="never")


def test_there_must_be_a_run_to_resume(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no run in"):
        run_in(tmp_path / "run", resume="must")


@pytest.mark.parametrize(
    ("problem", "settings", "word"),
    [
        ("mlr", {"seed": 9}, "seed 3, this command has 9"),
        ("mlr", {"shards": 9}, "shards 6, this command has 9"),
        ("mf", {}, "model .*MLR.*MF"),
    ],
)
def test_a_run_is_resumed_with_the_same_settings_only(problem: str, settings: dict[str, Any], word: str) -> None:
    store = MemoryStore()
    run_in(store)
    with pytest.raises(UsageError, match=f"has {word}.*; give the same, or use another --run folder"):
        run_in(store, problem, **settings)


def test_a_run_is_resumed_with_the_same_data_only() -> None:
    store = MemoryStore()
    model, data = tiny_problem("mlr")
    stop = scar.Stop(max_iters=1)
    scar.Job(model, "mnist-10k", store=store, stop=stop, seed=SEED, shards=SHARDS).run()
    with pytest.raises(UsageError, match="has data mnist-10k, this command has None"):
        scar.Job(model, data, store=store, stop=stop, seed=SEED, shards=SHARDS, resume="auto").run()


# ------------------------------------------------------------------------------------------------- a store that fails
class Outage:
    """A store that fails from one record of a run until another."""

    def __init__(self, begin: Callable[[scar.Record], bool], end: Callable[[scar.Record], bool]) -> None:
        self.store = FaultyStore(MemoryStore())
        self.records: list[scar.Record] = []
        self._begin, self._end = begin, end
        self._began = False

    def __call__(self, record: scar.Record) -> None:
        self.records.append(record)
        if not self._began and self._begin(record):
            self._began = True
            self.store.fail_until_healed("the disk is full")
        if self._end(record):
            self.store.heal()

    def names(self) -> list[str]:
        return [r.name for r in self.records]


@contextmanager
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Waits between attempts of a hundredth of their length."""
    for module in ("checkpoint_coordinator", "view_installation"):
        for name in ("FIRST_RETRY_S", "LONGEST_RETRY_S"):
            where = f"scarml.control.{module}.{name}"
            monkeypatch.setattr(where, 0.002)
    yield


@pytest.mark.usefixtures("single_threaded_blas")
def test_training_goes_on_while_the_store_fails_and_saving_when_it_heals(monkeypatch: pytest.MonkeyPatch) -> None:
    outage = Outage(lambda r: is_at(r, 2), lambda r: is_at(r, 12))
    with quick_retries(monkeypatch):
        result = run_in(outage.store, n_iters=16, on_event=outage, resume="never")
    failed = outage.names().index("save_failed")
    assert "the disk is full" in outage.records[failed]["cause"]
    assert "iteration_committed" in outage.names()[failed:]
    assert "save_committed" in outage.names()[failed:]
    assert (result.outcome, result.saved) == ("max-iters", True)
    assert result.digest == reference("mlr", 16)
    again = run_in(outage.store, n_iters=16)
    assert again.digest == result.digest, "what was saved is x(16)"
    events = outage.store.list("events/")
    text = b"".join(outage.store.get(e) for e in events).decode()
    assert text.count('"iteration_committed"') == 16, "no event is lost, none is there twice"


def test_a_store_that_never_heals_ends_the_run_unsaved(monkeypatch: pytest.MonkeyPatch) -> None:
    outage = Outage(lambda r: is_at(r, 2), lambda r: False)
    with quick_retries(monkeypatch):
        result = run_in(outage.store, on_event=outage, resume="never")
    assert (result.outcome, result.saved, result.iteration) == ("max-iters", False, N_ITERS)
    assert "save_given_up" in outage.names()


def test_a_recovery_waits_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    outage = Outage(
        lambda r: r.name == "recovery_started", lambda r: r.name == "recovery_waiting" and r["attempt"] == 3
    )
    with quick_retries(monkeypatch):
        result = run_in(outage.store, on_event=outage, resume="never", kills=[Kill.parse("servers:2@3")])
    assert "recovery_waiting" in outage.names()
    assert (result.outcome, result.saved) == ("max-iters", True)


def test_a_recovery_that_waits_in_vain_ends_the_run_resumable(monkeypatch: pytest.MonkeyPatch) -> None:
    outage = Outage(lambda r: r.name == "recovery_started", lambda r: False)
    with quick_retries(monkeypatch):
        result = run_in(outage.store, on_event=outage, resume="never", kills=[Kill.parse("servers:2@3")])
    assert (result.outcome, result.saved, result.digest) == ("store-down", False, None)
    assert "could not load lost blocks" in result.reason
    outage.store.heal()
    again = run_in(outage.store)
    assert (again.outcome, again.iteration, again.saved) == ("max-iters", N_ITERS, True)


def test_a_full_recovery_waits_for_the_store_to_claim_its_term(monkeypatch: pytest.MonkeyPatch) -> None:
    outage = Outage(lambda r: r.name == "node_lost", waits_for_the_third_time)
    full = scar.Checkpoint("full", 1, 2, "full")
    with quick_retries(monkeypatch):
        result = run_in(
            outage.store, on_event=outage, resume="never", kills=[Kill.parse("servers:2@3")], checkpoint=full
        )
    assert (result.outcome, result.saved, result.iterations) == ("max-iters", True, N_ITERS + 1)


def test_a_store_that_fails_at_the_start_is_an_error() -> None:
    store = FaultyStore(MemoryStore())
    store.fail_until_healed("connection lost")
    with pytest.raises(StoreError, match="connection lost"):
        run_in(store, resume="never")


def test_a_run_that_is_taken_over_stops() -> None:
    store = MemoryStore()
    taken = False

    def take_over(record: scar.Record) -> None:
        nonlocal taken
        if is_at(record, 2) and not taken:
            taken = True
            RunFolder.open(store).claim_term("parent")

    result = run_in(store, n_iters=50, on_event=take_over, resume="never")
    assert (result.outcome, result.saved, result.digest) == ("superseded", False, None)
    assert "superseded by term 2" in result.reason


# ---------------------------------------------------------------------------------------------------- errors of a model
@dataclass(frozen=True)
class Breaks(scar.MLR):
    """Breaks in iteration 3."""

    def compute(self, ctx: Any, *args: Any) -> Computed:
        if ctx.iteration == 3:
            raise RuntimeError("the model broke")
        return super().compute(ctx, *args)


@pytest.mark.parametrize("threads", [1, 4])
def test_an_error_of_a_model_ends_the_run_with_that_error(threads: int) -> None:
    model: Model = Breaks(batch_size=20)
    with pytest.raises(RuntimeError, match="the model broke"):
        scar.Job(model, tiny_problem("mlr")[1], threads=threads, stop=scar.Stop(max_iters=9)).run()


def test_the_engine_leaves_no_threads_behind() -> None:
    import threading

    before = threading.active_count()
    run_in(MemoryStore(), threads=4)
    assert threading.active_count() == before


def test_the_reference_is_what_one_thread_computes() -> None:
    run = Sequential(*tiny_problem("lda"), seed=SEED, n_shards=SHARDS)
    for _ in range(N_ITERS):
        run.step()
    assert digest(run.state) == reference("lda")


def waits_for_the_third_time(record: scar.Record) -> bool:
    return record.name == "recovery_waiting" and record["attempt"] == 3


def is_at(record: scar.Record, iteration: int) -> bool:
    """Whether this is the commit of x(iteration)."""
    return record.name == "iteration_committed" and record["iteration"] == iteration


@pytest.mark.parametrize("kill", ["servers:1/2@3", "workers:1@3", "servers:4@3"])
def test_losses_do_not_make_early_stopping_lose_count(kill: str) -> None:
    """Every block is saved each iteration: the state is the same as without losses; and so is all of the rest."""
    every = scar.Checkpoint("full", 1, 1)
    settings: dict[str, Any] = {"seed": SEED, "shards": SHARDS, "held_out": 0.25, "checkpoint": every}
    stop = scar.Stop(max_iters=20, patience=2, min_delta=0.05)
    calm = scar.Job(*tiny_problem("mf"), stop=stop, **settings).run()
    assert (calm.outcome, calm.iteration > 3) == ("stopped-early", True)
    store = MemoryStore()
    settings |= {"store": store, "stop": stop}
    result = scar.Job(*tiny_problem("mf"), kills=[Kill.parse(kill)], **settings).run()
    assert result.failures
    if kill == "servers:4@3":
        assert result.outcome == "nodes-lost"
        result = scar.Job(*tiny_problem("mf"), resume="must", **settings).run()
    assert (result.outcome, result.reason, result.iteration) == (calm.outcome, calm.reason, calm.iteration)
    assert dict(result.metrics).items() <= dict(calm.metrics).items()
    assert result.early_stopping == calm.early_stopping
    assert result.digest == calm.digest


def test_a_model_that_gives_wrong_sums_ends_the_run() -> None:
    @dataclass(frozen=True)
    class Wrong(scar.MF):
        def metric_sums(self, shard: Any, reads: Any) -> Any:
            return {"mse": 1.0}

    with pytest.raises(ModelError, match=r"metric_sums of shard \d+: returns \['mse'\]; expected \['rmse'\]"):
        scar.Job(Wrong(factors=2), tiny_problem("mf")[1], held_out=0.25, stop=scar.Stop(max_iters=2)).run()

"""What every engine must do, as tests: the same results however the work is spread, and losses that cost what they say.

An engine is run through `scarml.Job`; a subclass says with which engine:

::

    class TestMyEngine(EngineContract):
        def job(self, problem, **settings):
            return scar.Job(*problem, engine=..., **settings)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from safetensors.numpy import load

import scarml as scar
from scarml.control import messages as m
from scarml.control.view import Layout, first_view
from scarml.core.model import Computed, Context, Model
from scarml.core.sequential import Sequential, digest
from scarml.data.held_out import load_with_held_out
from scarml.engine.fault_plan import Kill
from scarml.experiments import problem as experiments
from scarml.experiments.replay import ReplayedCheckpoint
from scarml.experiments.trajectory import Used
from scarml.result import Result
from scarml.storage.memory import MemoryStore
from scarml.testing import tiny_problem

Problem = tuple[Model, Any]

NEVER = scar.Checkpoint(policy="full", fraction=1, interval_iters=1000)
OFTEN = scar.Checkpoint(policy="priority", fraction="1/4", interval_iters=4)
WAYS_TO_SAVE = {
    "priority": OFTEN,
    "per byte": scar.Checkpoint("priority", "1/4", 4, budget_in="bytes", rank_by="distance-per-byte"),
    "round": scar.Checkpoint("round", "1/4", 4),
    "random": scar.Checkpoint("random", "1/2", 4),
    "full, partial recovery": scar.Checkpoint("full", 1, 4),
    "full, full recovery": scar.Checkpoint("full", 1, 4, "full"),
    "narrow and phase-aware": scar.Checkpoint(
        budget_in="bytes", rank_by="weighted-distance-per-byte", encode="narrow", phase_aware=True
    ),
    "priority, repair": scar.Checkpoint("priority", "1/4", 4, "repair"),
}
N_ITERS = 5
SHARDS = 6
SEED = 3


@cache
def reference(problem: str, n_iters: int = N_ITERS) -> str:
    """The digest that one thread gets, without any engine. (Under one BLAS thread, which is what engines see to.)"""
    run = Sequential(*tiny_problem(problem), seed=SEED, n_shards=SHARDS)
    for _ in range(n_iters):
        run.step()
    return digest(run.state)


def mended(problem: str, at: int, lost: dict[str, Any]) -> Sequential:
    """What one thread gets after everything ``lost`` on x(at) is set back to x(0) and mended."""
    run = Sequential(*tiny_problem(problem), seed=SEED, n_shards=SHARDS)
    start = {name: blocks.copy() for name, blocks in run.state.items()}
    for _ in range(at):
        run.step()
    for name, ids in lost.items():
        run.state[name].put(start[name].take(ids))
    run.rebuild()
    run.repair(lost)
    return run


def lost_with(problem: str, nodes: list[str], servers: int, workers: int) -> dict[str, Any]:
    """Per table the blocks of these nodes, at the start."""
    model, data = tiny_problem(problem)
    layout = Layout.of(model, model.tables(data), model.shards(data, SHARDS), SEED)
    view = first_view(layout, [f"server-{i}" for i in range(servers)], [f"worker-{i}" for i in range(workers)])
    lost = {t.name: [view.blocks_of(node, layout, t.name) for node in nodes] for t in layout.saved_tables}
    return {name: np.sort(np.concatenate(parts)) for name, parts in lost.items()}


@dataclass(frozen=True)
class Diverges(scar.MLR):
    """Computes NaN for one block in iteration 3; from then on everything is."""

    def compute(self, ctx: Context, *args: Any) -> Computed:
        computed = super().compute(ctx, *args)
        if ctx.iteration == 3:
            for update in computed.updates:
                update.values[4] = np.nan
        return computed


def saved_first(policy: str) -> tuple[scar.Checkpoint, list[int]]:
    """A checkpoint, and which blocks of the problem ``sparse`` its first save writes, according to the laboratory."""
    checkpoint = scar.Checkpoint(policy, "1/4", 16)
    trainer = experiments.Trainer(experiments.Problem(*tiny_problem("sparse"), 0.0, SEED, SHARDS))
    running = ReplayedCheckpoint(trainer, checkpoint)
    for commit in range(1, 5):
        trainer.next_commit()
        running.commit(commit, trainer.state(), {name: Used.of(n) for name, n in trainer.uses.items()})
    return checkpoint, np.flatnonzero(running.durable().iterations["E"]).tolist()


class EngineContract:
    """Tests that every engine passes. Subclasses give `job`."""

    some_spreads: ClassVar = [(1, 1, 1), (5, 4, 2), (2, 3, 2)]
    all_spreads: ClassVar = list(product((1, 2, 5), (1, 3, 4), (1, 2)))
    enough_iters: ClassVar[int] = 9
    """Until a node that was asked for at x(1) has started and has taken its part, and some more."""

    def job(self, problem: Problem, **settings: Any) -> scar.Job:
        """A job on this engine."""
        raise NotImplementedError

    def run(self, problem: str | Problem, **settings: Any) -> Result:
        """Run a job to its end."""
        defaults = {"seed": SEED, "shards": SHARDS, "stop": scar.Stop(max_iters=N_ITERS)}
        whole = tiny_problem(problem) if isinstance(problem, str) else problem
        return self.job(whole, **{**defaults, **settings}).run()

    def run_with(
        self, problem: str, asked_for: dict[int, list[m.Event]], **settings: Any
    ) -> tuple[Result, list[scar.Record]]:
        """Run a job to its end, with events brought to it as soon as there is x(iteration); its records as well."""
        waiting = dict(asked_for)
        records: list[scar.Record] = []

        def on_event(record: scar.Record) -> None:
            records.append(record)
            if record.name == "iteration_committed":
                for event in waiting.pop(record["iteration"], ()):
                    assert job._engine is not None
                    job._engine.post(event)

        defaults = {"seed": SEED, "shards": SHARDS, "stop": scar.Stop(max_iters=self.enough_iters)}
        job = self.job(tiny_problem(problem), on_event=on_event, **{**defaults, **settings})
        return job.run(), records

    # ------------------------------------------------------------------------------ the same results on any cluster
    @pytest.mark.usefixtures("single_threaded_blas")
    @pytest.mark.parametrize("spread", some_spreads)
    @pytest.mark.parametrize("problem", ["mlr", "mf", "lda", "adam"])
    def test_results_do_not_depend_on_nodes_threads_or_saves(self, problem: str, spread: tuple[int, int, int]) -> None:
        workers, servers, threads = spread
        for checkpoint in (NEVER, OFTEN) if spread == (2, 3, 2) else (OFTEN,):
            result = self.run(problem, workers=workers, servers=servers, threads=threads, checkpoint=checkpoint)
            assert result.digest == reference(problem)
            assert result.iterations == N_ITERS

    @pytest.mark.ci
    @pytest.mark.usefixtures("single_threaded_blas")
    @pytest.mark.parametrize("spread", all_spreads)
    @pytest.mark.parametrize("problem", ["qp", "mlr", "mf", "lda", "adam"])
    def test_results_do_not_depend_on_any_spread(self, problem: str, spread: tuple[int, int, int]) -> None:
        workers, servers, threads = spread
        for checkpoint in (NEVER, OFTEN):
            result = self.run(problem, workers=workers, servers=servers, threads=threads, checkpoint=checkpoint)
            assert result.digest == reference(problem)

    @pytest.mark.parametrize("policy", ["mfu", "ssu"])
    def test_what_is_saved_by_its_uses_does_not_depend_on_nodes(self, policy: str) -> None:
        checkpoint, expected = saved_first(policy)
        assert expected
        for workers, servers, threads in self.some_spreads:
            found = self._saved_first(checkpoint, workers=workers, servers=servers, threads=threads)
            assert found == expected

    def _saved_first(self, checkpoint: scar.Checkpoint, **spread: int) -> list[int]:
        saved: list[list[int]] = []

        def on_event(record: scar.Record) -> None:
            if record.name == "save_committed":
                saved.append(np.flatnonzero(job.saved_iterations()["E"] == 4).tolist())

        defaults = {"seed": SEED, "shards": SHARDS, "stop": scar.Stop(max_iters=N_ITERS)}
        job = self.job(tiny_problem("sparse"), checkpoint=checkpoint, on_event=on_event, **defaults, **spread)
        job.run()
        return saved[0]

    def test_another_seed_or_number_of_shards_gives_another_result(self) -> None:
        assert self.run("lda").digest != self.run("lda", seed=4).digest
        assert self.run("lda").digest != self.run("lda", shards=3).digest

    def test_the_loss_is_that_of_one_thread_in_every_bit(self) -> None:
        run = Sequential(*tiny_problem("mf"), seed=SEED, n_shards=SHARDS)
        losses = [run.loss_sum()]
        for _ in range(N_ITERS):
            run.step()
            losses.append(run.loss_sum())
        assert self.run("mf", workers=3).losses == list(enumerate(losses))

    # ---------------------------------------------------------------------------------------------- held-out metrics
    @pytest.mark.usefixtures("single_threaded_blas")
    @pytest.mark.parametrize("problem", ["mlr", "mf", "lda"])
    def test_held_out_metrics_are_those_of_one_thread_in_every_bit(self, problem: str) -> None:
        model, data = tiny_problem(problem)
        train, held_out = load_with_held_out(data, 0.25, SEED)
        run = Sequential(model, train, seed=SEED, n_shards=SHARDS)
        metrics = []
        for k in range(N_ITERS + 1):
            metrics += [(k, run.metrics(model.held_out_shards(held_out, SHARDS)))] if k in (0, 2, 4, N_ITERS) else []
            run.step() if k < N_ITERS else None
        result = self.run((model, data), workers=3, held_out=0.25, metrics_every=2)
        assert result.metrics == metrics
        assert result.digest == digest(run.state)

    @pytest.mark.usefixtures("single_threaded_blas")
    def test_metrics_on_other_data_do_not_change_the_training(self) -> None:
        model, data = tiny_problem("lda")
        result = self.run((model, data), held_out=data, workers=3)
        assert result.digest == reference("lda")
        assert [k for k, _ in result.metrics] == list(range(N_ITERS + 1))

    @pytest.mark.usefixtures("single_threaded_blas")
    def test_early_stopping_goes_on_counting_after_a_stop(self, tmp_path: Path) -> None:
        """Steps that are too small do not count, so it stops soon; the second start begins two iterations before."""
        stop = scar.Stop(max_iters=20, patience=3, min_delta=0.05)
        straight = self.run("mf", stop=stop, held_out=0.25, workers=2)
        assert straight.outcome == "stopped-early"
        assert straight.saved
        n = straight.iteration
        settings = {"held_out": 0.25, "workers": 2, "run": tmp_path / "run", "checkpoint": OFTEN}
        first = self.run("mf", stop=dataclasses.replace(stop, max_iters=n - 2), **settings)
        assert (first.outcome, first.early_stopping["n_since_best"]) == ("max-iters", 1)
        second = self.run("mf", stop=stop, resume="must", **settings)
        assert (second.outcome, second.reason, second.digest) == (straight.outcome, straight.reason, straight.digest)
        assert second.metrics == straight.metrics[n - 2 :], "x(n − 2), which it goes on from, is evaluated again"
        assert second.early_stopping == straight.early_stopping
        again = self.run("mf", stop=stop, resume="must", **settings)
        assert (again.outcome, again.iterations) == ("stopped-early", n), "there is nothing left to do"

    # --------------------------------------------------------------------------------------------------------- losses
    @pytest.mark.parametrize("way", WAYS_TO_SAVE)
    @pytest.mark.parametrize("problem", ["mf", "lda"])
    def test_every_policy_recovers_and_ends(self, problem: str, way: str) -> None:
        kills = [Kill.parse("servers:1/2@2"), Kill.parse("workers:1@3"), Kill.parse("servers:1@4/lag1")]
        result = self.run(problem, workers=3, checkpoint=WAYS_TO_SAVE[way], kills=kills)
        assert (result.outcome, result.saved, result.iteration) == ("max-iters", True, N_ITERS)
        assert len(result.failures) == 4
        assert len(result.recoveries) == 3
        again = WAYS_TO_SAVE[way].recovery == "full"
        assert (result.iterations > N_ITERS) == again

    @pytest.mark.ci
    @pytest.mark.parametrize("way", WAYS_TO_SAVE)
    @pytest.mark.parametrize("problem", ["qp", "mlr", "mf", "lda", "adam"])
    @pytest.mark.parametrize("kill", ["servers:1@{}", "servers:2@{}/lag1", "workers:1@{}", "workers:1/2@{}/lag1"])
    def test_every_policy_recovers_from_losses_at_any_iteration(self, problem: str, way: str, kill: str) -> None:
        for at in range(1, N_ITERS + 1):
            result = self.run(problem, workers=3, checkpoint=WAYS_TO_SAVE[way], kills=[Kill.parse(kill.format(at))])
            assert (result.outcome, result.saved, result.iteration) == ("max-iters", True, N_ITERS)

    @pytest.mark.parametrize("kill", ["servers:1/2@4", "servers:1/2@4/lag1", "workers:1@4", "server-2@4/lag1"])
    @pytest.mark.parametrize("way", ["priority", "full, full recovery"])
    def test_the_same_losses_cost_the_same(self, way: str, kill: str) -> None:
        def outcome() -> list[Any]:
            r = self.run("mlr", checkpoint=WAYS_TO_SAVE[way], kills=[Kill.parse(kill)], stop=scar.Stop(max_iters=7))
            recovery = r.recoveries[0]
            costs = [recovery[k] for k in ("lost_blocks", "perturbation", "restored", "from_x0", "oldest", "newest")]
            return [r.digest, r.losses, r.failures, r.n_saves, r.bytes_saved, *costs]

        assert outcome() == outcome()

    def test_a_greater_lag_costs_more(self) -> None:
        lost = [self.run("mlr", kills=[Kill.parse(k)]).recoveries[0] for k in ("servers:2@4", "servers:2@4/lag1")]
        assert lost[0]["lost_blocks"] == lost[1]["lost_blocks"]
        assert 0 < lost[0]["perturbation"] < lost[1]["perturbation"]

    def test_what_was_saved_whole_costs_nothing(self) -> None:
        every = scar.Checkpoint("full", 1, 1)
        result = self.run("mf", checkpoint=every, kills=[Kill.parse("servers:2@3")])
        assert result.recoveries[0]["perturbation"] == 0
        assert result.digest == reference("mf")

    @pytest.mark.usefixtures("single_threaded_blas")
    @pytest.mark.parametrize("spread", [(2, 2), (4, 3)])
    @pytest.mark.parametrize(("problem", "kind"), [("mf", "servers"), ("lda", "workers")])
    def test_lost_blocks_are_mended_as_one_thread_would(self, problem: str, kind: str, spread: tuple[int, int]) -> None:
        servers, workers = spread
        never = dataclasses.replace(NEVER, recovery="repair")
        kills = [Kill.parse(f"{kind}:1/2@3")]
        result = self.run(problem, servers=servers, workers=workers, checkpoint=never, kills=kills)
        lost = lost_with(problem, [f["node"] for f in result.failures], servers, workers)
        expected = mended(problem, 3, lost)
        for _ in range(N_ITERS - 3):
            expected.step()
        assert result.digest == digest(expected.state)
        (recovery,) = result.recoveries
        assert (recovery["kind"], result.iterations) == ("repair", N_ITERS)
        assert recovery["lost_blocks"] == sum(map(len, lost.values())) > 0
        assert 0 < recovery["repair_iters"] < 1
        assert recovery["repair_seconds"] > 0

    @pytest.mark.usefixtures("single_threaded_blas")
    @pytest.mark.parametrize("stop", [3, 5])
    @pytest.mark.parametrize(("problem", "kill"), [("mf", "servers:2@3"), ("lda", "workers:1@3/lag1")])
    def test_what_was_mended_is_saved_as_it_is(self, problem: str, kill: str, stop: int) -> None:
        """Going on from the folder is the same as never having stopped, also right after the repair, on x(3)."""
        kills, checkpoint = [Kill.parse(kill)], WAYS_TO_SAVE["priority, repair"]
        straight = self.run(problem, kills=kills, checkpoint=checkpoint, stop=scar.Stop(max_iters=7))
        settings: dict[str, Any] = {"store": MemoryStore(), "checkpoint": checkpoint}
        first = self.run(problem, kills=kills, stop=scar.Stop(max_iters=stop), **settings)
        assert (first.saved, first.iteration) == (True, stop)
        assert [r["kind"] for r in first.recoveries] == ["repair"]
        again = self.run(problem, stop=scar.Stop(max_iters=7), resume="must", **settings)
        assert again.recoveries == []
        assert again.digest == straight.digest

    def test_a_model_that_mends_nothing_says_so_and_restores(self) -> None:
        repair = dataclasses.replace(OFTEN, recovery="repair")
        results, said = [], []
        for checkpoint in (OFTEN, repair):
            records: list[scar.Record] = []
            kills = [Kill.parse("servers:1@3")]
            results.append(self.run("mlr", checkpoint=checkpoint, kills=kills, on_event=records.append))
            said.append(len(of(records, "repair_declined")))
        assert results[0].digest == results[1].digest
        assert [r.recoveries[0]["kind"] for r in results] == ["partial", "partial"]
        assert said == [0, 1]

    def test_a_full_recovery_computes_again_what_came_after_the_last_full_save(self) -> None:
        full = scar.Checkpoint("full", 1, 3, "full")
        result = self.run("mf", checkpoint=full, kills=[Kill.parse("servers:1@5")], stop=scar.Stop(max_iters=7))
        assert (result.iteration, result.iterations) == (7, 9)
        assert result.digest == reference("mf", 7)
        late = self.run("mf", checkpoint=full, kills=[Kill.parse("servers:1@3/lag1")], stop=scar.Stop(max_iters=7))
        assert late.iterations == 10, "the save of x(3) did not become complete: back to x(0)"

    @pytest.mark.parametrize("kill", ["servers:1@5/lag1", "workers:1@5/lag1", "servers:2@5"])
    def test_a_loss_at_the_very_end_does_not_hang(self, kill: str) -> None:
        result = self.run("lda", kills=[Kill.parse(kill)])
        assert (result.outcome, result.saved) == ("max-iters", True)
        assert result.failures

    def test_failures_at_random_spare_the_last_server(self) -> None:
        result = self.run("mlr", servers=3, fail_rate=0.9, stop=scar.Stop(max_iters=12))
        assert result.outcome == "max-iters"
        assert len(result.failures) == 2
        assert all(f["simulated"] for f in result.failures)

    def test_with_all_servers_lost_the_run_ends_and_can_be_resumed(self) -> None:
        store = MemoryStore()
        result = self.run("mlr", store=store, kills=[Kill.parse("servers:4@3")])
        assert (result.outcome, result.saved, result.digest) == ("nodes-lost", False, None)
        again = self.run("mlr", store=store, resume="must")
        assert (again.outcome, again.iteration) == ("max-iters", N_ITERS)
        assert again.resumed_from is not None

    # -------------------------------------------------------------------------------------- nodes that come and go
    @pytest.mark.usefixtures("single_threaded_blas")
    @pytest.mark.parametrize("way", ["priority", "full, full recovery"])
    @pytest.mark.parametrize("problem", ["mlr", "mf", "lda", "adam"])
    def test_nodes_that_come_and_go_do_not_change_the_result(self, problem: str, way: str) -> None:
        asked_for: dict[int, list[m.Event]] = {
            1: [m.ScaleRequested(servers=4, workers=3), m.DrainRequested("worker-0", "asked to")],
            2: [m.DrainRequested("server-0", "asked to")],
            4: [m.ScaleRequested(servers=2, workers=1)],
        }
        result, records = self.run_with(problem, asked_for, servers=3, workers=2, checkpoint=WAYS_TO_SAVE[way])
        assert result.digest == reference(problem, self.enough_iters)
        assert (result.outcome, result.saved, result.iterations) == ("max-iters", True, self.enough_iters)
        assert (result.failures, result.recoveries) == ([], [])
        joined, left = ({r["node"] for r in of(records, f"node_{what}")} for what in ("joined", "left"))
        assert joined >= {"server-3", "worker-2"}
        assert left >= {"server-0", "worker-0"}
        view = of(records, "view_changed")[-1]
        assert (len(view["servers"]), len(view["workers"])) == (2, 1)
        started, completed = of(records, "handover_started"), of(records, "handover_completed")
        assert [r["moving_blocks"] for r in started] == [r["moved_blocks"] for r in completed]
        assert {n for r in started for n in r["joining"]} <= joined
        assert {n for r in started for n in r["leaving"]} <= left

    @pytest.mark.usefixtures("single_threaded_blas")
    @pytest.mark.parametrize("node", ["server-1", "worker-1"])
    def test_a_drained_node_perturbs_nothing(self, node: str) -> None:
        result, records = self.run_with("lda", {2: [m.DrainRequested(node, "asked to")]}, servers=2, workers=2)
        assert result.digest == reference("lda", self.enough_iters)
        assert [r["node"] for r in of(records, "node_left")] == [node]
        assert [r["kind"] for r in of(records, "recovery_completed")] == ["start"]
        (started,), (completed,) = of(records, "handover_started"), of(records, "handover_completed")
        assert (started["leaving"], started["joining"]) == ([node], [])
        assert completed["moved_blocks"] == started["moving_blocks"]
        assert (started["moving_blocks"] > 0) == (node == "worker-1"), "servers hold derived tables only"
        assert node not in of(records, "view_changed")[-1].fields[f"{node.split('-')[0]}s"]

    @pytest.mark.usefixtures("single_threaded_blas")
    def test_what_cannot_be_done_is_refused_and_changes_nothing(self) -> None:
        asked_for: dict[int, list[m.Event]] = {
            1: [m.ScaleRequested(servers=0), m.DrainRequested("server-7", "asked to")],
            2: [m.DrainRequested("server-0", "asked to"), m.DrainRequested("worker-0", "asked to")],
        }
        result, records = self.run_with("mlr", asked_for, servers=1, workers=1)
        assert result.digest == reference("mlr", self.enough_iters)
        assert [(r["request"], r["reason"]) for r in of(records, "request_refused")] == [
            ("scale", "0 servers are too few; expected at least 1"),
            ("drain server-7", "there is no node server-7; there are server-0, worker-0"),
            ("drain server-0", "server-0 is the last server; add another one first, or stop the run"),
            ("drain worker-0", "worker-0 is the last worker; add another one first, or stop the run"),
        ]
        assert of(records, "handover_started") == []

    @pytest.mark.parametrize("way", ["priority", "round", "full, partial recovery", "full, full recovery"])
    @pytest.mark.parametrize("problem", ["mf", "lda"])
    def test_losses_beside_nodes_that_come_and_go_are_recovered_from(self, problem: str, way: str) -> None:
        asked_for: dict[int, list[m.Event]] = {
            1: [m.ScaleRequested(servers=5, workers=4)],
            2: [m.DrainRequested("server-1", "asked to")],
            3: [m.ScaleRequested(servers=3, workers=2)],
        }
        kills = [Kill.parse("servers:1@2"), Kill.parse("workers:1@3"), Kill.parse("servers:1@5")]
        result, records = self.run_with(
            problem, asked_for, servers=4, workers=3, checkpoint=WAYS_TO_SAVE[way], kills=kills
        )
        assert (result.outcome, result.saved, result.iteration) == ("max-iters", True, self.enough_iters)
        assert len(result.failures) == 3
        assert of(records, "node_joined")
        view = of(records, "view_changed")[-1]
        there = {*view["servers"], *view["workers"]}
        assert there.isdisjoint(r["node"] for name in ("node_lost", "node_left") for r in of(records, name))

    @pytest.mark.usefixtures("single_threaded_blas")
    @pytest.mark.parametrize("kill", ["servers:1/2@2", "servers:2@2", "workers:2@2"])
    def test_lost_nodes_are_replaced_even_if_they_are_the_last(self, kill: str) -> None:
        every = scar.Checkpoint("full", 1, 1)
        kills = [Kill.parse(kill)]
        result, records = self.run_with("mf", {}, servers=2, workers=2, checkpoint=every, kills=kills, replace=True)
        assert result.digest == reference("mf", self.enough_iters), "everything had been saved"
        lost, joined = ([r["node"] for r in of(records, f"node_{what}")] for what in ("lost", "joined"))
        assert len(joined) == len(lost) > 0
        view = of(records, "view_changed")[-1]
        assert (len(view["servers"]), len(view["workers"])) == (2, 2)

    # ------------------------------------------------------------------------------------------------ values of numbers
    def test_a_block_that_is_not_finite_is_never_saved_over_a_finite_one(self) -> None:
        records: list[scar.Record] = []
        problem = (Diverges(batch_size=20), tiny_problem("mlr")[1])
        store = MemoryStore()
        result = self.run(problem, store=store, on_event=records.append, kills=[Kill.parse("servers:1@4")])
        assert any(r.name == "blocks_not_finite" for r in records)
        assert not result.saved
        for name in store.list("segments/"):
            assert np.isfinite(read_values(store, name)).all()


def of(records: list[scar.Record], name: str) -> list[scar.Record]:
    """The records of that name."""
    return [r for r in records if r.name == name]


def read_values(store: Any, name: str) -> np.ndarray:
    """The ``value`` field of table W in a segment."""
    values: np.ndarray = load(store.get(name))["W.value"]
    return values

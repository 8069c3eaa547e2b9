"""What every engine must do, as tests: the same results however the work is spread, and losses that cost what they say.

An engine is run through `scarml.Job`; a subclass says with which engine:

::

    class TestMyEngine(EngineContract):
        def job(self, problem, **settings):
            return scar.Job(*problem, engine=..., **settings)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest
from safetensors.numpy import load

import scarml as scar
from scarml.core.model import Computed, Context, Model
from scarml.core.sequential import Sequential, digest
from scarml.engine.fault_plan import Kill
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


@dataclass(frozen=True)
class Diverges(scar.MLR):
    """Computes NaN for one block in iteration 3; from then on everything is."""

    def compute(self, ctx: Context, *args: Any) -> Computed:
        computed = super().compute(ctx, *args)
        if ctx.iteration == 3:
            for update in computed.updates:
                update.values[4] = np.nan
        return computed


class EngineContract:
    """Tests that every engine passes. Subclasses give `job`."""

    some_spreads: ClassVar = [(1, 1, 1), (5, 4, 2), (2, 3, 2)]
    all_spreads: ClassVar = list(product((1, 2, 5), (1, 3, 4), (1, 2)))

    def job(self, problem: Problem, **settings: Any) -> scar.Job:
        """A job on this engine."""
        raise NotImplementedError

    def run(self, problem: str | Problem, **settings: Any) -> Result:
        """Run a job to its end."""
        defaults = {"seed": SEED, "shards": SHARDS, "stop": scar.Stop(max_iters=N_ITERS)}
        whole = tiny_problem(problem) if isinstance(problem, str) else problem
        return self.job(whole, **{**defaults, **settings}).run()

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


def read_values(store: Any, name: str) -> np.ndarray:
    """The ``value`` field of table W in a segment."""
    values: np.ndarray = load(store.get(name))["W.value"]
    return values

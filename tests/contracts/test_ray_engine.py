"""The engine on Ray passes the contract of engines, in real processes that are really killed."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from tests.contracts.engine_contract import (
    N_ITERS,
    WAYS_TO_SAVE,
    Diverges,
    EngineContract,
    Problem,
    read_values,
    reference,
)

import scarml as scar
from scarml.engine.fault_plan import Kill
from scarml.storage.local import LocalStore
from scarml.storage.verification import verify
from scarml.testing import tiny_problem

if TYPE_CHECKING:
    from scarml.engine.ray.connection import RayCluster

pytestmark = [
    pytest.mark.ci,
    pytest.mark.xdist_group("ray"),  # one Ray for all of them
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'scarml[ray]'"),
]


@pytest.mark.usefixtures("single_threaded_blas")
class TestRay(EngineContract):
    """Where a loss is real, nobody can say in advance which save it meets, or what exactly it costs."""

    test_results_do_not_depend_on_any_spread = None
    test_every_policy_recovers_from_losses_at_any_iteration = None
    test_the_same_losses_cost_the_same = None
    test_a_greater_lag_costs_more = None
    test_another_seed_or_number_of_shards_gives_another_result = None
    test_what_was_saved_whole_costs_nothing = None
    test_a_model_that_mends_nothing_says_so_and_restores = None
    test_what_was_mended_is_saved_as_it_is = None
    # Nor how many iterations it takes to start a process: tests/ci/test_ray_failures.py waits for it.
    test_nodes_that_come_and_go_do_not_change_the_result = None
    test_losses_beside_nodes_that_come_and_go_are_recovered_from = None
    test_lost_nodes_are_replaced_even_if_they_are_the_last = None

    @pytest.fixture(autouse=True)
    def _on(self, ray_cluster: RayCluster, tmp_path: Path) -> None:
        self._cluster = ray_cluster
        self._folders = (tmp_path / f"run-{i}" for i in count())

    def job(self, problem: Problem, **settings: Any) -> scar.Job:
        return scar.Job(*problem, engine=self._cluster, **settings)

    @pytest.mark.parametrize(("problem", "spread"), [(p, (2, 3, 2)) for p in ("mlr", "mf", "lda", "adam")])
    def test_results_do_not_depend_on_nodes_threads_or_saves(self, problem: str, spread: tuple[int, int, int]) -> None:
        workers, servers, threads = spread
        result = self.run(problem, workers=workers, servers=servers, threads=threads)
        assert result.digest == reference(problem)
        assert (result.iterations, result.saved) == (N_ITERS, True)

    some_spreads: ClassVar = [(2, 3, 2)]

    @pytest.mark.parametrize(("problem", "way"), [("mf", "priority"), ("lda", "full, full recovery")])
    def test_every_policy_recovers_and_ends(self, problem: str, way: str) -> None:
        kills = [Kill.parse("servers:1/3@2"), Kill.parse("workers:1@4")]
        folder = next(self._folders)
        stop = scar.Stop(max_iters=7)
        result = self.run(
            problem, servers=3, workers=2, checkpoint=WAYS_TO_SAVE[way], kills=kills, run=folder, stop=stop
        )
        assert (result.outcome, result.saved, result.iteration) == ("max-iters", True, 7)
        assert [f["simulated"] for f in result.failures] == [False, False]
        assert len(result.recoveries) == 2
        assert (result.iterations > 7) == (WAYS_TO_SAVE[way].recovery == "full")
        if problem != "mlr":  # full recovery repeats what was; what else was restored is older
            assert (result.digest == reference(problem, 7)) == (WAYS_TO_SAVE[way].recovery == "full")
        assert not verify(LocalStore(str(folder))).damaged

    @pytest.mark.parametrize("spread", [(2, 2)])
    @pytest.mark.parametrize(("problem", "kind"), [("mf", "servers"), ("lda", "workers")])
    def test_lost_blocks_are_mended_as_one_thread_would(self, problem: str, kind: str, spread: tuple[int, int]) -> None:
        super().test_lost_blocks_are_mended_as_one_thread_would(problem, kind, spread)

    @pytest.mark.soak
    def test_a_full_recovery_computes_again_what_came_after_the_last_full_save(self) -> None:
        full = scar.Checkpoint("full", 1, 3, "full")
        result = self.run("mf", checkpoint=full, kills=[Kill.parse("servers:1@5")], stop=scar.Stop(max_iters=7))
        assert (result.iteration, result.iterations) == (7, 9)
        assert result.digest == reference("mf", 7)

    @pytest.mark.parametrize("kill", ["servers:1/2@5"])
    @pytest.mark.soak
    def test_a_loss_at_the_very_end_does_not_hang(self, kill: str) -> None:
        super().test_a_loss_at_the_very_end_does_not_hang(kill)

    @pytest.mark.soak
    def test_failures_at_random_spare_the_last_server(self) -> None:
        result = self.run("mlr", servers=2, fail_rate=0.9, stop=scar.Stop(max_iters=12))
        assert result.outcome == "max-iters"
        assert [f["simulated"] for f in result.failures] == [False]

    def test_with_all_servers_lost_the_run_ends_and_can_be_resumed(self) -> None:
        folder = next(self._folders)
        result = self.run("mlr", run=folder, servers=2, kills=[Kill.parse("servers:2@3")])
        assert (result.outcome, result.saved, result.digest) == ("nodes-lost", False, None)
        again = self.run("mlr", run=folder, servers=1, workers=1, resume="must")
        assert (again.outcome, again.iteration) == ("max-iters", N_ITERS)
        assert again.resumed_from is not None

    # ------------------------------------------------------------------------------------------------ values of numbers
    def test_a_block_that_is_not_finite_is_never_saved_over_a_finite_one(self) -> None:
        records: list[scar.Record] = []
        problem = (Diverges(batch_size=20), tiny_problem("mlr")[1])
        folder = next(self._folders)
        result = self.run(problem, run=folder, servers=2, on_event=records.append, kills=[Kill.parse("servers:1@4")])
        assert any(r.name == "blocks_not_finite" for r in records)
        assert not result.saved
        store = LocalStore(str(folder))
        for name in store.list("segments/"):
            assert np.isfinite(read_values(store, name)).all()

"""Trials under the bound: what is drawn, what is kept, and that planted costs are found."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.experiments.samples import SEED, SHARDS, trainer_of

from scarml.errors import ClusterLostError, UsageError
from scarml.experiments import bound_sweep as module
from scarml.experiments.baseline import record_baseline
from scarml.experiments.bound_figure import BoundFigure
from scarml.experiments.bound_rows import BoundRow, interpolation_error, summarise
from scarml.experiments.bound_setting import Setting
from scarml.experiments.bound_sweep import BoundSweep
from scarml.experiments.kept_rows import KeptRows
from scarml.experiments.problem import Panel, Problem, Trainer, trainer_for
from scarml.experiments.processes import Processes
from scarml.experiments.results import read_rows, write_rows
from scarml.models.qp import QP
from scarml.testing.tiny_problems import tiny_problem

QP_PANEL = Panel("qp", hyper_parameters=(("condition", 20.0),), n_shards=1, measured="distance")
SINGLE = Setting("test", "single", QP_PANEL, "random", baseline_iters=100, at_iter=50, largest=3.0, n_trials=12)
WORST = replace(SINGLE, name="worst", kind="adversarial")
REPEATED = replace(SINGLE, name="repeated", probability=0.02)


def rows_of(*settings: Setting, folder: Path, n_trials: int | None = None, seed: int = 1) -> list[BoundRow]:
    return BoundSweep(settings, seed).run(folder, n_trials)


def test_the_rate_of_the_quadratic_is_found() -> None:
    baseline = record_baseline(trainer_for(QP_PANEL), 100, 0)
    for from_iter in (None, 50):
        found = baseline.rate(from_iter)
        assert found.c == pytest.approx(QP(condition=20.0).rate, abs=1e-6)
    assert baseline.rate(50).start == pytest.approx(baseline.distances[50], rel=1e-6)
    assert baseline.trajectory.n_iters == 100
    assert baseline.distances[100] < baseline.criterion < baseline.distances[99]


def test_the_trainer_that_others_get_keeps_its_criterion(tmp_path: Path) -> None:
    before = trainer_for(QP_PANEL).problem.criterion
    rows = rows_of(SINGLE, folder=tmp_path, n_trials=1)
    assert rows[0].criterion != before == trainer_for(QP_PANEL).problem.criterion


def test_costs_lie_under_the_bound_and_the_worst_case_meets_it(tmp_path: Path) -> None:
    rows = rows_of(SINGLE, WORST, REPEATED, folder=tmp_path)
    single, worst, repeated = ([r for r in rows if r.setting == s] for s in ("single", "worst", "repeated"))
    for r in rows:
        assert r.cost <= r.bound + interpolation_error(r.c, "distance")
        assert r.bound <= r.bound_high + 1e-9
    for a, b in zip(single, worst, strict=True):
        assert a.norm == pytest.approx(b.norm)  # the same sizes
        assert b.cost == pytest.approx(b.bound, abs=0.02)
        assert a.cost < b.cost
    assert len({r.n_perturbations for r in repeated}) > 2
    summary = summarise(worst)
    assert (summary["exceedances"], summary["trials"], summary["negative_costs"]) == (0, 12, 0)
    assert summary["median_cost_over_bound"] == pytest.approx(1, abs=0.01)


def test_a_bound_that_is_too_low_is_exceeded(tmp_path: Path) -> None:
    worst = rows_of(WORST, folder=tmp_path)
    halved = [replace(r, bound=r.bound / 2) for r in worst]
    assert summarise(halved)["exceedances"] == len(worst)


def test_trials_that_nothing_struck_tell_no_cost(tmp_path: Path) -> None:
    never = replace(REPEATED, probability=1e-9)
    rows = rows_of(never, folder=tmp_path, n_trials=2)
    summary = summarise(rows)
    assert (summary["trials"], summary["without_perturbation"], summary["exceedances"]) == (2, 2, 0)
    assert (summary["mean_cost"], summary["median_cost_over_bound"]) == (None, None)
    assert "2 trials, none of them perturbed" in BoundFigure("f", "f", "", (never,), (never,)).words(rows)[0]


def test_perturbations_of_every_iteration_come_at_their_rate(tmp_path: Path) -> None:
    often = replace(REPEATED, probability=0.01, largest=0.01)  # too small to make runs longer
    rows = rows_of(often, folder=tmp_path, n_trials=100)
    assert np.mean([r.n_perturbations for r in rows]) == pytest.approx(1.0, abs=0.4)  # four standard errors
    assert all(0 < r.last_at_iter <= 101 for r in rows if r.n_perturbations)
    assert {(r.cost, r.bound, r.norm) for r in rows if not r.n_perturbations} == {(0.0, 0.0, 0.0)}


def test_trials_are_kept_added_and_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rows_of(SINGLE, folder=tmp_path, n_trials=4)
    n_run = []
    run = module.run_perturbed
    monkeypatch.setattr(module, "run_perturbed", lambda *given: n_run.append(1) or run(*given))
    written = (tmp_path / "single.csv.gz").read_bytes()
    assert rows_of(SINGLE, folder=tmp_path, n_trials=4) == first
    assert (tmp_path / "single.csv.gz").read_bytes() == written
    assert not n_run
    assert rows_of(SINGLE, folder=tmp_path, n_trials=6)[:4] == first
    assert len(n_run) == 2
    assert rows_of(SINGLE, folder=tmp_path, n_trials=3) == first[:3]  # and the others stay
    assert len(read_rows(tmp_path / "single.csv.gz", BoundRow)) == 6
    assert rows_of(SINGLE, folder=tmp_path, n_trials=3, seed=2) != first[:3]
    assert len(n_run) == 5


def test_estimates_are_made_anew_for_trials_that_are_kept(tmp_path: Path) -> None:
    rows = rows_of(REPEATED, folder=tmp_path, n_trials=5)
    path = tmp_path / "repeated.csv.gz"
    write_rows(path, [replace(r, c=0.5, distance=1.0, bound=-1.0, discounted_sum=7.0) for r in rows], BoundRow)
    assert rows_of(REPEATED, folder=tmp_path, n_trials=5) == rows
    assert read_rows(path, BoundRow) == rows


def test_an_interrupt_loses_only_what_was_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows_of(SINGLE, folder=tmp_path / "whole", n_trials=5)
    left = [3]
    run = module.run_perturbed

    def interrupted(*given: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return run(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "run_perturbed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rows_of(SINGLE, folder=tmp_path, n_trials=5)
    begun = tmp_path / "single.csv.begun"
    begun.write_bytes(begun.read_bytes()[:-9])  # as if the third row had been torn
    left[0] = 3
    assert rows_of(SINGLE, folder=tmp_path, n_trials=5) == whole
    assert left[0] == 0
    assert not begun.exists()


def test_a_noisy_algorithm_is_compared_with_runs_of_other_random_numbers(tmp_path: Path) -> None:
    model, data = tiny_problem("lda")
    trainer = Trainer(Problem(model, data, 0.0, SEED, SHARDS))
    noisy = Setting(
        "test",
        "lda",
        Panel("tiny-lda"),
        "reset",
        baseline_iters=10,
        at_iter=1,
        n_trials=4,
        reference_iters=40,
        controls=5,
    )
    rows = BoundSweep([noisy], trainer=trainer).run(tmp_path)
    controls, trials = rows[:5], rows[5:]
    ends = [r.control + r.cost for r in controls]
    assert len(set(ends)) > 1
    assert all(r.norm == r.bound == 0 for r in controls)
    assert all(r.control == pytest.approx(np.mean(ends)) for r in trials)
    assert all(r.norm > 0 and 0 < r.lost_fraction <= 1 for r in trials)


def test_keys_change_random_numbers_and_nothing_else() -> None:
    for name, differs in (("lda", True), ("mlr", False)):
        trainer = trainer_of(name, 4)
        ends = []
        for key in (None, 1, 1, 2):
            trainer.start(trainer.initial, 0, key)
            trainer.next_iteration()
            ends.append(trainer.loss_sum())
        assert ends[1] == ends[2]
        assert (len(set(ends)) == 3) == differs


def test_settings_of_different_baselines_do_not_go_together() -> None:
    with pytest.raises(UsageError, match="different baselines"):
        BoundSweep([SINGLE, replace(WORST, at_iter=40)])


@pytest.mark.parametrize("elsewhere", [Processes(2), Processes(1, "ray")])
def test_other_processes_need_a_panel_with_a_name(elsewhere: Processes) -> None:
    with pytest.raises(UsageError, match="without a name"):
        BoundSweep([SINGLE], processes=elsewhere, trainer=trainer_of("mlr", 5))


def test_a_reference_must_come_after_the_criterion() -> None:
    with pytest.raises(UsageError, match="stands in"):
        record_baseline(trainer_of("mlr", 10), 10, 10)


def test_a_model_without_a_known_optimum_has_no_distance() -> None:
    with pytest.raises(UsageError, match="optimum"):
        Panel("mlr", "mnist-10k", measured="distance").load()


def test_rows_of_other_settings_or_forms_are_not_taken_over(tmp_path: Path) -> None:
    rows = rows_of(SINGLE, folder=tmp_path, n_trials=2)
    path = tmp_path / "single.csv.gz"
    assert KeptRows(path, BoundRow, {"seed": 1}).missing(3) == [2]
    assert KeptRows(path, BoundRow, {"seed": 2}).missing(3) == [0, 1, 2]
    path.write_bytes(b"no gzip")
    assert KeptRows(path, BoundRow, {"seed": rows[0].seed}).missing(1) == [0]


@pytest.mark.ci
def test_a_process_that_dies_is_said() -> None:
    with pytest.raises(ClusterLostError, match="one of the 2 processes was killed"):
        list(Processes(2).map(os._exit, [(9,), (9,)]))


def test_processes_give_every_result_its_number() -> None:
    assert sorted(Processes().map(math.gcd, [(12, 18), (7, 5)])) == [(0, 6), (1, 1)]
    with pytest.raises(UsageError, match="process"):
        Processes(0)
    with pytest.raises(UsageError, match="backend"):
        Processes(2, "elsewhere")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "backend", [pytest.param("local", marks=pytest.mark.ci), pytest.param("ray", marks=pytest.mark.soak)]
)
def test_processes_elsewhere_give_the_same(backend: module.Any) -> None:
    pytest.importorskip("joblib" if backend == "local" else "ray")
    assert dict(Processes(2, backend).map(math.gcd, [(12, n) for n in range(20)])) == {
        n: math.gcd(12, n) for n in range(20)
    }

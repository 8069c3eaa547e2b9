"""Runs with one failure after the other: they are what a job does, and with one failure what an ordinary trial is."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice, product
from typing import Any

import numpy as np
import pytest
from tests.unit.experiments.samples import SEED, SHARDS, recorded, trainer_of
from tests.unit.experiments.test_replay_is_the_engine import CHECKPOINTS, SERVERS, WORKERS, run_with_kills

from scarml.checkpoint.selection import Checkpoint
from scarml.control.recovery_coordinator import RecoveryCoordinator
from scarml.control.view import Layout
from scarml.core.block import Ids
from scarml.errors import UsageError
from scarml.experiments.failure import FailurePlan, draw_failures
from scarml.experiments.problem import Panel
from scarml.experiments.strategy import FLOOR, Strategy, full, partial, repair
from scarml.experiments.struck import Strike, draw_strikes, run_struck
from scarml.experiments.sweep import Cell, Sweep
from scarml.theory.iteration_cost import full_recovery_cost

EIGHTH = Fraction(1, 8)
STRATEGIES = [
    full(),
    partial("full", Fraction(1)),
    partial("priority", EIGHTH),
    partial("random", EIGHTH),
    repair("priority", EIGHTH),
    FLOOR,
]


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("name", ["qp", "mlr", "mf"])
def test_one_failure_is_an_ordinary_trial(name: str, lag: int) -> None:
    trainer, trajectory = recorded(name, 20)
    sweep = Sweep(Panel(f"tiny-{name}"), FailurePlan(n_trials=3), trainer=trainer)
    failures = draw_failures(trainer, trajectory.n_iters, sweep.plan)
    for strategy in STRATEGIES:
        for row, f in zip(sweep.run_cell(Cell(strategy, lag)), failures, strict=True):
            strike = Strike(f.commit // trainer.n_phases, f.lost)
            struck = run_struck(trainer, trajectory, strategy.checkpoint, lag, [strike])
            assert struck.performed.interpolated - trajectory.crossing.interpolated == pytest.approx(
                row.cost, abs=1e-12
            )
            assert struck.performed.whole - trajectory.crossing.whole == pytest.approx(row.cost_whole, abs=1e-12)
            assert (struck.n_failures, struck.n_lost_blocks) == (1, row.n_lost_blocks)
            assert struck.perturbation == row.perturbation_repaired


KILLS = (6, 9, 10)
"""On which x(k) a server is lost."""
SETTINGS = {name: c for name, c in CHECKPOINTS.items() if name != "full, full"} | {
    "mfu 1/8": Checkpoint("mfu", "1/8", 8)
}
NODES = {"server": SERVERS, "worker": WORKERS}


def cases() -> list[Any]:
    """All ways to save, models and lags; of each way two are of the fast tier, in turn, and the others for CI."""
    found = []
    for turn, settings in enumerate(SETTINGS):
        for i, (name, lag) in enumerate(product(["mlr", "mf", "sparse"], [0, 1])):
            in_turn = (i - turn) % 3 == 0
            found.append(pytest.param(settings, name, lag, marks=() if in_turn else pytest.mark.ci))
    return found


@pytest.mark.parametrize(("settings", "name", "lag"), cases())
def test_a_job_that_loses_servers_again_and_again_goes_the_same_way(name: str, settings: str, lag: int) -> None:
    (trainer, trajectory), checkpoint = recorded(name, 20), SETTINGS[settings]
    result, lost = job(name, checkpoint, lag)
    strikes = [Strike(at, ids) for at, ids in zip(KILLS, lost, strict=True)]
    struck = run_struck(trainer, trajectory, checkpoint, lag, strikes)
    assert struck.n_failures == len(result.recoveries) == len(KILLS)
    norms = [r.get("perturbation_repaired", r["perturbation"]) for r in result.recoveries]
    assert struck.perturbation == pytest.approx(sum(norms), rel=1e-9, abs=1e-300)
    assert struck.performed.whole == result.iterations + struck.repair_iters


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("name", ["mlr", "mf"])
def test_a_job_that_goes_back_again_and_again_performs_as_many_iterations(name: str, lag: int) -> None:
    (trainer, trajectory), checkpoint = recorded(name, 20), CHECKPOINTS["full, full"]
    result, lost = job(name, checkpoint, lag)
    performed = 0
    strikes, before = [], 0
    for at, ids in zip(KILLS, lost, strict=True):  # each strikes when x(at) is first reached
        performed += at - before
        strikes.append(Strike(performed, ids))
        before = at - int(full_recovery_cost(at, checkpoint.interval_iters, lag))
    struck = run_struck(trainer, trajectory, checkpoint, lag, strikes)
    assert struck.performed.whole == result.iterations
    assert struck.rework_iters == result.iterations - trajectory.n_iters


def job(name: str, checkpoint: Checkpoint, lag: int) -> tuple[Any, list[dict[str, Ids]]]:
    """A job that loses a server at each of `KILLS`, and the blocks that went with it."""
    trainer, _ = recorded(name, 20)
    result = run_with_kills(trainer, checkpoint, *(f"servers:1@{at}/lag{lag}" for at in KILLS))
    model, data = trainer.problem.model, trainer.problem.data
    layout = Layout.of(model, model.tables(data), model.shards(data, SHARDS), SEED)
    owners = RecoveryCoordinator(layout, *([f"{kind}-{i}" for i in range(n)] for kind, n in NODES.items()))
    lost = []
    for victim in [None, *(f["node"] for f in result.failures)]:
        if victim is not None:
            owners.lose([victim])
            lost.append(owners.lost_blocks())
        for node in owners.view.nodes:
            owners.settle(node)
    return result, lost


@pytest.mark.parametrize("lag", [0, 1])
def test_full_recovery_is_a_counter(lag: int) -> None:
    """Iterations on x(T) go back to the last complete save; nothing else matters."""
    trainer, trajectory = recorded("mlr", 20)
    for trial in range(6):
        strikes = list(islice(draw_strikes(trainer, 20, FailurePlan(rate_per_baseline=6.0), trial), 30))
        struck = run_struck(trainer, trajectory, full().checkpoint, lag, strikes)
        at, performed, n_failures = 0, 0, 0
        for strike in strikes:
            if at + strike.at_iter - performed >= trajectory.n_iters:
                break
            at, performed, n_failures = at + strike.at_iter - performed, strike.at_iter, n_failures + 1
            at -= int(full_recovery_cost(at, 8, lag))
        performed += trajectory.n_iters - at
        assert (struck.performed.whole, struck.n_failures) == (performed, n_failures)
        assert struck.rework_iters == performed - trajectory.n_iters
        assert struck.performed.interpolated == trajectory.crossing.interpolated + struck.rework_iters


@pytest.mark.parametrize("strategy", [full(), FLOOR], ids=lambda s: s.name)
def test_following_the_trajectory_is_training(strategy: Strategy, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, trajectory = recorded("mf", 20)
    strikes = [Strike(at, lost_at(at)) for at in (3, 7, 8, 12)]
    followed = run_struck(trainer, trajectory, strategy.checkpoint, 0, strikes)
    monkeypatch.setattr("scarml.experiments.trajectory.Trajectory.passes", lambda *_: False)
    assert run_struck(trainer, trajectory, strategy.checkpoint, 0, strikes) == followed


def lost_at(at: int) -> dict[str, Ids]:
    return {"L": np.arange(at), "R": np.arange(at, 12)}


def test_nothing_is_lost_without_failures() -> None:
    trainer, trajectory = recorded("qp", 20)
    late = Strike(trajectory.n_iters, {"x": np.arange(2)})
    for strikes in ([], [late]):
        struck = run_struck(trainer, trajectory, FLOOR.checkpoint, 0, strikes)
        assert struck.performed == trajectory.crossing
        assert struck.n_failures == 0


def test_a_run_that_gets_nowhere_is_given_up() -> None:
    trainer, trajectory = recorded("mlr", 20)
    everything = {t.name: t.all_ids for t in trainer.tables}
    strikes = (Strike(7 * k, everything) for k in range(1, 10_000))
    struck = run_struck(trainer, trajectory, full().checkpoint, 0, strikes)
    assert np.isinf([struck.performed.interpolated, struck.performed.whole]).all()
    assert struck.given_up_at == np.floor(10 * trajectory.crossing.interpolated)
    assert struck.rework_iters == 7 * struck.n_failures


def test_failures_are_common_to_all_rates_and_geometric() -> None:
    trainer = trainer_of("mlr", 20)
    often, seldom = (
        list(islice(draw_strikes(trainer, 20, FailurePlan(rate_per_baseline=rate), 0), 400)) for rate in (8.0, 1.0)
    )
    for a, b in zip(often, seldom, strict=True):
        assert a.at_iter <= b.at_iter
        assert {name: ids.tolist() for name, ids in a.lost.items()} == {n: ids.tolist() for n, ids in b.lost.items()}
    gaps = np.diff([0, *(s.at_iter for s in often)])
    assert gaps.min() >= 1
    assert gaps.mean() == pytest.approx(20 / 8, abs=4 * np.std(gaps) / 20)
    assert len({tuple(s.lost["W"].tolist()) for s in often}) > 100  # each loses others
    assert {len(s.lost["W"]) for s in often} == {6}


def test_strikes_between_phases_are_refused() -> None:
    with pytest.raises(UsageError, match="after_phase is 1"):
        next(draw_strikes(trainer_of("mf", 20), 20, FailurePlan(after_phase=1), 0))

"""The laboratory measures the code that runs: a job that really loses nodes agrees with the replay."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.unit.experiments.samples import SEED, SHARDS, recorded

import scarml as scar
from scarml.checkpoint.selection import Checkpoint
from scarml.control.view import Layout, first_view
from scarml.core.block import Ids
from scarml.experiments.failure import Failure
from scarml.experiments.problem import Trainer
from scarml.experiments.replay import replay
from scarml.experiments.trial import Recovered, recover, train_to_criterion

SERVERS, WORKERS = 4, 2
CHECKPOINTS = {
    "priority 1/8": Checkpoint("priority", "1/8", 8),
    "priority 1/4 of bytes": Checkpoint("priority", "1/4", 8, budget_in="bytes", rank_by="distance-per-byte"),
    "round 1/8": Checkpoint("round", "1/8", 8),
    "random 1/4": Checkpoint("random", "1/4", 8),
    "full, partial": Checkpoint("full", Fraction(1), 4),
    "full, full": Checkpoint("full", Fraction(1), 4, recovery="full"),
    "priority 1/8, repair": Checkpoint("priority", "1/8", 8, recovery="repair"),
    "priority 1/8 of bytes, int8": Checkpoint("priority", "1/8", 8, budget_in="bytes", encode="int8"),
    "general": Checkpoint.preset("general"),
}
MOMENTS = [(9, 1), (12, 0), (12, 1), (9, 0), (2, 0), (2, 1)]
N_FAST = 3  # moments of the fast tier, in turn: each way to save is tried with both models, at another moment each


def cases() -> list[Any]:
    """All models, ways to save and moments; those that are not in turn are for CI."""
    found = []
    for turn, (settings, name) in enumerate(product(CHECKPOINTS, ["mlr", "mf"])):
        for i, (at, lag) in enumerate(MOMENTS):
            in_turn = i == (turn + turn // N_FAST) % N_FAST
            found.append(pytest.param(name, settings, at, lag, marks=() if in_turn else pytest.mark.ci))
    return found


def lost_with(trainer: Trainer, victims: list[str]) -> dict[str, Ids]:
    problem = trainer.problem
    model, tables = problem.model, problem.model.tables(problem.data)
    layout = Layout.of(model, tables, model.shards(problem.data, SHARDS), SEED)
    view = first_view(layout, [f"server-{i}" for i in range(SERVERS)], [f"worker-{i}" for i in range(WORKERS)])
    lost = {}
    for t in trainer.tables:
        parts = [view.blocks_of(v, layout, t.name) for v in victims if v.startswith(t.home)]
        if parts:
            lost[t.name] = np.sort(np.concatenate(parts))
    return lost


def run_with_kills(trainer: Trainer, checkpoint: Checkpoint, *kills: str) -> Any:
    problem = trainer.problem
    return scar.Job(
        problem.model,
        problem.data,
        servers=SERVERS,
        workers=WORKERS,
        checkpoint=checkpoint,
        stop=scar.Stop(loss_sum_below=problem.criterion, max_iters=200),
        seed=SEED,
        shards=SHARDS,
        kills=[scar.Kill.parse(kill) for kill in kills],
    ).run()


@pytest.mark.parametrize(("name", "settings", "at", "lag"), cases())
def test_perturbation_and_iterations_are_those_of_a_job(name: str, settings: str, at: int, lag: int) -> None:
    (trainer, trajectory), checkpoint = recorded(name, 20), CHECKPOINTS[settings]
    result = run_with_kills(trainer, checkpoint, f"servers:2@{at}/lag{lag}")
    lost = lost_with(trainer, [f["node"] for f in result.failures])
    commit = at * trainer.n_phases
    durable = replay(trainer, trajectory, checkpoint, lag, [commit])[commit]
    start = recover(trainer, trajectory.states[commit], checkpoint, Failure(0, commit, lost), durable)
    (recovery,) = result.recoveries
    assert recovery["perturbation"] == pytest.approx(start.perturbation, rel=1e-12, abs=1e-300)
    assert at - recovery["iteration"] == start.rework_iters
    assert_is_mended_alike(recovery, start)
    reached = train_to_criterion(trainer, start.state, start.commit, trajectory.crossing.interpolated)
    assert result.iterations == reached.whole + start.rework_iters


@pytest.mark.parametrize("checkpoint", [Checkpoint("mfu", "1/4", 4), Checkpoint("ssu", "1/8", 8)], ids=["mfu", "ssu"])
@pytest.mark.parametrize(("at", "lag"), [(3, 0), (7, 1), (12, 0)])
def test_uses_are_counted_alike(checkpoint: Checkpoint, at: int, lag: int) -> None:
    trainer, trajectory = recorded("sparse", 20)
    result = run_with_kills(trainer, checkpoint, f"servers:2@{at}/lag{lag}")
    lost = lost_with(trainer, [f["node"] for f in result.failures])
    durable = replay(trainer, trajectory, checkpoint, lag, [at])[at]
    start = recover(trainer, trajectory.states[at], checkpoint, Failure(0, at, lost), durable)
    (recovery,) = result.recoveries
    assert start.perturbation > 0
    assert recovery["perturbation"] == pytest.approx(start.perturbation, rel=1e-12)
    by_turns = replay(trainer, trajectory, replace(checkpoint, policy="round"), lag, [at])[at]
    assert by_turns.iterations["E"].tolist() != durable.iterations["E"].tolist()


@pytest.mark.parametrize("name", ["mlr", "mf", "lda", "adam"])
def test_where_all_blocks_are_used_alike_the_most_used_is_saved_in_turn(name: str) -> None:
    trainer, trajectory = recorded(name, 20)
    last = trajectory.n_iters * trainer.n_phases
    commits = range(1, last + 1)
    by_uses, by_turns = (replay(trainer, trajectory, Checkpoint(p, "1/4", 4), 0, commits) for p in ("mfu", "round"))
    rated = {name: blocks.differs_from(trajectory.states[0][name]) for name, blocks in trajectory.states[last].items()}
    if name == "mf":  # the last user and the last item have no ratings: their turn is never used
        assert [int((~rated[t]).sum()) for t in ("L", "R")] == [1, 1]
        assert [by_uses[last].iterations[t][-1] for t in ("L", "R")] == [0, 0]
        return
    for commit in commits:
        for table, iterations in by_turns[commit].iterations.items():
            assert by_uses[commit].iterations[table].tolist() == iterations.tolist()


def assert_is_mended_alike(recovery: dict[str, Any], start: Recovered) -> None:
    if recovery["kind"] == "repair":
        left = pytest.approx(start.perturbation_repaired, rel=1e-12, abs=1e-300)
        assert (recovery["perturbation_repaired"], recovery["repair_iters"]) == (left, start.repair_iters)
    else:
        assert (start.perturbation_repaired, start.repair_iters) == (start.perturbation, 0)


@pytest.mark.parametrize("settings", ["priority 1/8", "priority 1/8, repair"])
@pytest.mark.parametrize("kill", ["servers:1@6", "workers:1@6", "workers:1@6/lag1", "worker-0@7"])
@pytest.mark.parametrize("name", ["lda", "adam"])
def test_worker_home_blocks_and_extra_fields_too(name: str, kill: str, settings: str) -> None:
    (trainer, trajectory), checkpoint = recorded(name, 12), CHECKPOINTS[settings]
    at, lag = int(kill.split("@")[1][0]), int(kill.endswith("lag1"))
    result = run_with_kills(trainer, checkpoint, kill)
    lost = lost_with(trainer, [f["node"] for f in result.failures])
    (recovery,) = result.recoveries
    if not lost:
        assert recovery["perturbation"] == 0
        return
    commit = at * trainer.n_phases
    durable = replay(trainer, trajectory, checkpoint, lag, [commit])[commit]
    start = recover(trainer, trajectory.states[commit], checkpoint, Failure(0, commit, lost), durable)
    assert recovery["perturbation"] == pytest.approx(start.perturbation, rel=1e-12)
    assert_is_mended_alike(recovery, start)

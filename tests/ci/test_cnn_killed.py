"""The CNN on the images that come with SCAR, from its first iteration to a low loss, while servers are lost."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import scarml as scar
from scarml.core.sequential import digest
from scarml.data.registry import load
from scarml.models.registry import create

if TYPE_CHECKING:
    from scarml.engine.ray.connection import RayCluster

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.ci, pytest.mark.timeout(400)]  # a busy machine takes several times its half minute

CNN: Any = create(scar.CNN, "mnist-10k", loss_examples=1_000)
SHARDS = 2
"""Pieces of 32 examples: twice as fast as the 16 pieces of 4 that a job would have."""


def settings(run: Path, **others: Any) -> dict[str, Any]:
    byte_budget = scar.Checkpoint(budget_in="bytes", rank_by="distance-per-byte")
    return {"servers": 4, "shards": SHARDS, "run": run, "checkpoint": byte_budget, **others}


@pytest.mark.parametrize("blocks", ["by-layer", "by-shard"])
def test_it_learns_the_digits_though_half_of_the_servers_are_lost_twice(tmp_path: Path, blocks: Any) -> None:
    model = replace(CNN, blocks=blocks)
    kills = [scar.Kill.parse("servers:1/2@6"), scar.Kill.parse("servers:1@12")]
    stop = scar.Stop(max_iters=60, eval_every_iters=5)
    job = scar.Job(
        model, "mnist-10k", loss_mean_below=0.4, stop=stop, kills=kills, **settings(tmp_path / "run", resume="auto")
    )
    result = job.run()
    assert (result.outcome, len(result.failures)) == ("converged", 3)
    module = model.module(scar.load(tmp_path / "run", model=model))
    data = load("mnist-10k")
    with torch.no_grad():
        predicted = module(torch.from_numpy(model._input(data.features[:1_000]))).argmax(dim=1).numpy()
    assert np.mean(predicted == data.labels[:1_000]) > 0.85


@pytest.mark.xdist_group("ray")
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'scarml[ray]'")
@pytest.mark.soak
def test_real_processes_give_the_same_result_and_go_on_when_killed(tmp_path: Path, ray_cluster: RayCluster) -> None:
    model = replace(CNN, batches_per_iteration=2)
    few: dict[str, Any] = {"servers": 2, "workers": 1}  # each takes two seconds to import torch
    stop = scar.Stop(max_iters=3, eval_every_iters=3)
    run = scar.Sequential(model, load("mnist-10k"), n_shards=SHARDS)
    for _ in range(3):
        run.step()
    calm = scar.Job(model, "mnist-10k", stop=stop, engine=ray_cluster, **settings(tmp_path / "calm", **few)).run()
    assert calm.digest == digest(run.state)
    kills = [scar.Kill.parse("servers:1/2@2")]
    job = scar.Job(
        model, "mnist-10k", stop=stop, kills=kills, engine=ray_cluster, **settings(tmp_path / "killed", **few)
    )
    killed = job.run()
    assert (killed.outcome, killed.iteration, len(killed.failures)) == ("max-iters", 3, 1)

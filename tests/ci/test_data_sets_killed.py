"""MLR and MF on whole data sets, from x(0) to the criterion, while half of the servers and then a worker are lost."""

from __future__ import annotations

from pathlib import Path

import pytest

import scarml as scar
from scarml.models.registry import create, defaults_for

pytestmark = pytest.mark.ci


@pytest.mark.parametrize(
    ("model", "data"),
    [
        pytest.param(scar.MLR, "mnist", marks=pytest.mark.soak),
        (scar.MLR, "covtype"),
        (scar.MF, "movielens"),
        pytest.param(scar.MF, "jester", marks=pytest.mark.soak),
    ],
)
def test_it_converges_and_nothing_saved_is_lost(model: type, data: str, data_dir: Path, tmp_path: Path) -> None:
    kills = [scar.Kill.parse("servers:1/2@20"), scar.Kill.parse("workers:1@30")]
    criterion = scar.Stop(loss_sum_below=defaults_for(model, data).stop_loss_sum, max_iters=200)
    result = scar.Job(
        create(model, data), data, servers=4, workers=2, stop=criterion, kills=kills, run=tmp_path / "run"
    ).run()
    assert (result.outcome, result.saved, len(result.failures)) == ("converged", True, 3)
    lost_servers, lost_worker = result.recoveries
    assert 0 < lost_servers["restored"] <= lost_servers["lost_blocks"]
    assert lost_worker["lost_blocks"] == 0, "their blocks are at the servers"
    again = scar.Job(create(model, data), data, run=tmp_path / "run", resume="must", stop=scar.Stop(max_iters=1)).run()
    assert again.digest == result.digest, "what was saved is the last state"

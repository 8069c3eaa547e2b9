"""``scarml train`` with a policy, a model and a data set of somebody else's package."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Scarml
from tests.unit.own_package import DATA, MODEL, POLICY, write_package


@pytest.fixture(autouse=True)
def _package_here(tmp_path: Path) -> Iterator[None]:
    """In the current folder, which is importable."""
    path = list(sys.path)
    write_package(tmp_path)
    yield
    sys.path[:] = path
    for name in [n for n in sys.modules if n.partition(".")[0] == "my_things"]:
        del sys.modules[name]


def test_all_of_it_by_name(scarml: Scarml) -> None:
    ran = scarml("train", MODEL, "--data", DATA, "--policy", POLICY, "--kill", "servers:1@9", "--json")
    result = json.loads(ran.out)
    assert (ran.code, result["converged"], len(result["recoveries"])) == (0, True, 1)
    assert result["run"] == "scar-runs/means-my_things.data-groups-1"
    assert f"checkpoint: {POLICY}, 3 of 24 blocks every iteration" in ran.err


def test_what_fails_in_a_policy_is_said(scarml: Scarml) -> None:
    ran = scarml("train", "qp", "--policy", "my_things.policies:Failing")
    assert ran.code == 2
    assert "policy my_things.policies:Failing raised ValueError in scores(): not today" in ran.err
    assert "Traceback" not in ran.err
    ran = scarml("train", "qp", "--policy", "my_things.policies:Coin")
    assert ran.code == 2
    assert "module 'my_things.policies' has no 'Coin' at its top level" in ran.err

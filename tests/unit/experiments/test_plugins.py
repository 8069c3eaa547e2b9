"""Somebody else's policy, model with a repair of its own, and data set, in the same sweep as those of SCAR."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from joblib.externals import loky
from tests.unit.own_package import DATA, MODEL, POLICY, write_package

import scarml as scar
from scarml.checkpoint.policy import POLICIES, needs_of, policy_named
from scarml.errors import DataError, UsageError
from scarml.experiments import Cell, FailurePlan, Panel, Processes, Sweep, TrialRow, full, partial, repair, summarise

PANEL = Panel(MODEL, DATA, n_shards=4)
EIGHTH = Fraction(1, 8)
PARTIAL, REPAIR = [partial(p, EIGHTH) for p in ("priority", "mfu")], [repair(p, EIGHTH) for p in ("priority", "round")]
CELLS = [Cell(s, 0) for s in (full(), *PARTIAL, *REPAIR)]


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = write_package(tmp_path / "installed")
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [n for n in sys.modules if n.partition(".")[0] == "my_things"]:
        del sys.modules[name]


def rows_of(folder: Path, processes: int) -> list[TrialRow]:
    cells = [*CELLS, Cell(partial(POLICY, EIGHTH), 0)]
    return Sweep(PANEL, FailurePlan(n_trials=8), processes=Processes(processes)).run(cells, folder)


def test_all_of_it_is_in_the_same_sweep(tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "results", 1)
    assert {r.panel for r in rows} == {"means-groups"}
    assert {r.policy for r in rows} == {"full", "priority", "mfu", "round", POLICY}
    assert (tmp_path / "results" / "hot-first-1-8-partial.lag-0.csv").exists()
    found = {c.strategy: c for c in summarise(rows)}
    assert found["hot-first-1-8-partial"].cost == found["priority-1-8-partial"].cost, "every block is used here"
    for name in ("priority-1-8-repair", "round-1-8-repair"):
        repaired = [r for r in rows if r.strategy == name]
        assert all(r.repair_iters > 0 for r in repaired)
        assert found[name].cost.value < found["priority-1-8-partial"].cost.value, "its repair takes the whole step"


@pytest.mark.ci
def test_two_processes_come_to_the_same(tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")]))
    loky.get_reusable_executor().shutdown(wait=True)  # processes that another test has left know nothing of it
    assert rows_of(tmp_path / "two", 2) == rows_of(tmp_path / "one", 1)
    loky.get_reusable_executor().shutdown(wait=True)


@pytest.mark.ci
def test_from_the_command_line_of_another_process(tmp_path: Path, package: Path) -> None:
    path = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "scarml.cli", "train", MODEL, "--policy", POLICY, "--kill", "servers:1@9"]
    for data in ((), ("--data", DATA)):
        ran = subprocess.run(
            [*command, "--stop-loss-sum", "122", "--recovery", "repair", *data],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert f"checkpoint: {POLICY}, 3 of 24 blocks every iteration" in ran.stderr
        assert "recovery: repair" in ran.stderr


def test_a_model_brings_its_own_data() -> None:
    own, named = Panel(MODEL, criterion=122.0).load(), PANEL.load()
    assert own.criterion == named.criterion == 122.0
    assert [a.tolist() for a in own.data] == [a.tolist() for a in named.data]


def test_a_data_set_of_ones_own_may_be_for_a_model_of_scars(package: Path) -> None:
    text = "from scarml.testing import tiny_problem\n\n\ndef few():\n    return tiny_problem('mlr')[1]\n"
    (package / "my_images.py").write_text(text)
    panel = Panel("mlr", "my_images:few", criterion=40.0, hyper_parameters=(("learning_rate", 0.5),))
    assert panel.name == "mlr-few"
    assert panel.load().data.features.shape == (50, 12)


def test_a_job_is_chosen_for_by_import() -> None:
    settings = {"checkpoint": scar.Checkpoint(POLICY, "1/4", 4), "kills": [scar.Kill.parse("servers:1@6")]}
    model = scar.models.registry.model_class(MODEL)()
    result = scar.Job(model, DATA, stop=scar.Stop(max_iters=8), **settings).run()
    assert result.iterations == 8
    assert len(result.recoveries) == 1
    assert "hot-first" not in POLICIES, "nothing has to be registered, in whatever process"
    assert needs_of(policy_named(POLICY)) == ("distance", "n_uses")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "my_things.policies:Coin",
            "policy 'my_things.policies:Coin': module 'my_things.policies' has no 'Coin'",
        ),
        ("my_thongs:Coin", "importing 'my_thongs' failed with ModuleNotFoundError"),
        ("my_things.policies:NoPolicy", "policy NoPolicy has no 'needs_distances'"),
        ("my_things.policies:some_number", "is a int; expected a class"),
        ("my_things.policies:CallsItselfFull", "calls itself 'full', as another does"),
        ("coin", "choose one of priority, round, random, mfu, ssu, full.*, or module:Class for one of your own"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said(name: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        scar.Checkpoint(name)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Failing", "policy my_things.policies:Failing raised ValueError in scores.*: not today"),
        ("Short", r"policy my_things.policies:Short gave scores of shape \(23,\); expected one for each block"),
    ],
)
def test_a_policy_that_fails_is_named(name: str, sentence: str, tmp_path: Path) -> None:
    sweep = Sweep(PANEL, FailurePlan(n_trials=1))
    with pytest.raises(UsageError, match=sentence):
        sweep.run([Cell(partial(f"my_things.policies:{name}", EIGHTH), 0)], tmp_path / "results")


@pytest.mark.parametrize(
    ("name", "error", "sentence"),
    [
        ("my_things.data:nothing", UsageError, "data set 'my_things.data:nothing': module .* has no 'nothing'"),
        ("my_things.data:np", UsageError, "is a module; expected a function that returns the data"),
        ("my_things.data:broken", DataError, "its function raised OSError: the disk is gone"),
    ],
)
def test_what_is_wrong_with_a_data_set_is_said(name: str, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        Panel(MODEL, name, criterion=1.0).load()

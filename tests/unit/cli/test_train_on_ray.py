"""What ``scarml train`` says and passes on where nodes are processes on Ray. No Ray is started here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Scarml

from scarml.cli.node_words import nodes_in_words
from scarml.cli.settings import Settings, from_everywhere
from scarml.control.history import Record
from scarml.errors import ClusterError, UsageError
from scarml.models.qp import QP
from scarml.storage.local import LocalStore
from scarml.storage.run_folder import RunFolder

ON_RAY = ("train", "qp", "--engine", "ray")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command gives to the job; the job finds no Ray."""
    given: dict[str, Any] = {}

    class NoRay:
        tables = QP().tables(None)
        saved_iterations = None
        is_stopping = False

        def __init__(self, *_: Any, **settings: Any) -> None:
            given.update(settings)

        def run(self) -> None:
            given["on_event"](Record("nodes_starting", {"n_nodes": 6}))
            raise ClusterError("there is no Ray at head:1")

    monkeypatch.setattr("scarml.job.Job", NoRay)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return given


def test_settings_reach_the_job(scarml: Scarml, given: dict[str, Any]) -> None:
    ran = scarml(*ON_RAY, "--ray-address", "head:1", "--replace", "--silence", "4")
    assert (ran.code, ran.err.splitlines()[-1]) == (2, "scarml: error: there is no Ray at head:1")
    assert (given["engine"], given["ray_address"], given["replace"], given["silence_s"]) == ("ray", "head:1", True, 4.0)
    assert not Path("scar-runs/qp-1").exists(), "nothing was trained"


def test_by_default_a_ray_is_started_and_nobody_is_replaced(scarml: Scarml, given: dict[str, Any]) -> None:
    ran = scarml(*ON_RAY)
    assert (given["ray_address"], given["replace"], given["silence_s"]) == (None, False, 10.0)
    assert "nodes: 4 servers and 2 workers on a Ray of their own on this machine, each a process with" in ran.err
    assert "one compute thread; the others take over from a lost one" in ran.err
    assert "starting 6 processes" in ran.err


def test_nothing_is_said_of_nodes_in_this_process() -> None:
    assert nodes_in_words(Settings(model="qp")) is None


def test_the_address_of_the_environment_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head:1")
    assert "on the Ray at head:1" in (nodes_in_words(Settings(model="qp", engine="ray")) or "")
    assert "of their own" in (nodes_in_words(Settings(model="qp", engine="ray", ray_address="local")) or "")


def test_a_flag_beats_the_environment_that_beats_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "run.toml"
    file.write_text('model = "qp"\nengine = "ray"\nreplace = true\nsilence = 5\nray-address = "a:1"\n')
    s = from_everywhere({}, str(file))
    assert (s.engine, s.replace, s.silence, s.ray_address) == ("ray", True, 5.0, "a:1")
    monkeypatch.setenv("SCAR_REPLACE", "no")
    monkeypatch.setenv("SCAR_RAY_ADDRESS", "b:1")
    s = from_everywhere({}, str(file))
    assert (s.replace, s.ray_address) == (False, "b:1")
    s = from_everywhere({"replace": True, "ray_address": "c:1"}, str(file))
    assert (s.replace, s.ray_address) == (True, "c:1")
    assert not from_everywhere({"replace": False}, str(file)).replace


def test_an_address_in_the_environment_does_not_hinder_a_run_in_one_process(
    scarml: Scarml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAR_RAY_ADDRESS", "head:1")
    monkeypatch.setenv("SCAR_SILENCE", "3")
    assert scarml("train", "qp", "--max-iters", "2", "--stop-loss-sum", "1e9").code == 0


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("--engine", "spark"), "--engine 'spark' is unknown; choose inprocess or ray"),
        (("--ray-address", "head:1"), "--ray-address needs --engine ray"),
        (("--silence", "3"), "--silence needs --engine ray"),
        (("--engine", "ray", "--silence", "0.5"), "--silence is 0.5; expected 1 seconds or more"),
        (("--engine", "ray", "--silence", "nan"), "--silence is nan; expected a finite number"),
        (("--engine", "ray", "--silence", "soon"), "--silence is 'soon'; expected a number"),
        (("--engine", "ray", "--kill", "servers:1@2/lag1"), "possible where losses are simulated only"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(scarml: Scarml, args: tuple[str, ...], complaint: str) -> None:
    ran = scarml("train", "qp", *args)
    assert ran.code == 2
    assert complaint in ran.err


def test_a_switch_in_the_environment_is_true_or_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAR_REPLACE", "perhaps")
    with pytest.raises(UsageError, match="SCAR_REPLACE is 'perhaps'; expected true or false"):
        from_everywhere({"model": "qp"}, None)


def test_without_ray_one_sentence_says_how_to_get_it(scarml: Scarml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    for command in (ON_RAY, ("demo-kill",)):
        ran = scarml(*command)
        assert ran.code == 2
        assert "needs Ray, which is not installed; install it with: pip install 'scarml[ray]'" in ran.err
    assert not list(Path("scar-runs").glob("*"))


def test_a_run_of_one_engine_goes_on_with_the_other(scarml: Scarml) -> None:
    settings = Settings(model="qp", engine="ray", servers=7, replace=True)
    assert scarml("train", "qp", "--max-iters", "3", "--stop-loss-sum", "1e-9", "--run", "run").code == 3
    there = RunFolder.open(LocalStore("run")).description
    assert there["config"]["engine"] == "inprocess"
    Path("run.json").write_text(json.dumps({"description": {"config": settings.to_config()}}))
    again = from_everywhere({"engine": "inprocess"}, "run.json")
    assert (again.engine, again.servers, again.replace) == ("inprocess", 7, True)
    more = ("--run", "run", "--resume", "must", "--engine", "inprocess", "--max-iters", "5", "--stop-loss-sum", "1e-9")
    ran = scarml("train", "--config", "run.json", *more, "--json")
    assert json.loads(ran.out)["iteration"] == 5

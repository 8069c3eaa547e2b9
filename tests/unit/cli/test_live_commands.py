"""``scarml stop``, ``drain`` and ``scale``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Scarml
from tests.unit.storage.test_command_delivery import Running
from tests.unit.storage.test_ownership import LEASE_S
from tests.unit.storage.test_run_folder import new_run

from scarml.cli import live_commands
from scarml.storage.local import LocalStore
from scarml.storage.run_folder import RunFolder


@pytest.fixture
def run(scarml: Scarml) -> Iterator[Running]:
    """A run in the folder ``run``, which somebody works on."""
    running = Running(LocalStore("run"))
    yield running
    running._stack.close()


@pytest.fixture
def meanwhile(run: Running, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What the run's driver does, each time that the sender waits."""

    def plan(*script: Callable[[], object]) -> None:
        time = run.sender(*script)
        monkeypatch.setattr(live_commands, "timing", time.timing)

    plan(run.work, run.work)
    return plan


@pytest.mark.parametrize(
    ("args", "event"),
    [
        (["stop", "run"], "StopRequested"),
        (["drain", "run", "server-1"], "DrainRequested"),
        (["scale", "run", "--servers", "6", "--workers", "3"], "ScaleRequested"),
    ],
)
@pytest.mark.usefixtures("meanwhile")
def test_what_happened_is_printed(scarml: Scarml, args: list[str], event: str) -> None:
    ran = scarml(*args)
    assert (ran.code, ran.out) == (0, f"run: done: {event}\n")
    assert ran.err == "the run has read the command\n"


@pytest.mark.usefixtures("meanwhile")
def test_the_same_as_json(scarml: Scarml) -> None:
    ran = scarml("scale", "run", "--workers", "3", "--json")
    assert json.loads(ran.out) == {
        "schema_version": 1, "run": "run", "command": "scale", "arguments": {"workers": 3}, "done": True,
        "outcome": "done: ScaleRequested",
    }  # fmt: skip


def test_a_refusal_is_an_error(scarml: Scarml, run: Running, meanwhile: Callable[..., None]) -> None:
    def refuse() -> None:
        for command, _ in run.inbox.take_new():
            run.inbox.answer(command, "there is no node server-9: nodes are server-0, server-1", done=False)

    meanwhile(refuse, run.work)
    ran = scarml("drain", "run", "server-9", "--json")
    assert ran.code == 2
    assert json.loads(ran.out)["done"] is False
    assert ran.err.endswith("scarml: error: there is no node server-9: nodes are server-0, server-1\n")


def test_nobody_need_wait(scarml: Scarml, run: Running, meanwhile: Callable[..., None]) -> None:
    meanwhile()
    ran = scarml("stop", "run", "--no-wait")
    assert (ran.code, ran.out, ran.err) == (0, "run: stop is posted; scarml status run shows what becomes of it\n", "")
    assert json.loads(scarml("stop", "run", "--no-wait", "--json").out)["done"] is None
    assert len(run.inbox.take_new()) == 2


def test_no_answer_in_time_is_a_run_in_use(scarml: Scarml, meanwhile: Callable[..., None]) -> None:
    meanwhile()
    ran = scarml("stop", "run", "--timeout", "0")
    assert ran.code == 5
    assert "has not read it yet in 0 s" in ran.err


def test_ctrl_c_ends_the_waiting_and_not_the_command(
    scarml: Scarml, run: Running, meanwhile: Callable[..., None]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    meanwhile(interrupt)
    ran = scarml("stop", "run")
    assert ran.code == 130
    assert "the command still counts" in ran.err
    assert len(run.inbox.take_new()) == 1


def test_a_killed_run_is_one_sentence(scarml: Scarml, run: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    time = run.sender()
    time.now_s += 3 * LEASE_S
    monkeypatch.setattr(live_commands, "timing", time.timing)
    ran = scarml("stop", "run")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("scarml: error: no process works on this run: process ")
    assert ran.err.count("\n") == 1


def test_a_run_that_has_ended_says_how(scarml: Scarml, run: Running) -> None:
    run.end("converged")
    ran = scarml("scale", "run", "--servers", "2")
    assert ran.code == 2
    assert "has ended (converged, it was enough)" in ran.err


def test_what_cannot_be_is_one_sentence(scarml: Scarml) -> None:
    new_run(LocalStore("idle"))
    RunFolder.create(LocalStore("loop"), {"kind": "running-checkpoint"})
    Path("file").write_text("")
    for args, sentence in (
        (["stop", "idle"], "no process works on this run: it was never started"),
        (["stop", "loop"], "this run is a training loop of somebody's own, and takes no commands; SIGTERM stops its"),
        (["stop", "nowhere"], "there is no run in nowhere; expected a folder that scarml train --run has made"),
        (["stop", "file"], "file is a file; expected the folder of a run"),
        (["stop", "s4://bucket/run"], "s4://bucket/run"),
        (["drain", "idle"], "Missing argument 'NODE'"),
        (["drain", "idle", "Server 1"], "'Server 1' is no node; expected for example server-3. scarml status idle"),
        (["scale", "idle"], "say how many nodes the run is to have: --servers N, --workers N, or both"),
        (["scale", "idle", "--servers", "0"], "--servers is 0; expected at least 1"),
        (["scale", "idle", "--workers", "-3"], "--workers is -3; expected at least 1"),
        (["scale", "idle", "--workers", "10001"], "--workers is 10001; expected at most 10,000"),
        (["scale", "idle", "--servers", "many"], "Invalid value for '--servers'"),
        (["scale", "idle", "--servers", "2", "--timeout", "-1"], "Invalid value for '--timeout'"),
    ):
        ran = scarml(*args)
        assert (ran.code, ran.out) == (2, ""), args
        assert sentence in ran.err, args
        assert ran.err.count("\n") == 1, args
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("command", ["stop", "drain", "scale", "status"])
def test_help_has_an_example(scarml: Scarml, command: str) -> None:
    ran = scarml(command, "--help")
    assert ran.code == 0
    assert f"Example: scarml {command} runs/mf" in ran.out

"""``scarml status``."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator

import pytest
from tests.unit.cli.conftest import Scarml
from tests.unit.storage.test_run_folder import new_run

from scarml.cli import status as command
from scarml.storage.live_status import STATUS_OBJECT, LiveStatus, NodeStatus, SavesStatus, Status
from scarml.storage.local import LocalStore
from scarml.storage.owner import read_beat, write_beat
from scarml.storage.ownership import Timing
from scarml.storage.run_folder import RunFolder

NOW_S = 1.8e9

STATUS = Status(
    iteration=120,
    executed=128,
    loss={"loss_sum": 6812.25},
    metrics={"accuracy": 0.875},
    metrics_iteration=115,
    activity="training",
    nodes=(
        NodeStatus("server-0", "server", pid=42, host="near"),
        NodeStatus("server-1", "server", alive=False, pid=43, host="near"),
        NodeStatus("worker-0", "worker"),
    ),
    saves=SavesStatus(57, 1_234_567, 118, 3, 12),
)


class Run:
    """A run in the folder ``run``, which this process works on."""

    def __init__(self) -> None:
        self.store = LocalStore("run")
        self.folder = new_run(self.store)
        self.context = self.folder.owned(timing=Timing(unix_s=lambda: NOW_S))
        self.context.__enter__()
        self.term = self.folder.claim_term("new")
        self.say(STATUS)

    def say(self, status: Status) -> None:
        LiveStatus(self.folder, lambda task: task(), unix_s=lambda: NOW_S - 1).publish(status)

    def end(self) -> None:
        event = {"event": "run_finished", "outcome": "converged", "reason": "the loss is low enough"}
        self.folder.append_events(self.term, [event])
        self.context.__exit__(None, None, None)

    def grow_silent(self, seconds: float) -> None:
        self.context.__exit__(None, None, None)
        beat = read_beat(self.store)
        assert beat is not None
        write_beat(self.store, type(beat)(beat.owner, beat.term, beat.counter, NOW_S - seconds, False))


@pytest.fixture
def run(scarml: Scarml, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(command, "now_unix_s", lambda: NOW_S)
    running = Run()
    yield running
    running.context.__exit__(None, None, None)


def rows(text: str) -> dict[str, str]:
    return {line[:11].strip(): line[12:] for line in text.splitlines()}


@pytest.mark.usefixtures("run")
def test_a_run_that_is_going_on(scarml: Scarml) -> None:
    ran = scarml("status", "run")
    assert (ran.code, ran.err) == (0, "")
    found = rows(ran.out)
    assert found.pop("owner").startswith("process ")
    assert found == {
        "run": "run",
        "state": "x(120), 128 iterations done, training; as of 1 s ago",
        "loss": "loss_sum 6,812.25",
        "held out": "accuracy 0.875 on x(115)",
        "servers": "1 of 2 alive",
        "workers": "1 of 1 alive",
        "saved": "57 saves, 1,234,567 bytes, the newest of x(118), 2 iterations ago; age of blocks: median 3, oldest "
        "12 iterations",
        "server-0": "alive, process 42 on near",
        "server-1": "LOST, process 43 on near",
        "worker-0": "alive",
    }


@pytest.mark.usefixtures("run")
def test_the_same_as_json(scarml: Scarml) -> None:
    x = json.loads(scarml("status", "run", "--json").out)
    assert (x["schema_version"], x["run"], x["is_alive"], x["is_current"]) == (1, "run", True, True)
    assert x["owner"]["state"] == "alive"
    assert x["status"]["iteration"] == 120
    assert x["status"]["nodes"][1] == {
        "name": "server-1", "kind": "server", "alive": False, "pid": 43, "host": "near",
    }  # fmt: skip
    assert x["history"] is None


def test_one_that_has_ended_says_how(scarml: Scarml, run: Run) -> None:
    run.end()
    found = rows(scarml("status", "run").out)
    assert found["owner"].startswith("nobody works on it; the last was process ")
    assert found["outcome"] == "converged, the loss is low enough"
    assert found["state"] == "x(120), 128 iterations done; as of 1 s ago"
    assert found["servers"] == "1 of 2 were alive"
    assert "server-0" not in found
    assert json.loads(scarml("status", "run", "--json").out)["history"]["outcome"] == "converged"


@pytest.mark.parametrize(
    ("silent_s", "ago"), [(35, "35 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (300_000, "3 days")]
)
def test_one_that_was_killed(scarml: Scarml, run: Run, silent_s: float, ago: str) -> None:
    event = {"event": "run_finished", "outcome": "converged", "reason": "in an earlier start"}
    run.folder.append_events(run.term, [event])
    run.grow_silent(silent_s)
    found = rows(scarml("status", "run").out)
    assert found["owner"].startswith("nobody seems to work on it: process ")
    assert found["owner"].endswith(f"last sign of life {ago} ago; it was probably killed")
    assert "outcome" not in found


def test_what_an_earlier_start_said_is_called_so(scarml: Scarml, run: Run) -> None:
    run.end()
    later = RunFolder.open(run.store)
    with later.owned(timing=Timing(unix_s=lambda: NOW_S)):
        later.claim_term("parent")
        found = rows(scarml("status", "run").out)
    assert found["state"].endswith("so it said in an earlier start, and nothing since")
    assert "training" not in found["state"]


def test_a_run_that_said_nothing_is_told_from_its_event_log(scarml: Scarml, run: Run) -> None:
    run.store.delete(STATUS_OBJECT)
    run.folder.append_events(1, [{"event": "run_started"}, {"event": "iteration_committed", "iteration": 9}])
    assert rows(scarml("status", "run").out)["state"] == (
        "x(9) at least, by the event log, which is written with saves"
    )


def test_a_damaged_status_is_told(scarml: Scarml, run: Run) -> None:
    run.store.put(STATUS_OBJECT, [b"{"])
    ran = scarml("status", "run")
    assert ran.code == 0
    assert rows(ran.out)["status"].startswith("status.json is damaged")
    assert "damaged" in json.loads(scarml("status", "run", "--json").out)["problem"]


def test_one_that_has_not_begun(scarml: Scarml) -> None:
    new_run(LocalStore("idle"))
    found = rows(scarml("status", "idle").out)
    assert found["owner"] == "nobody works on it, and nobody ever did"
    assert found["state"] == "nothing is known yet"


def test_trouble_with_the_store_and_a_start_without_saves(scarml: Scarml, run: Run) -> None:
    run.say(Status(saves=SavesStatus(trouble="the disk is full")))
    found = rows(scarml("status", "run").out)
    assert (found["store"], found["saved"]) == ("the disk is full", "nothing yet in this start")


def test_of_very_many_nodes_only_the_lost_have_lines(scarml: Scarml, run: Run) -> None:
    run.say(Status(nodes=tuple(NodeStatus(f"server-{i}", "server", alive=i != 7) for i in range(1000))))
    found = rows(scarml("status", "run").out)
    assert found["servers"] == "999 of 1000 alive"
    assert [name for name in found if name.startswith("server-")] == ["server-7"]


def test_watching_ends_with_the_run(scarml: Scarml, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    script = iter([lambda: run.say(Status(iteration=121)), run.end])
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        next(script)()
        return False

    monkeypatch.setattr(command, "wait", wait)
    looks = [json.loads(line) for line in scarml("status", "run", "--watch", "--json").out.splitlines()]
    assert [(x["status"]["iteration"], x["is_alive"]) for x in looks] == [(120, True), (121, True), (121, False)]
    assert waited == [2.0, 2.0]


@pytest.mark.usefixtures("run")
def test_watching_ends_with_ctrl_c(scarml: Scarml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "wait", lambda _: True)
    assert scarml("status", "run", "-w").code == 0


@pytest.mark.parametrize("watching", [[], ["--watch"]])
@pytest.mark.usefixtures("run")
def test_on_a_terminal_it_is_a_panel(scarml: Scarml, monkeypatch: pytest.MonkeyPatch, watching: list[str]) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name, value in (("COLUMNS", "100"), ("NO_COLOR", "1"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    monkeypatch.setattr(command, "wait", lambda _: True)
    scarml("status", "run", *watching)
    text = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", terminal.getvalue())
    assert "╭─ run ─" in text
    assert "x(120), 128 iterations done, training" in text
    assert "process 43 on near" in text
    assert "LOST" in text


def test_errors_are_one_sentence(scarml: Scarml) -> None:
    ran = scarml("status", "nowhere")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "scarml: error: there is no run in nowhere; expected a folder that scarml train --run has made\n"
    )

"""``scarml demo-kill``: what is directed, measured and shown. The real one is in tests/ci."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.cli.conftest import Scarml

from scarml.cli.demo_losses import LossTimes, as_table
from scarml.cli.demo_servers_run import INVITED_UNTIL_ITER, PACE_S, Stage
from scarml.cli.demo_show import Show
from scarml.control.history import Record
from scarml.errors import RunExistsError

SERVERS = ["server-0", "server-1", "server-2", "server-3"]
PROCESSES = [{"node": n, "pid": 100 + i, "host": "a"} for i, n in enumerate([*SERVERS, "worker-0", "worker-1"])]
STARTED = Record("run_started", {"servers": SERVERS, "workers": ["worker-0", "worker-1"], "processes": PROCESSES})


def killed(iteration: int, nodes: Sequence[str], t_s: float, by_us: bool = True) -> list[Record]:
    """The records of a loss: noticed after 4 ms a node, owners after 1, loaded after 20, committed after 30."""
    us = [Record("nodes_killed", {"iteration": iteration, "processes": []}, t_s)] if by_us else []
    lost = [
        record
        for i, n in enumerate(nodes, 1)
        for record in (
            Record(
                "node_lost",
                {"node": n, "reason": "its process 7 on a has died", "simulated": False, "killed": by_us},
                t_s + 0.004 * i,
            ),
            Record("recovery_started", {"lost_blocks": 196 * i}, t_s + 0.004 * i + 0.001),
        )
    ]
    done = {"kind": "partial", "iteration": iteration, "perturbation": 0.88, "perturbation_is_exact": False}
    t_s = lost[-1].t_s
    return [
        *us,
        *lost,
        Record("recovery_completed", {**done, "perturbation_age_iters": 1}, t_s + 0.02),
        Record("iteration_committed", {"iteration": iteration + 1}, t_s + 0.05),
    ]


class Said:
    """A progress display that keeps what is said."""

    def __init__(self) -> None:
        self.text = ""

    def say(self, text: str) -> None:
        self.text += text + "\n"


class Play:
    """A stage, and what is seen on it."""

    def __init__(self, invites: bool) -> None:
        self.said = Said()
        self.slept_s: list[float] = []
        self.stage = Stage(Show(quiet=True), invites, self.slept_s.append)

    def happens(self, *records: Record) -> None:
        for record in records:
            self.stage.take_in(record, self.said)  # type: ignore[arg-type]

    def trains(self, first: int, last: int) -> None:
        for k in range(first, last + 1):
            self.happens(Record("iteration_committed", {"iteration": k}), Record("loss_evaluated", {"iteration": k}))


def test_times_of_each_step() -> None:
    times = LossTimes()
    for record in killed(21, ["server-2", "server-3"], 1.0):
        times.take_in(record)
    (loss,) = times.losses
    assert (loss.iteration, loss.by_us, loss.nodes, loss.lost_blocks) == (21, True, ["server-2", "server-3"], 392)
    assert loss.detection_ms == pytest.approx(8)
    assert (loss.view_ms, loss.load_ms, loss.next_commit_ms) == pytest.approx((1, 20, 30))
    assert (loss.perturbation, loss.perturbation_is_exact, loss.perturbation_age_iters) == (0.88, False, 1)


def test_nobody_knows_when_somebody_else_has_killed() -> None:
    times = LossTimes()
    for record in [*killed(21, ["server-2"], 1.0), *killed(40, ["server-0"], 9.0, by_us=False)]:
        times.take_in(record)
    assert [x.detection_ms is None for x in times.losses] == [False, True]
    table = "\n".join(as_table(times.losses, 62))
    assert table.split("\n")[0].split("  ")[-1] == "on x(40), killed by you"
    assert "on x(21), killed by us " in table
    assert "about 0.88, measured 1 iteration ago" in table
    assert "noticed after  4 ms" in table
    assert "unknown" in table
    assert table.endswith("62 iterations in all")


def test_who_was_only_silent_was_not_killed_by_the_user_who_is_not_invited_because_of_it() -> None:
    play = Play(invites=True)
    play.happens(STARTED)
    silent = {"node": "server-0", "reason": "no sign of life for 10.1 s; it hangs", "simulated": False, "killed": False}
    play.happens(Record("node_lost", silent), Record("recovery_started", {"lost_blocks": 196}))
    play.happens(Record("recovery_completed", {"kind": "partial", "iteration": 0, "perturbation": None}))
    play.trains(1, 20)
    assert "Your turn" not in play.said.text
    assert "on x(0), silent" in as_table(play.stage.losses.losses, 62)[0]


def test_nothing_lost() -> None:
    assert as_table([], 60) == ["iterations     60", "lost           nothing"]


def test_processes_are_shown_and_the_user_is_invited_once_all_is_well_again() -> None:
    play = Play(invites=True)
    play.happens(STARTED)
    assert "   server-0  100\n" in play.said.text
    play.trains(1, 21)
    assert set(play.slept_s) == {PACE_S}
    play.happens(*killed(21, ["server-2", "server-3"], 1.0))
    play.happens(Record("view_changed", {"servers": SERVERS[:2], "workers": []}))
    play.trains(22, 25)
    assert "Your turn" not in play.said.text
    play.happens(Record("node_joined", {"node": "server-4", "pid": 200, "host": "a"}))
    play.happens(Record("view_changed", {"servers": [*SERVERS[:2], "server-4", "server-5"], "workers": []}))
    play.trains(26, 27)
    assert play.said.text.count("    kill -9 100\n") == 1
    assert sum(play.slept_s[-1:]) * (INVITED_UNTIL_ITER - 26) == pytest.approx(15)
    play.happens(*killed(27, ["server-0"], 9.0, by_us=False))
    play.trains(28, 60)
    assert play.slept_s[-1] == PACE_S, "the user has done it: nothing to wait for"
    assert play.said.text.count("Your turn") == 1


def test_who_is_not_there_holds_nothing_up() -> None:
    play = Play(invites=True)
    play.happens(STARTED, *killed(21, ["server-2", "server-3"], 1.0))
    play.trains(22, 60)
    assert "Your turn" in play.said.text, "although no new server has come"
    assert play.slept_s[-1] == PACE_S, "nobody has killed anything in the time for it"


def test_without_a_terminal_nobody_is_invited_and_nothing_waits() -> None:
    play = Play(invites=False)
    play.happens(STARTED, *killed(21, ["server-2", "server-3"], 1.0))
    play.trains(22, 60)
    assert "Your turn" not in play.said.text
    assert play.slept_s == []


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo that is over at once."""

    def play(folder: Path, _: Show) -> Any:
        times = LossTimes()
        for record in killed(21, ["server-2", "server-3"], 1.0):
            times.take_in(record)
        (folder / "there").touch()
        result = SimpleNamespace(converged=True, outcome="converged", reason="below", iterations=62)
        return result, SimpleNamespace(losses=times, processes=PROCESSES)

    monkeypatch.setattr("scarml.cli.demo_servers_run.play", play)
    monkeypatch.setattr("scarml.engine.ray.connection.require_ray", lambda: None)


@pytest.mark.usefixtures("played")
def test_the_end_for_people(scarml: Scarml) -> None:
    ran = scarml("demo-kill")
    assert ran.code == 0
    assert "lost blocks    392" in ran.out
    assert "run folder: scar-runs/demo-kill-1" in ran.out
    assert "kill -9" in ran.err


@pytest.mark.usefixtures("played")
def test_the_end_for_programs(scarml: Scarml) -> None:
    ran = scarml("demo-kill", "--json", "-q", "--out", "here")
    assert (ran.code, ran.err) == (0, "")
    result = json.loads(ran.out)
    assert (result["schema_version"], result["iterations"], result["run"]) == (1, 62, "here")
    assert result["processes"] == PROCESSES
    assert result["losses"][0]["nodes"] == ["server-2", "server-3"]


@pytest.mark.usefixtures("played")
def test_a_folder_with_a_run_in_it_is_refused(scarml: Scarml, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RunExistsError

    monkeypatch.setattr("scarml.cli.demo_servers_run.play", refuse)
    ran = scarml("demo-kill", "-q", "--out", "here")
    assert (ran.code, ran.err) == (2, "scarml: error: here has a run in it; name another folder with --out\n")
    assert scarml("demo-kill", "-q").code == 2
    assert not list(Path("scar-runs").iterdir()), "nothing was trained"

from __future__ import annotations

import io
import json
import re
from contextlib import suppress

import numpy as np
import pytest
from rich.console import Console

from scarml.cli.live_view import LiveView, render
from scarml.cli.progress import JsonLines, PlainLines
from scarml.cli.run_status import Criterion, RunStatus
from scarml.cli.wording import in_words, joined, restored_from, sparkline
from scarml.control.history import Record
from scarml.storage.run_progress import SavedAges

STARTED = Record(
    "run_started",
    {"term": 1, "iteration": 0, "executed": 0, "servers": ["server-0", "server-1"], "workers": ["worker-0"]},
)


def loss(t_s: float, iteration: int) -> Record:
    return Record(
        "loss_evaluated", {"iteration": iteration, "executed": iteration, "loss_sum": 50.0 / (1 + iteration)}, t_s
    )


def status() -> RunStatus:
    return RunStatus("mlr on mnist-10k", Criterion("loss_sum", 1.0), ages=lambda: {"W": np.array([0, 3, 5])})


def test_plain_lines_are_rate_limited_but_bad_news_is_not_unless_it_is_old(capsys: pytest.CaptureFixture[str]) -> None:
    lines = PlainLines(status())
    lines.take_in(STARTED)
    for k in range(100):
        lines.take_in(loss(k / 100, k))
    lines.take_in(Record("node_lost", {"node": "server-1", "reason": "…", "simulated": True}, 1.0))
    for attempt in range(3):
        cause = f"cannot write run/.tmp/a-{attempt}: disk full"
        fields = {"save_id": 1, "node": f"server-{attempt}", "cause": cause, "attempt": attempt, "retried": True}
        lines.take_in(Record("save_failed", fields, 1.0 + attempt))
    lines.take_in(Record("save_failed", {**fields, "cause": "not permitted"}, 3.0))
    lines.take_in(loss(3.5, 100))
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 1 + 1 + 2 + 1
    assert "server-1 is LOST (simulated)" in shown[1]
    assert "disk full" in shown[2]
    assert shown[-1].endswith("loss_sum 0.49505 (done below 1), 1 server, 1 worker, 0 saves")


def test_a_log_on_a_full_disk_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        full.reconfigure(write_through=True)
        monkeypatch.setattr("sys.stderr", full)
        PlainLines(RunStatus()).say("nobody reads this")
        JsonLines(RunStatus()).take_in(Record("save_skipped", {"iteration": 3}, 0.5))
        monkeypatch.undo()
        with suppress(OSError):
            full.close()


def test_the_live_view_shows_nodes_loss_and_ages() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, no_color=True, width=130)
    s = status()
    with LiveView(s, console=console) as view:
        view.take_in(STARTED)
        view.take_in(loss(0.1, 1))
        view.take_in(Record("iteration_committed", {"iteration": 6, "commit": 6, "executed": 6}, 0.2))
        view.take_in(Record("save_committed", {"save_id": 1, "iteration": 6, "size_bytes": 3920}, 0.3))
        view.take_in(Record("node_lost", {"node": "server-1", "reason": "…", "simulated": True}, 0.4))
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert "■ ✗  1 of 2, lost: server-1" in text
    assert "server-1 is LOST (simulated)" in text
    assert "median 2, oldest 3 iterations (1 as at the start)" in text
    assert "\x1b[31m" not in out.getvalue(), "NO_COLOR"


def test_while_processes_start_time_is_seen_to_pass_and_then_their_numbers() -> None:
    def seen(since_s: float) -> str:
        console = Console(file=io.StringIO(), width=100)
        console.print(render(s, since_s))
        return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]

    s = RunStatus()
    s.take_in(Record("nodes_starting", {"n_nodes": 3}, 0.5))
    assert "x(0), starting 3 processes, 4.5 s" in seen(4.0)
    assert "none yet" in seen(4.0)
    s.is_stopping = lambda: True
    assert "starting 3 processes, and then stopping; again = at once" in seen(4.0)
    processes = [{"node": f"server-{i}", "pid": 70 + i, "host": "a"} for i in range(2)]
    s.take_in(Record(STARTED.name, {**STARTED.fields, "processes": processes}))
    assert "■ 70 ■ 71" in seen(0.0)
    s.take_in(Record("node_lost", {"node": "server-1", "reason": "…", "simulated": False}))
    assert "■ 70 ✗  1 of 2, lost: server-1" in seen(0.0)
    s.take_in(Record("node_joined", {"node": "server-2", "pid": 99, "host": "a"}))
    s.take_in(Record("view_changed", {"servers": ["server-0", "server-2"], "workers": []}))
    assert "■ 70 ■ 99  2 of 2" in seen(0.0), "replaced"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"perturbation": 0.884, "perturbation_is_exact": True, "perturbation_age_iters": 0}, "perturbation 0.884;"),
        (
            {"perturbation": 0.884, "perturbation_is_exact": False, "perturbation_age_iters": 2},
            "perturbation about 0.884, measured 2 iterations ago;",
        ),
        (
            {"perturbation": None, "perturbation_is_exact": False, "perturbation_age_iters": None},
            "perturbation unknown;",
        ),
    ],
)
def test_an_estimate_is_no_knowledge(fields, words):
    restored = {"restored": 3, "from_x0": 0, "oldest": 1, "newest": 4, "iteration": 5, "seconds": 0.1}
    record = Record("recovery_completed", {"kind": "partial", "lost_blocks": 3, **restored, **fields})
    assert words in (in_words(record, 5) or "")


@pytest.mark.parametrize(
    ("restored", "from_x0", "words"),
    [
        (125, 135, "125 blocks as saved at x(4) to x(9), 135 as at the start, 132 a moment before"),
        (257, 135, "257 blocks as saved at x(4) to x(9), 135 as at the start"),
        (0, 0, "392 blocks a moment before"),
    ],
)
def test_what_was_in_place_when_another_node_was_lost_is_counted_too(restored: int, from_x0: int, words: str) -> None:
    fields = {"kind": "partial", "lost_blocks": 392, "restored": restored, "from_x0": from_x0, "oldest": 4, "newest": 9}
    assert restored_from(fields) == words


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ({"perturbation": 0.25, "perturbation_is_exact": True}, "; perturbation 0.25 now"),
        ({"perturbation": None, "perturbation_is_exact": False}, ""),
    ],
)
def test_a_repair_is_told_with_its_work(left, words):
    record = Record("repair_completed", {"n_blocks": 392, "work_iters": 0.5, "iteration": 5, "seconds": 0.1, **left})
    assert (
        in_words(record, 5)
        == f"392 blocks mended in 0.10 s, with 0.50 of an iteration's work{words}; training goes on at x(5)"
    )


def test_training_goes_on_after_the_repair_and_not_before() -> None:
    restored = {"restored": 3, "from_x0": 0, "oldest": 4, "newest": 4, "iteration": 5, "seconds": 0.1}
    repair = Record("recovery_completed", {"kind": "repair", "lost_blocks": 3, **restored})
    assert in_words(repair, 5) == "repair recovery in 0.10 s: 3 blocks as saved at x(4); now the model mends them"
    nothing = Record("recovery_completed", {"kind": "repair", "lost_blocks": 0, **restored, "restored": 0})
    assert in_words(nothing, 5) == "repair recovery in 0.10 s: no block was lost; training goes on at x(5)"


def test_where_nothing_was_lost_nothing_was_perturbed() -> None:
    fields = {"kind": "partial", "lost_blocks": 0, "restored": 0, "from_x0": 0, "iteration": 5, "seconds": 0.1}
    record = Record("recovery_completed", {**fields, "perturbation": 0.0, "perturbation_is_exact": False})
    assert in_words(record, 5) == "partial recovery in 0.10 s: no block was lost; training goes on at x(5)"


def test_held_out_metrics_are_shown_wherever_the_loss_is(capsys: pytest.CaptureFixture[str]) -> None:
    lines = PlainLines(status())
    fields = {"iteration": 4, "executed": 4, "metrics": {"cross_entropy": 0.25, "accuracy": 0.9}}
    for record in (STARTED, Record("metrics_evaluated", fields, 0.1), loss(2.5, 5)):
        lines.take_in(record)
    assert "held out: cross_entropy 0.25, accuracy 0.9 on x(4), 2 servers" in capsys.readouterr().err
    console = Console(file=io.StringIO(), width=100)
    console.print(render(lines._status))
    assert "held out" in console.file.getvalue()  # type: ignore[attr-defined]
    told = lines._status.status()
    assert (told.metrics, told.metrics_iteration) == ({"cross_entropy": 0.25, "accuracy": 0.9}, 4)


def test_events_as_json_have_null_for_what_is_not_finite(capsys: pytest.CaptureFixture[str]) -> None:
    fields = {"iteration": 4, "executed": 4, "metrics": {"perplexity": float("inf"), "rmse": float("nan")}}
    JsonLines(status()).take_in(Record("metrics_evaluated", fields, 0.1))
    assert json.loads(capsys.readouterr().err)["metrics"] == {"perplexity": None, "rmse": None}


def test_many_nodes_are_counted() -> None:
    console = Console(file=io.StringIO(), width=80)
    s = RunStatus(servers={f"server-{i}": i > 0 for i in range(300)})
    console.print(render(s))
    assert "299 of 300 alive" in console.file.getvalue()  # type: ignore[attr-defined]


def test_store_trouble_is_shown_until_a_save_succeeds() -> None:
    s = RunStatus()
    s.take_in(Record("save_failed", {"cause": "disk full", "node": "server-0"}))
    assert s.store_trouble == "disk full"
    s.take_in(Record("save_given_up", {"cause": "disk full", "save_id": 1}))
    assert s.store_failed
    s.take_in(Record("save_committed", {"size_bytes": 1, "save_id": 2, "iteration": 3}))
    assert s.store_trouble is None


def test_ages_of_a_run_of_which_nothing_is_saved() -> None:
    assert SavedAges.of({"W": np.zeros(3, int)}, 5) == SavedAges(0, 0, 0, 3)
    assert SavedAges.of({}, 5) is None


@pytest.mark.parametrize(
    ("values", "line"),
    [([], ""), ([1.0], "▁"), ([float("nan"), 1.0, float("inf")], "▁"), ([3.0, 2.0, -1.0], "█▆▁")],
)
def test_sparkline_copes_with_anything(values: list[float], line: str) -> None:
    assert sparkline(values, 8) == line


def test_a_long_curve_is_thinned_out_and_keeps_both_ends() -> None:
    line = sparkline([float(v) for v in range(1000, 0, -1)], 16)
    assert (len(line), line[0], line[-1]) == (16, "█", "▁")


def test_joined() -> None:
    assert (joined(["a"]), joined(["a", "b"]), joined(["a", "b", "c"])) == ("a", "a and b", "a, b and c")


@pytest.mark.parametrize(
    ("name", "fields", "text"),
    [
        ("node_joined", {"node": "server-4"}, "server-4 is ready to join"),
        ("node_left", {"node": "server-4"}, "server-4 has handed over all that it held, and left"),
        ("scale_requested", {"servers": 6, "workers": None}, "wanted: 6 servers"),
        ("scale_requested", {"servers": 6, "workers": 1}, "wanted: 6 servers and 1 worker"),
        (
            "drain_requested",
            {"node": "server-4", "reason": "scarml drain"},
            "server-4 is to hand over all that it holds, and leave: scarml drain",
        ),
        (
            "request_refused",
            {"request": "drain server-9", "reason": "there is no node server-9"},
            "cannot drain server-9: there is no node server-9",
        ),
        ("handover_completed", {"moved_blocks": 1, "iteration": 3}, "1 block handed over; training goes on at x(3)"),
        ("nodes_starting", {"n_nodes": 6}, "starting 6 processes, one a node"),
        ("nodes_starting", {"n_nodes": 1}, "starting 1 process, one a node"),
        (
            "nodes_killed",
            {"iteration": 3, "processes": [{"node": "server-1", "pid": 12}, {"node": "server-2", "pid": 14}]},
            "x(3): kill -9 12 14 (server-1 and server-2), as planned",
        ),
        ("node_lost", {"node": "a", "reason": "it hangs", "simulated": True}, "x(3): a is LOST (simulated)"),
        (
            "node_lost",
            {"node": "a", "reason": "its process 7 on b has died", "simulated": False, "killed": True},
            "x(3): a is LOST (killed)",
        ),
        (
            "node_lost",
            {"node": "a", "reason": "its process 7 on b has died", "simulated": False, "killed": False},
            "x(3): a is LOST: its process 7 on b has died",
        ),
        ("node_joined", {"node": "a", "pid": 7, "host": "b"}, "a is ready to join in process 7 on b"),
        (
            "handover_started",
            {"moving_blocks": 9, "joining": ["a"], "leaving": ["b"]},
            "handing over 9 blocks: a joins, b leaves",
        ),
        ("handover_started", {"moving_blocks": 9, "joining": ["a"], "leaving": []}, "handing over 9 blocks: a joins"),
        (
            "handover_started",
            {"moving_blocks": 9, "joining": [], "leaving": ["b", "c"]},
            "handing over 9 blocks: b and c leave",
        ),
        ("handover_started", {"moving_blocks": 1, "joining": [], "leaving": []}, "handing over 1 block"),
        (
            "handover_started",
            {"moving_blocks": 0, "joining": ["worker-2"], "leaving": ["worker-1"]},
            "worker-2 joins, worker-1 leaves",
        ),
        ("handover_completed", {"moved_blocks": 0, "iteration": 3}, "training goes on at x(3)"),
        ("waiting_for_node", {"kind": "server"}, "no server is left; waiting for a new one"),
        (
            "stop_requested",
            {"reason": "scarml stop"},
            "scarml stop: stopping after this iteration, once everything is saved",
        ),
        (
            "stop_requested",
            {"reason": "signal SIGINT"},
            "signal SIGINT: stopping after this iteration, once everything is saved; again = at once",
        ),
    ],
)
def test_nodes_that_come_and_go_and_stops_in_words(name, fields, text):
    assert in_words(Record(name, fields), iteration=3) == text

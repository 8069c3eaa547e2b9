"""The command as users run it: in processes of its own, with real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.ci

TIMEOUT_S = 240
TRAIN = ["train", "mlr", "--data", "mnist-10k", "--run", "run", "--resume", "auto", "--json", "--log-format", "json"]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """Starts ``scarml`` in an empty folder; ends what is left at the end."""
    processes: list[subprocess.Popen[str]] = []

    def start(*args: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "scarml.cli", *args],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={k: v for k, v in os.environ.items() if k == "SCAR_DATA_DIR" or not k.startswith("SCAR_")},
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, json.loads(out), err


def wait_for_iteration(process: subprocess.Popen[str], iteration: int, event: str = "iteration_committed") -> None:
    assert process.stderr is not None
    for line in process.stderr:
        told = json.loads(line) if line.startswith("{") else {}
        if told.get("event") == event and told["iteration"] >= iteration:
            return
    pytest.fail(f"the run ended before {event} of x({iteration})")


@pytest.mark.soak
def test_demo_without_a_terminal(started: Any, tmp_path: Path) -> None:
    process = started("demo", "--out", "here")
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    assert "(simulated)" in err
    assert "SIGKILL" in err
    assert "\x1b" not in out + err
    for words in ("half lost, SCAR", "half lost, traditional", "process killed, SCAR", "picture: here/demo.png"):
        assert words in out
    assert (tmp_path / "here" / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "here" / "demo.svg").read_text()


def test_demo_as_json(started: Any) -> None:
    code, result, err = finish(started("demo", "--json", "-q"))
    assert (code, err) == (0, "")
    assert result["schema_version"] == 1
    runs = {run["name"]: run for run in result["runs"]}
    assert all(run["converged"] for run in runs.values())
    assert 55 <= runs["no-failure"]["iterations"] <= 65
    # Full recovery of a deterministic model costs exactly the iterations since the last full save, or, if the disk was
    # too slow for that one, since an earlier one.
    assert runs["full"]["iteration_cost"] == 5 or runs["full"]["n_skipped"]
    assert runs["full"]["digest"] == runs["no-failure"]["digest"]
    assert runs["partial"]["perturbation"] < runs["full"]["perturbation"]
    assert runs["partial"]["iteration_cost"] < runs["full"]["iteration_cost"]
    assert runs["killed"]["lost_blocks"] == 784


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_a_signal_ends_a_run_saved_and_resuming_is_as_if_it_had_never_stopped(
    started: Any, number: signal.Signals
) -> None:
    _, undisturbed, _ = finish(started(*(a if a != "run" else "undisturbed" for a in TRAIN)))
    process = started(*TRAIN)
    wait_for_iteration(process, 12)
    process.send_signal(number)
    code, stopped, err = finish(process)
    assert code == 75, err
    assert (stopped["outcome"], stopped["saved"]) == ("stopped", True)
    assert stopped["iteration"] < undisturbed["iteration"]
    assert "To go on: scarml train mlr" in err
    code, resumed, err = finish(started(*TRAIN))
    assert code == 0, err
    assert resumed["resumed_from"]["iteration"] == stopped["iteration"]
    assert resumed["iterations"] == undisturbed["iterations"]
    assert resumed["digest"] == undisturbed["digest"]


def test_after_kill_9_the_same_command_goes_on(started: Any) -> None:
    process = started(*TRAIN)
    wait_for_iteration(process, 8, "save_committed")
    process.kill()
    process.communicate()
    code, resumed, err = finish(started(*TRAIN))
    assert code == 0, err
    assert resumed["converged"]
    assert 8 <= resumed["resumed_from"]["iteration"] < resumed["iteration"]


def test_a_run_that_is_worked_on_is_refused_with_exit_code_5(started: Any) -> None:
    first = started(*TRAIN, "--pace", "1")
    wait_for_iteration(first, 2)
    second = started(*TRAIN)
    _, err = second.communicate(timeout=TIMEOUT_S)
    assert second.returncode == 5
    assert "is in use by" in err
    first.send_signal(signal.SIGTERM)
    assert finish(first)[0] == 75


@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.soak), (signal.SIGTERM, 143)]
)
def test_a_signal_ends_the_demo_and_leaves_no_child_behind(
    started: Any, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = started("demo", "--out", "here")
    for line in process.stderr:
        if "the same command again" in line:
            break
    process.send_signal(number)
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == code
    # The child owned the run until it was ended; now nobody does.
    again = started(
        "train", "mlr", "--data", "mnist-10k", "--run", "here/killed", "--resume", "must", "--max-iters", "1"
    )
    again.communicate(timeout=TIMEOUT_S)
    assert again.returncode == 3

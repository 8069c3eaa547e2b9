"""``scarml demo-kill`` and ``scarml train --engine ray`` as users run them: real processes, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")

pytestmark = pytest.mark.ci

TIMEOUT_S = 240


def start(folder: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "scarml.cli", *args],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={k: v for k, v in os.environ.items() if not k.startswith(("SCAR_", "RAY_"))},
    )


def test_two_servers_are_killed_and_the_demo_converges(tmp_path: Path) -> None:
    with start(tmp_path, "demo-kill", "--json") as process:
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["converged"]
    lost = [node for loss in result["losses"] for node in loss["nodes"]]
    assert len(lost) == 2
    assert all(loss["by_us"] and loss["detection_ms"] < 10_000 for loss in result["losses"])
    told = re.search(r"kill -9 (\d+) (\d+) ", err)
    assert told is not None
    assert {int(p) for p in told.groups()} == {p["pid"] for p in result["processes"] if p["node"] in lost}
    assert "starting 6 processes" in err
    assert "; perturbation about 0.00" in err, "an estimate"
    assert "\x1b" not in out + err
    assert "ray" not in err.replace("by way of Ray", "").replace("--engine ray", ""), "nothing of Ray's own"


@pytest.mark.soak
def test_ctrl_c_as_a_terminal_sends_it_ends_a_run_with_everything_saved(tmp_path: Path) -> None:
    args = ("train", "mlr", "--data", "mnist-10k", "--engine", "ray", "--run", "run", "--json", "--log-format", "json")
    with start(tmp_path, *args, "--servers", "2", "--workers", "1") as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if '"iteration_committed"' in line and json.loads(line)["iteration"] == 8:
                    os.killpg(process.pid, signal.SIGINT)
                    break
            out, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert process.returncode == 75, err
    stopped = json.loads(out)
    assert (stopped["outcome"], stopped["saved"], stopped["failures"]) == ("stopped", True, [])
    assert "To go on: scarml train mlr" in err

"""The demo's last run, for real: a process of its own gets SIGKILL, and the same command goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scarml.cli.demo_result import Played, Row
from scarml.cli.demo_runs import AT_ITER, DATA, SERVERS, WORKERS, criterion, row_of
from scarml.cli.demo_show import Show
from scarml.cli.progress import Progress
from scarml.cli.run_status import Criterion, RunStatus
from scarml.control.history import Record
from scarml.errors import RecoveryError

__all__ = ["command", "play_kill"]

NAME, LABEL = "killed", "process killed, SCAR"
LAST_LINES = 20


def command(folder: Path, pace_s: float) -> list[str]:
    """The arguments of ``scarml`` for both processes."""
    return [
        "train", "mlr", "--data", DATA, "--servers", str(SERVERS), "--workers", str(WORKERS), "--run", str(folder),
        "--pace", f"{pace_s:.2g}", "--resume", "auto",
    ]  # fmt: skip


def play_kill(folder: Path, show: Show) -> Played:
    """Start a training process, kill it on x(AT_ITER), start it again.

    Raises:
        RecoveryError: the second process did not finish.
    """
    status = RunStatus(f"mlr on {DATA}: {LABEL}", Criterion("loss_sum", criterion()))
    rows: list[Row] = []
    args = command(folder, show.child_pace_s)
    headline = (
        f"4 of 4: for real. This is started as a process of its own, gets SIGKILL on x({AT_ITER}), and is started "
        f"again:\n   scarml {' '.join(args)}"
    )
    with show.run(headline, status) as progress:
        done = _until_killed(args, progress, rows, status)
        progress.say(f"   killed with SIGKILL (for real) after {done} iterations; the same command again:")
        result, found = _to_the_end(args, progress, rows, status, done)
    iterations = done + result["iterations"] - found
    show.say(f"   {iterations} iterations in both processes")
    return Played(
        name=NAME,
        label=LABEL,
        rows=rows,
        converged=result["converged"],
        iterations=iterations,
        lost_blocks=sum(_resumed(result, key) for key in ("restored", "from_x0")),
        perturbation=None,
        bytes_saved=status.bytes_saved,
        digest=result["digest"],
        simulated=False,
        n_skipped=status.n_skipped,
    )


def _resumed(result: dict[str, Any], key: str) -> int:
    return int((result["resumed_from"] or {}).get(key, 0))


def _until_killed(args: list[str], progress: Progress, rows: list[Row], status: RunStatus) -> int:
    """Run the command until it reports x(AT_ITER), and kill it.

    Returns:
        The iterations that it did.
    """
    tail: list[str] = []
    with _child(args) as child:
        for record in _records(child, tail):
            progress.take_in(record)
            rows += row_of(NAME, status, record)
            if record.name == "loss_evaluated" and record["iteration"] == AT_ITER:
                child.kill()  # what it had written before that is still read
        if child.wait() >= 0:
            raise RecoveryError("the process ended by itself before it could be killed:\n" + "\n".join(tail))
    rows.append(Row(NAME, status.executed, status.iteration, status.losses[-1], "killed"))
    return status.executed


def _to_the_end(
    args: list[str], progress: Progress, rows: list[Row], status: RunStatus, done: int
) -> tuple[dict[str, Any], int]:
    """Run the command again. Returns its result, and the iterations that it found done."""
    found = -1
    tail: list[str] = []
    with _child(args) as child:
        for record in _records(child, tail):
            progress.take_in(record)
            if record.name == "run_started":
                found = status.executed
            rows += row_of(NAME, status, record, done - found)
        assert child.stdout is not None
        answer = child.stdout.read()
        if child.wait() != 0:
            raise RecoveryError("the process that goes on failed:\n" + "\n".join(tail))
    return json.loads(answer), found


@contextmanager
def _child(args: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A training process. However the block ends, the process is gone then."""
    from scarml.data.location import DATA_DIR_VARIABLE

    environment = {k: v for k, v in os.environ.items() if not k.startswith("SCAR_") or k == DATA_DIR_VARIABLE}
    child = subprocess.Popen(
        [sys.executable, "-m", "scarml.cli", *args, "--json", "--log-format", "json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        try:
            yield child
        finally:
            child.kill()


def _records(child: subprocess.Popen[str], tail: list[str]) -> Iterator[Record]:
    """What the process tells on stderr; lines that are no records are kept in ``tail``."""
    assert child.stderr is not None
    for line in child.stderr:
        try:
            fields = json.loads(line)
            yield Record(fields.pop("event"), fields, fields.pop("t_s"))
        except (ValueError, KeyError, TypeError, AttributeError):
            tail.append(line.rstrip())
            del tail[:-LAST_LINES]

"""``scarml demo-kill``: real server processes get SIGKILL while training goes on; ``scarml demo`` simulates it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scarml.storage.json_text import to_json_text

if TYPE_CHECKING:
    from scarml.cli.demo_servers_run import Stage
    from scarml.result import Result

__all__ = ["demo_kill"]

SCHEMA_VERSION = 1

INTRODUCTION = """\
SCAR: training that goes on when machines die. This time they really do.

Multinomial logistic regression on the 10,000 MNIST images that come with SCAR. {servers} servers hold the 784 rows of
parameters and {workers} workers compute, each in a process of its own. Training is done when the loss, summed over the
images, is below {criterion:,}. On x({at}) two servers get kill -9: what they held is gone from memory, its newest saved
values are loaded by the servers that are left, and training goes on. Then new processes join.
"""


def demo_kill(
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Run folder (default: a new one, scar-runs/demo-kill-N)")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one JSON object on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress, and no invitation to kill.")] = False,
) -> int:
    """Train with servers and workers in processes of their own, and kill -9 two of the servers; you may kill one too.

    Needs Ray (pip install 'scarml[ray]'), which is started on this machine for as long as the demo lasts.
    """
    from scarml.cli.demo_losses import as_table
    from scarml.cli.demo_runs import AT_ITER, SERVERS, WORKERS, criterion
    from scarml.cli.demo_servers_run import play
    from scarml.cli.demo_show import Show
    from scarml.cli.exit_codes import DONE, NOT_CONVERGED
    from scarml.cli.run_name import run_folder
    from scarml.engine.ray.connection import require_ray
    from scarml.errors import RunExistsError, UsageError

    require_ray()
    signal.signal(signal.SIGTERM, _exit_on_sigterm)
    show = Show(quiet)
    show.say(INTRODUCTION.format(servers=SERVERS, workers=WORKERS, at=AT_ITER, criterion=criterion()))
    with run_folder(str(out) if out else None, "demo-kill", None) as folder:
        try:
            result, stage = play(Path(folder), show)
        except RunExistsError:
            raise UsageError(f"{folder} has a run in it; name another folder with --out") from None
    if as_json:
        print(to_json_text(_to_json(result, stage, str(folder))))
    else:
        print(
            "\n".join(["", f"{result.outcome}: {result.reason}", "", *as_table(stage.losses.losses, result.iterations)])
        )
        print(f"run folder: {folder}")
    show.say("Next: scarml train mlr --data mnist-10k --engine ray --replace --kill servers:2@21")
    return DONE if result.converged else NOT_CONVERGED


def _to_json(result: Result, stage: Stage, folder: str) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "converged": result.converged,
        "iterations": result.iterations,
        "processes": stage.processes,
        "losses": [loss.to_json() for loss in stage.losses.losses],
        "run": folder,
    }


def _exit_on_sigterm(number: int, _: Any) -> None:
    """By way of an exception, so that all processes are ended on the way out."""
    sys.exit(128 + number)

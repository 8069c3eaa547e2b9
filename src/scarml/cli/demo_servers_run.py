"""The run of ``scarml demo-kill``: real processes, two of which we kill, and one that the user may."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scarml.checkpoint.selection import Checkpoint
from scarml.cli.demo_losses import LossTimes
from scarml.cli.demo_runs import AT_ITER, DATA, SERVERS, WORKERS, criterion
from scarml.cli.demo_show import Show
from scarml.cli.progress import Progress
from scarml.cli.run_status import Criterion, RunStatus
from scarml.control.history import Record
from scarml.control.stop import Stop
from scarml.engine.fault_plan import Kill
from scarml.models import registry

if TYPE_CHECKING:
    from scarml.result import Result

__all__ = ["KILLED", "Stage", "play"]

KILLED = 2
MAX_ITERS = 200
PACE_S = 0.1
"""On a terminal, for the eye."""
INVITED_S = 15.0
"""For so long the user can kill a process, while training goes on slowly."""
INVITED_UNTIL_ITER = 52
"""Some iterations before the run converges, so that what a kill comes to is seen."""


class Stage:
    """Directs what happens, as records come in: when to wait for the eye, and when to invite the user.

    Args:
        show: says things.
        invites: whether somebody is there who could kill a process.
        sleep: lets time pass.
    """

    def __init__(self, show: Show, invites: bool, sleep: Any = time.sleep) -> None:
        self.losses = LossTimes()
        self.processes: list[Mapping[str, Any]] = []
        self._show = show
        self._invites = invites
        self._sleep = sleep
        self._pace_s = PACE_S if invites else 0.0
        self._servers: list[str] = []
        self._has_killed = self._has_recovered = False

    def take_in(self, record: Record, progress: Progress) -> None:
        """Something has happened."""
        self.losses.take_in(record)
        f = record.fields
        match record.name:
            case "run_started":
                self.processes = list(f["processes"])
                self._servers = list(f["servers"])
                progress.say("\n".join(_processes(self.processes)))
            case "nodes_killed":
                self._has_killed = True
            case "view_changed":
                self._servers = list(f["servers"])
            case "node_joined":
                self.processes.append({k: f.get(k) for k in ("node", "pid", "host")})
            case "node_lost":
                if not f.get("killed"):
                    self._pace_s = min(self._pace_s, PACE_S)  # the user has done it: nothing to wait for
            case "recovery_completed":
                self._has_recovered = self._has_killed
            case "loss_evaluated":
                self._invite_once(f["iteration"], progress)
                self._wait(f["iteration"])

    def _invite_once(self, iteration: int, progress: Progress) -> None:
        is_whole_again = len(self._servers) == SERVERS or iteration > AT_ITER + 15
        if not (self._invites and self._has_recovered and is_whole_again and iteration < INVITED_UNTIL_ITER):
            return
        self._invites = False
        victim = next(p for p in self.processes if p["node"] == self._servers[0])
        self._pace_s = INVITED_S / (INVITED_UNTIL_ITER - iteration)
        progress.say(
            f"\n   Your turn: kill one too. In another terminal, within {INVITED_S:.0f} seconds:\n\n"
            f"       kill -9 {victim['pid']}\n\n"
            f"   That is {victim['node']}; the process of any other server or worker will do.\n"
        )

    def _wait(self, iteration: int) -> None:
        if iteration == INVITED_UNTIL_ITER:
            self._pace_s = min(self._pace_s, PACE_S)
        if self._pace_s:
            self._sleep(self._pace_s)


def play(folder: Path, show: Show) -> tuple[Result, Stage]:
    """Train to the end on a Ray of our own on this machine.

    Raises:
        UsageError: Ray is not installed.
    """
    from scarml.job import Job

    status = RunStatus(f"mlr on {DATA}: processes killed", Criterion("loss_sum", criterion()))
    stage = Stage(show, invites=show.on_terminal)

    def on_event(record: Record) -> None:
        progress.take_in(record)
        stage.take_in(record, progress)

    job = Job(
        registry.create(registry.model_class("mlr"), DATA),
        DATA,
        servers=SERVERS,
        workers=WORKERS,
        engine="ray",
        ray_address="local",  # what is killed, and what the user may kill, is our own and on this machine
        replace=True,
        checkpoint=Checkpoint(policy="priority", fraction="1/8", interval_iters=8, recovery="partial"),
        stop=Stop(loss_sum_below=criterion(), max_iters=MAX_ITERS),
        run=folder,
        kills=(Kill("servers", KILLED, AT_ITER),),
        on_event=on_event,
    )
    status.ages = job.saved_iterations
    with show.run(
        "real processes on this machine, by way of Ray; starting them takes some seconds", status
    ) as progress:
        result = job.run()
    return result, stage


def _processes(processes: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table of who is where."""
    width = max(len(p["node"]) for p in processes)
    return ["", f"   {'node':<{width}}  process", *(f"   {p['node']:<{width}}  {p['pid']}" for p in processes), ""]

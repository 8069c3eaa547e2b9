"""The demo's runs in this process: without failures, and the same failure with both kinds of recovery."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scarml.checkpoint.selection import Checkpoint
from scarml.cli.demo_result import Played, Row
from scarml.cli.demo_show import Show
from scarml.cli.run_status import Criterion, RunStatus
from scarml.control.history import Record
from scarml.control.stop import Stop
from scarml.engine.fault_plan import Kill
from scarml.models import registry

__all__ = ["AT_ITER", "DATA", "SERVERS", "STORIES", "WORKERS", "Story", "criterion", "play"]

DATA = "mnist-10k"
SERVERS, WORKERS = 4, 2
AT_ITER = 21

PRIORITY = Checkpoint(policy="priority", fraction="1/8", interval_iters=8, recovery="partial")
TRADITIONAL = Checkpoint(policy="full", fraction=1, interval_iters=8, recovery="full")


@dataclass(frozen=True, slots=True)
class Story:
    """One run of the demo.

    Args:
        name: of its folder and in tables.
        label: for people.
        headline: shown above its progress.
        checkpoint: its settings.
        kills: what it loses.
    """

    name: str
    label: str
    headline: str
    checkpoint: Checkpoint
    kills: tuple[Kill, ...] = ()


STORIES = (
    Story("no-failure", "no failure", "1 of 4: no failure", PRIORITY),
    Story(
        "partial",
        "half lost, SCAR",
        "2 of 4: half of the servers are lost (simulated); SCAR: the 98 rows that changed most are saved in every "
        "iteration,\n   and only what was lost is restored",
        PRIORITY,
        (Kill("servers", SERVERS // 2, AT_ITER),),
    ),
    Story(
        "full",
        "half lost, traditional",
        "3 of 4: the same servers are lost (simulated); the traditional way: everything is saved every 8 iterations,\n"
        "   the same bytes, and everything is set back",
        TRADITIONAL,
        (Kill("servers", SERVERS // 2, AT_ITER),),
    ),
)


def criterion() -> float:
    """The summed loss below which training is done."""
    value = registry.defaults_for(registry.model_class("mlr"), DATA).stop_loss_sum
    assert value is not None
    return value


def play(story: Story, folder: Path, show: Show) -> Played:
    """Run one story to its end."""
    from scarml.job import Job

    status = RunStatus(f"mlr on {DATA}: {story.label}", Criterion("loss_sum", criterion()))
    rows: list[Row] = []

    def on_event(record: Record) -> None:
        progress.take_in(record)
        rows.extend(row_of(story.name, status, record))
        show.pace(record)

    job = Job(
        registry.create(registry.model_class("mlr"), DATA),
        DATA,
        servers=SERVERS,
        workers=WORKERS,
        checkpoint=story.checkpoint,
        stop=Stop(loss_sum_below=criterion(), max_iters=200),
        run=folder,
        kills=story.kills,
        on_event=on_event,
    )
    status.ages = job.saved_iterations
    with show.run(story.headline, status) as progress:
        result = job.run()
    show.say(f"   {result.iterations} iterations")
    return Played(
        name=story.name,
        label=story.label,
        rows=rows,
        converged=result.converged,
        iterations=result.iterations,
        lost_blocks=sum(r["lost_blocks"] for r in result.recoveries) if story.kills else None,
        perturbation=result.recoveries[-1]["perturbation"] if result.recoveries else None,
        bytes_saved=result.bytes_saved,
        digest=result.digest,
        simulated=bool(story.kills),
        n_skipped=status.n_skipped,
    )


def row_of(run: str, status: RunStatus, record: Record, iterations_before: int = 0) -> list[Row]:
    """The row that a record adds to the table of curves, if it adds one.

    Args:
        run: name of the run.
        status: it has taken in the record.
        record: the record.
        iterations_before: done by a process before this one, minus those that it found.
    """
    if record.name not in ("loss_evaluated", "node_lost", "recovery_completed"):
        return []
    event = "" if record.name == "loss_evaluated" else record.name
    if not status.losses or record.fields.get("kind") == "start":
        return []
    return [Row(run, status.executed + iterations_before, status.iteration, status.losses[-1], event)]

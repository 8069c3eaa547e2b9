"""``scarml rollback``: give up what a run did after its last full save."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from scarml.storage.json_text import to_json_text

if TYPE_CHECKING:
    from scarml.storage.rollback import Rollback

__all__ = ["rollback"]

SCHEMA_VERSION = 1


def rollback(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of the run.")],
    to_full: Annotated[
        bool, typer.Option("--to-full", help="Go back to the last complete full save (the only choice so far).")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> int:
    """Let a run start again from its last complete full save, and give up for good what it saved after that.

    Example: scarml rollback runs/mf --to-full

    Needs a run with --policy full, which nobody is working on. Afterwards scarml train … --resume auto goes on from
    there.
    """
    from scarml.cli.open_run import open_run
    from scarml.errors import UsageError
    from scarml.storage.rollback import roll_back

    if not to_full:
        raise UsageError("say where to go back to: --to-full, the last complete full save")

    def confirm(plan: Rollback) -> bool:
        return yes or _ask(run, plan)

    done = roll_back(open_run(run), confirm)
    if as_json:
        print(to_json_text(_to_json(run, done)))
    else:
        print(_in_words(run, done))
    return 0


def _ask(run: str, plan: Rollback) -> bool:
    from scarml.errors import UsageError

    if not sys.stdin.isatty():
        raise UsageError(f"{_stakes(plan)}; nothing was done: confirm with --yes")
    print(f"{run}: {_stakes(plan)}. This cannot be undone.", file=sys.stderr)
    return typer.confirm("Go back?", err=True)


def _stakes(plan: Rollback) -> str:
    lost = plan.newest.iteration - plan.unit.iteration
    return (
        f"it stands at iteration {plan.newest.iteration}, and its last complete full save is of iteration "
        f"{plan.unit.iteration}: going back gives up {lost} iteration{'' if lost == 1 else 's'}"
    )


def _in_words(run: str, done: Rollback) -> str:
    if done.term is not None:
        return (
            f"{run} is back at iteration {done.unit.iteration} (it was at {done.newest.iteration}); "
            "--resume auto goes on from there"
        )
    if done.changes_nothing:
        return f"{run} stands at its last complete full save, of iteration {done.unit.iteration}: nothing to give up"
    return f"{run} is left as it is, at iteration {done.newest.iteration}"


def _to_json(run: str, done: Rollback) -> dict[str, object]:
    return {
        "schema_version": SCHEMA_VERSION,
        "run": run,
        "rolled_back": done.term is not None,
        "iteration_before": done.newest.iteration,
        "iteration": done.unit.iteration if done.term is not None else done.newest.iteration,
        "full_save": {"term": done.unit.term, "commit": done.unit.commit, "iteration": done.unit.iteration},
        "term": done.term,
    }

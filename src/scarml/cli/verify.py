"""``scarml verify``: read a whole run, and compare every checksum."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scarml.storage.json_text import to_json_text

if TYPE_CHECKING:
    from scarml.storage.findings import Finding, OnProgress, Verification

__all__ = ["verify"]

SCHEMA_VERSION = 1
_MOST_LINES = 20
"""For each object; of more there is only the number."""


def verify(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of the run.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> int:
    """Read everything that counts in a run and compare every checksum; exit code 4 if anything is damaged.

    Example: scarml verify runs/mf

    Changes nothing, and may be used while the run is going on.
    """
    from scarml.cli.exit_codes import DONE, STORE
    from scarml.cli.open_run import store_of_run
    from scarml.storage.verification import verify

    with _progress() as on_progress:
        result = verify(store_of_run(run), on_progress)
    if as_json:
        print(to_json_text(_to_json(run, result)))
    else:
        for line in _in_lines(run, result):
            print(line)
    return STORE if result.damaged else DONE


@contextmanager
def _progress() -> Iterator[OnProgress]:
    """A bar on a terminal; nothing elsewhere."""
    from scarml.cli.progress import is_terminal

    if not is_terminal():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("verifying", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _to_json(run: str, result: Verification) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "run": run, "is_clean": not result.damaged, **dataclasses.asdict(result)}


def _in_lines(run: str, result: Verification) -> Iterator[str]:
    from scarml.cli.wording import counted

    for _, group in groupby(result.damaged, lambda f: (f.name, f.table)):
        yield from _of_one_object("DAMAGED", list(group))
    for finding in result.notes:
        yield f"note     {finding.name}: {finding.problem}"
    read = (
        f"{counted(result.n_segments, 'segment')} with {counted(result.n_blocks, 'block')} "
        f"({result.read_bytes:,} bytes), {counted(result.n_units, 'full save')}, {counted(result.n_terms, 'term')}"
    )
    if result.damaged:
        n = len({f.name for f in result.damaged})
        yield f"{run}: {counted(n, 'object')} damaged; read: {read}"
    else:
        yield f"{run}: every checksum is right; read: {read}"


def _of_one_object(label: str, findings: list[Finding]) -> Iterator[str]:
    for f in findings[:_MOST_LINES]:
        problem = f.problem if f.name in f.problem else f"{f.name}: {f.problem}"
        yield f"{label:<8} {problem}{_instead(f)}"
    if len(findings) > _MOST_LINES:
        yield f"{label:<8} {findings[0].name}: {len(findings) - _MOST_LINES} more, see --json"


def _instead(f: Finding) -> str:
    if f.block is None:
        return ""
    if f.other_copy is None:
        return "; there is no other copy, so x(0) is used"
    age = "a newer" if f.other_copy.is_newer else "an older"
    return f"; {age} good copy is used, of iteration {f.other_copy.iteration}, in {f.other_copy.segment}"

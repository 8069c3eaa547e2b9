"""``scarml status``: how a run is doing, seen from elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from scarml.storage.json_text import to_json_text

if TYPE_CHECKING:
    from scarml.cli.run_report import RunReport
    from scarml.storage.store import Store

__all__ = ["status"]

WATCH_S = 2.0
now_unix_s = time.time


def status(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of the run.")],
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again and again, until the run ends.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object instead of text; with --watch one for each look.")
    ] = False,
) -> None:
    """Show how a run is doing: iteration, loss, nodes, saves, who works on it; or how it ended.

    Example: scarml status runs/mf --watch

    Changes nothing. What it shows is what the run itself put into its folder, every two seconds at most.
    """
    from scarml.cli.open_run import store_of_run

    store = store_of_run(run)
    with _shown(as_json, watch) as show:
        report = _look(store, run)
        show(report)
        while watch and report.is_going_on:
            if wait(WATCH_S):
                return
            report = _look(store, run)
            show(report)


def wait(seconds: float) -> bool:
    """Let time pass; whether the user has had enough (Ctrl-C)."""
    try:
        return Event().wait(seconds)
    except KeyboardInterrupt:
        return True


def _look(store: Store, run: str) -> RunReport:
    from scarml.cli.run_report import report_on

    return report_on(store, run, now_unix_s())


@contextmanager
def _shown(as_json: bool, watch: bool) -> Iterator[Callable[[RunReport], None]]:
    """A panel on a terminal, which is kept up to date; lines elsewhere; or JSON."""
    from scarml.cli.run_report_view import in_lines, panel

    if as_json:
        yield lambda report: print(to_json_text(report.to_json()), flush=True)
    elif not sys.stdout.isatty():
        yield lambda report: print("\n".join([*in_lines(report), *([""] if watch else [])]), flush=True)
    else:
        from rich.console import Console
        from rich.live import Live

        console = Console(highlight=False)
        if not watch:
            yield lambda report: console.print(panel(report))
            return
        with Live(console=console, auto_refresh=False) as live:
            yield lambda report: live.update(panel(report), refresh=True)

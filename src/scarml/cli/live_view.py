"""The live view on a terminal: where the run stands, below the lines that scroll by."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from scarml.cli.old_news import OldNews
from scarml.cli.progress import as_plain_text
from scarml.cli.run_status import RunStatus
from scarml.cli.wording import Tone, counted, in_words, sparkline, tone_of
from scarml.control.history import Record

__all__ = ["LiveView", "render"]

SPARKLINE_WIDTH = 32
REFRESHES_A_SECOND = 8
MOST_NODES_SHOWN = 24
MOST_PIDS_SHOWN = 8

_STYLES: Mapping[Tone, str] = {"good": "green", "bad": "bold red", "plain": ""}


class LiveView:
    """Keeps a panel at the bottom of the terminal up to date.

    Args:
        status: is kept up to date, and shown.
        verbose: a line for every record.
        console: where; by default stderr. Colours follow ``NO_COLOR``.
    """

    def __init__(self, status: RunStatus, verbose: bool = False, console: Console | None = None) -> None:
        self._status = status
        self._verbose = verbose
        self._old = OldNews()
        self._console = console or Console(stderr=True, highlight=False)
        self._heard_at_s = time.monotonic()
        self._is_over = False
        self._live = Live(self, console=self._console, refresh_per_second=REFRESHES_A_SECOND)

    def __enter__(self) -> LiveView:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __rich__(self) -> RenderableType:
        return render(self._status, 0.0 if self._is_over else time.monotonic() - self._heard_at_s)

    def take_in(self, record: Record) -> None:
        """Scroll a line by if it deserves one; the panel follows by itself."""
        self._heard_at_s, self._is_over = time.monotonic(), record.name == "run_finished"
        self._status.take_in(record)
        text = in_words(record, self._status.iteration)
        if text is not None:
            if self._verbose or not self._old.has(record):
                self._console.print(Text(f"{record.t_s:6.2f} s  {text}", style=_STYLES[tone_of(record)]))
        elif self._verbose:
            self._console.print(Text(f"{record.t_s:6.2f} s  {as_plain_text(record)}", style="dim"))
        if record.name in ("node_lost", "recovery_completed", "run_finished"):
            self._live.refresh()

    def say(self, text: str) -> None:
        """A line above the panel."""
        self._console.print(Text(text))


def render(status: RunStatus, since_s: float = 0.0) -> RenderableType:
    """The panel.

    Args:
        status: what records have said.
        since_s: time that has gone by since the last of them: while processes start there are none for seconds.
    """
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_row("state", _state(status, since_s))
    grid.add_row("loss", _loss(status))
    if status.metrics:
        grid.add_row("held out", status.metrics_in_words())
    grid.add_row("servers", _nodes(status.servers, status.pids))
    grid.add_row("workers", _nodes(status.workers, status.pids))
    grid.add_row("checkpoint", _checkpoint(status))
    if status.store_trouble:
        grid.add_row("store", Text(status.store_trouble, style=_STYLES["bad"]))
    return Panel(grid, title=status.title, title_align="left", expand=True, border_style="dim")


def _state(s: RunStatus, since_s: float) -> Text:
    done = f", {s.executed} iterations done" if s.executed != s.iteration else ""
    return Text(f"x({s.iteration}){done}, {s.activity_in_words()}, {s.t_s + since_s:.1f} s")


def _loss(s: RunStatus) -> Text:
    return Text.assemble((sparkline(s.losses, SPARKLINE_WIDTH), "cyan"), "  ", s.loss_in_words())


def _nodes(nodes: Mapping[str, bool], pids: Mapping[str, int]) -> Text:
    if not nodes:
        return Text("none yet", style="dim")
    alive = sum(nodes.values())
    if len(nodes) > MOST_NODES_SHOWN:
        return Text(f"{alive} of {len(nodes)} alive", style="" if alive == len(nodes) else "bold red")
    text = Text()
    for name, is_alive in nodes.items():
        text.append("■ " if is_alive else "✗ ", style="green" if is_alive else "bold red")
        if name in pids and len(nodes) <= MOST_PIDS_SHOWN:
            text.append(f"{pids[name]} ", style="dim")
    lost = [name for name, is_alive in nodes.items() if not is_alive]
    text.append(f" {alive} of {len(nodes)}" + (f", lost: {', '.join(lost)}" if lost else ""))
    return text


def _checkpoint(s: RunStatus) -> Text:
    if not s.n_saves:
        return Text("x(0); nothing saved yet")
    text = f"{counted(s.n_saves, 'save')}, {s.bytes_saved:,} bytes"
    if s.saved_ages is not None and s.saved_ages.n_saved:
        a = s.saved_ages
        text += f"; age of blocks: median {a.median}, oldest {a.oldest} iterations"
        if a.n_saved < a.n_blocks:
            text += f" ({a.n_blocks - a.n_saved:,} as at the start)"
    return Text(text)

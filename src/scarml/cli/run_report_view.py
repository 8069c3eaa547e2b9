"""A report on a run, for people: lines, or a panel on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from scarml.cli.run_report import RunReport
from scarml.cli.wording import counted, metrics_in_words

if TYPE_CHECKING:
    from rich.console import RenderableType

    from scarml.storage.live_status import NodeStatus, SavesStatus

__all__ = ["in_lines", "panel"]

_MOST_NODES = 48
_Row = tuple[str, str, str]
"""Label, text and style."""


def in_lines(report: RunReport) -> Iterator[str]:
    """Plain lines."""
    yield f"{'run':<11} {report.run}"
    for label, text, _ in _rows(report):
        yield f"{label:<11} {text}"
    for node in _shown(report):
        yield f"{node.name:<11} {_state(node)}{f', {_where(node)}' if _where(node) else ''}"


def panel(report: RunReport) -> RenderableType:
    """For a terminal."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(ratio=1)
    for label, text, style in _rows(report):
        grid.add_row(label, Text(text, style=style))
    parts: list[RenderableType] = [grid]
    shown = _shown(report)
    if shown:
        nodes = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for heading in ("node", "state", "process"):
            nodes.add_column(heading, no_wrap=True)
        for node in shown:
            nodes.add_row(node.name, Text(_state(node), style="green" if node.alive else "bold red"), _where(node))
        parts += [Text(), nodes]
    return Panel(Group(*parts), title=Text(report.run), title_align="left", border_style="dim")


def _rows(r: RunReport) -> Iterator[_Row]:
    is_now = r.is_alive and r.is_current
    yield "owner", *_owner(r)
    if r.problem is not None:
        yield "status", r.problem, "bold red"
    yield "state", _progress(r), ""
    if r.status is not None:
        for name, value in r.status.loss.items():
            yield "loss", f"{name} {value:,.6g}", ""
        if r.status.metrics:
            yield "held out", metrics_in_words(r.status.metrics, r.status.metrics_iteration), ""
        for kind in ("server", "worker"):
            nodes = r.nodes(kind)
            if nodes:
                alive = sum(n.alive for n in nodes)
                text = f"{alive} of {len(nodes)} {'alive' if is_now else 'were alive'}"
                yield f"{kind}s", text, "bold red" if is_now and alive < len(nodes) else ""
        yield "saved", _saved(r.status.saves, r.status.iteration), ""
        if r.status.saves.trouble is not None:
            yield "store", r.status.saves.trouble, "bold red"
    if r.owner is not None and r.owner.state == "ended" and r.history is not None and r.history.outcome is not None:
        yield "outcome", f"{r.history.outcome}, {r.history.reason}", ""


def _owner(r: RunReport) -> tuple[str, str]:
    if r.owner is None:
        return "nobody works on it, and nobody ever did", "bold"
    if r.owner.state == "ended":
        return f"nobody works on it; the last was {r.owner.name}, which has ended", "bold"
    heard = "gave no sign of life" if r.owner.silent_s is None else f"last sign of life {_ago(r.owner.silent_s)}"
    if r.owner.state == "alive":
        return f"{r.owner.name}: {heard}", ""
    return f"nobody seems to work on it: {r.owner.name}: {heard}; it was probably killed", "bold red"


def _progress(r: RunReport) -> str:
    if r.status is not None:
        s = r.status
        done = f", {counted(s.executed, 'iteration')} done" if s.executed != s.iteration else ""
        doing = f", {s.activity}" if r.is_alive and r.is_current else ""
        earlier = "" if r.is_current else "; so it said in an earlier start, and nothing since"
        return f"x({s.iteration}){done}{doing}; as of {_ago(r.as_of_s or 0.0)}{earlier}"
    if r.history is None or not r.history.starts:
        return "nothing is known yet"
    return f"x({r.history.iteration}) at least, by the event log, which is written with saves"


def _ago(seconds: float) -> str:
    for unit, unit_s in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:,.0f} {unit} ago"
    return f"{seconds:,.0f} s ago"


def _saved(saves: SavesStatus, iteration: int) -> str:
    if not saves.n:
        return "nothing yet in this start"
    text = f"{counted(saves.n, 'save')}, {saves.size_bytes:,} bytes"
    if saves.iteration is not None:
        text += f", the newest of x({saves.iteration}), {counted(max(iteration - saves.iteration, 0), 'iteration')} ago"
    if saves.median_age_iters is not None and saves.oldest_age_iters is not None:
        text += f"; age of blocks: median {saves.median_age_iters}, oldest {saves.oldest_age_iters} iterations"
    return text


def _shown(r: RunReport) -> Sequence[NodeStatus]:
    """The nodes that deserve a line: all, or of very many those that are not alive."""
    nodes = r.status.nodes if r.status is not None and r.is_going_on and r.is_current else ()
    return nodes if len(nodes) <= _MOST_NODES else [n for n in nodes if not n.alive][:_MOST_NODES]


def _state(node: NodeStatus) -> str:
    return "alive" if node.alive else "LOST"


def _where(node: NodeStatus) -> str:
    words = [f"process {node.pid}"] if node.pid is not None else []
    return " ".join([*words, *([f"on {node.host}"] if node.host is not None else [])])

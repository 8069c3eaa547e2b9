"""What each addition is worth at the same bytes, from the rows of ``scarml figure beyond`` alone."""

from __future__ import annotations

from collections.abc import Sequence

from scarml.experiments.marked_page import table_row
from scarml.experiments.panels import BEYOND
from scarml.experiments.results import TrialRow
from scarml.experiments.summary import reduction_text, summarise, trials_text

__all__ = ["tables"]

_COLUMNS = {
    "`priority` 1/8": "priority-1-8-partial",
    "of the bytes": "priority-1-8-of-bytes-partial",
    "bfloat16": "bfloat16",
    "narrow": "narrow",
    "per byte": "per-byte",
    "phase-aware": "phase-aware",
    "`repair`": "priority-1-8-repair",
    "general": "general",
    "general, `repair`": "general-repair",
}
"""By title the strategy."""


def tables(rows: Sequence[TrialRow]) -> str:
    """Reductions of the cost against full checkpoint and full recovery, in Markdown: lag 0, then lag 1."""
    cells = {(c.panel, c.strategy, c.lag_commits): c for c in summarise(rows)}
    names = [*BEYOND, *sorted({r.panel for r in rows} - set(BEYOND))]
    known = [name for name in names if any(key[0] == name for key in cells)]

    def of_lag(lag: int, columns: dict[str, str]) -> str:
        lines = [table_row([f"lag {lag}", "trials", *columns]), table_row(["---"] + ["---:"] * (len(columns) + 1))]
        for name in known:
            found = [cells.get((name, strategy, lag)) for strategy in columns.values()]
            title = BEYOND[name].title if name in BEYOND else name
            lines.append(table_row([title, trials_text(found), *map(reduction_text, found)]))
        return "\n".join(lines)

    return f"{of_lag(0, _COLUMNS)}\n\n{of_lag(1, {**_COLUMNS, 'floor': 'floor'})}"

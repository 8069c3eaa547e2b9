"""What each addition is worth at the same bytes, from the rows of ``scarml figure beyond`` alone.

    python -m scarml.experiments.beyond_table --results docs/results/beyond --page docs/reproduction.md

The page has the lines ``<!-- beyond: begin -->`` and ``<!-- beyond: end -->``; the tables go between them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from scarml.errors import ScarError, UsageError
from scarml.experiments.headline import reduction_text
from scarml.experiments.marked_page import replace_marked, table_row
from scarml.experiments.panels import BEYOND
from scarml.experiments.results import TrialRow, read_folder
from scarml.experiments.summary import summarise, trials_text

__all__ = ["main", "tables"]

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
    """Reductions of the cost against full checkpoint and full recovery, in Markdown: lag 0, then lag 1.

    Raises:
        UsageError: if there are no rows.
    """
    if not rows:
        raise UsageError("there are no results; run scarml figure beyond first")
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


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m scarml.experiments.beyond_table", description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="folder of the figure's results")
    parser.add_argument("--page", type=Path, help="page whose marked part is replaced")
    given = parser.parse_args(argv)
    try:
        text = tables(read_folder(given.results))
        if given.page is not None:
            given.page.write_text(replace_marked(given.page.read_text(), "beyond", text))
    except ScarError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What failures that come one after another cost, from the rows of ``scarml figure repeated-failures`` alone.

`scarml.experiments.headline` writes the table into a page. Beside full recovery stands what Daly's model of a run's
time expects it to cost, with saves that take no time.
"""

from __future__ import annotations

from collections.abc import Sequence

from scarml.experiments.marked_page import table_row
from scarml.experiments.panels import PANELS
from scarml.experiments.repeated_rows import RepeatedRow, RepeatedSummary, summarise
from scarml.experiments.strategy import full
from scarml.experiments.summary import REFERENCE, trials_text
from scarml.theory.run_time import RunTimeModel

__all__ = ["expected_full_cost", "table"]

_COLUMNS = {
    "full recovery": (REFERENCE, 0),
    "partial recovery": ("full-partial", 0),
    "`priority` 1/8": ("priority-1-8-partial", 0),
    "general": ("general", 0),
    "full recovery, lag 1": (REFERENCE, 1),
    "floor, lag 1": ("floor", 1),
}
"""By title the strategy and its lag."""
_INTERVAL_ITERS = full().checkpoint.interval_iters
_NO_TIME = 1e-9
"""Of a save, in iterations."""


def expected_full_cost(n_iters: float, interval_iters: float, rate_per_baseline: float) -> float:
    """Iterations that full recovery costs a run in all, by the model of `scarml.theory.run_time`.

    Args:
        n_iters: the baseline's length.
        interval_iters: C, between complete saves.
        rate_per_baseline: failures expected in as many iterations as the baseline takes.

    Example:
        >>> round(expected_full_cost(60, 8, 1), 1), round(expected_full_cost(60, 8, 8), 1)
        (4.2, 47.2)
    """
    model = RunTimeModel(solve_s=n_iters, dump_s=_NO_TIME, mtbf_s=n_iters / rate_per_baseline)
    return float(model.expected(interval_iters).rework_s)


def table(rows: Sequence[RepeatedRow]) -> str:
    """Mean costs with 95 % intervals, in Markdown. Where runs were given up, "≥", and how many."""
    cells = {(c.panel, c.rate_per_baseline, c.strategy, c.lag_commits): c for c in summarise(rows)}
    lines = [
        table_row(["", "failures expected", "runs", "full recovery, by Daly's model", *_COLUMNS]),
        table_row(["---"] + ["---:"] * (3 + len(_COLUMNS))),
    ]
    for name in PANELS:
        firsts = {r.rate_per_baseline: r for r in rows if r.panel == name}
        for rate, first in sorted(firsts.items()):
            found = [cells.get((name, rate, *key)) for key in _COLUMNS.values()]
            texts = [
                PANELS[name].title,
                f"{rate:g}",
                trials_text(found),
                f"{expected_full_cost(first.control_whole, _INTERVAL_ITERS, rate):.1f}",
                *map(_cost, found),
            ]
            lines.append(table_row(texts))
    return "\n".join(lines)


def _cost(cell: RepeatedSummary | None) -> str:
    if cell is None:
        return "–"
    value, low, high = (round(x, 1) + 0.0 for x in (cell.cost.value, cell.cost.low, cell.cost.high))  # no −0.0
    cost = f"{value:.1f} [{low:.1f}, {high:.1f}]".replace("-", "−")
    return f"≥ {cost}, {cell.n_given_up} given up" if cell.n_given_up else cost

"""The headline table: by how much partial recovery and priority checkpoints reduce the cost of losses, on every panel.

    python -m scarml.experiments.headline --results docs/results --page docs/reproduction.md --page README.md

The other tables are of the same figures, of what goes beyond them, and of repeated failures. All are made from rows
alone. A page has the lines between which a table goes; see `tables`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scarml.errors import ScarError, UsageError
from scarml.experiments import (
    beyond,
    beyond_table,
    partial_recovery,
    priority_checkpoints,
    repeated_failures,
    repeated_table,
    wrong_choice,
)
from scarml.experiments.marked_page import has_marked, replace_marked, table_row
from scarml.experiments.panels import PANELS, PaperPanel
from scarml.experiments.repeated_rows import RepeatedRow
from scarml.experiments.results import TrialRow, read_folder
from scarml.experiments.summary import (
    LEAST_TRIALS,
    MISSING,
    CellSummary,
    percent,
    reduction_text,
    summarise,
    trials_text,
)
from scarml.theory.bootstrap import Interval

__all__ = [
    "LATE_FROM_ITER",
    "Measured",
    "costs",
    "headline",
    "main",
    "read",
    "short",
    "tables",
]

_PAPER = ("paper, all panels", "100", "−12 … −42 %", "−31 … −62 %", "−59 … −89 %", "−78 … −95 %")


class Measured:
    """What the cells of the figures came to.

    Args:
        partial: rows of figure 7.
        priority: rows of figure 8.
        beyond: rows of what goes beyond them.
    """

    def __init__(
        self, partial: Sequence[TrialRow], priority: Sequence[TrialRow], beyond: Sequence[TrialRow] = ()
    ) -> None:
        self._of = {
            figure: {(c.panel, c.lost_fraction, c.strategy, c.lag_commits): c for c in summarise(rows)}
            for figure, rows in (("partial", partial), ("priority", priority), ("beyond", beyond))
        }

    def panels(self) -> list[PaperPanel]:
        """Those that have been run, in the paper's order."""
        known = {key[0] for cells in self._of.values() for key in cells}
        return [p for name, p in PANELS.items() if name in known]

    def recovered(self, panel: PaperPanel, lost_fraction: str) -> CellSummary | None:
        """Partial recovery from full checkpoints, in figure 7."""
        return self._of["partial"].get((panel.panel.name, lost_fraction, "full-partial", 0))

    def saved(self, panel: PaperPanel, strategy: str, lag: int = 0) -> CellSummary | None:
        """A strategy in figure 8."""
        return self._of["priority"].get((panel.panel.name, "1/2", strategy, lag))

    def general(self, panel: PaperPanel, lag: int = 0) -> CellSummary | None:
        """The general setting."""
        return self._of["beyond"].get((panel.panel.name, "1/2", "general", lag))


def read(results: Path, from_iter: int = 0) -> Measured:
    """From the folder that has those of the figures.

    Args:
        results: the folder.
        from_iter: only failures on x(from_iter) or later.

    Raises:
        UsageError: if there are no results of either.
    """
    folders = [results / f.FIGURE.file_name for f in (partial_recovery, priority_checkpoints, beyond)]
    found = [read_folder(folder) if folder.exists() else [] for folder in folders]
    if not found[0] and not found[1]:
        raise UsageError(f"there are no results in {folders[0]} or {folders[1]}; run scarml figure first")
    return Measured(*([r for r in rows if r.failed_at_iter >= from_iter] for rows in found))


def headline(measured: Measured) -> str:
    """Reductions of the cost, with intervals, in Markdown."""
    head = (
        *("", "trials", "partial, 3/4 lost", "partial, 1/2 lost", "partial, 1/4 lost"),
        *("`priority` 1/8", "in whole iterations", "at lag 1", "general, 1/8 of bytes", "at lag 1", "floor at lag 1"),
    )
    lines = [
        table_row(head),
        table_row(["---"] + ["---:"] * (len(head) - 1)),
        table_row([*_PAPER, *[""] * (len(head) - len(_PAPER))]),
    ]
    for panel in measured.panels():
        for unit in panel.budgets:
            name = "priority-1-8-partial" if unit == "blocks" else "priority-1-8-of-bytes-partial"
            at_0, at_1 = measured.saved(panel, name), measured.saved(panel, name, 1)
            partial = [measured.recovered(panel, p) for p in ("3/4", "1/2", "1/4")]
            lines.append(
                table_row(
                    [
                        panel.title if unit == "blocks" else f"{panel.title}, budget in bytes",
                        trials_text([*partial, at_0, at_1]),
                        *map(reduction_text, partial if unit == panel.budgets[0] else [None] * len(partial)),
                        reduction_text(at_0),
                        _whole(at_0),
                        reduction_text(at_1),
                        *(
                            reduction_text(measured.general(panel, lag) if unit == panel.budgets[-1] else None)
                            for lag in (0, 1)
                        ),
                        reduction_text(measured.saved(panel, "floor", 1)),
                    ]
                )
            )
    return "\n".join(lines)


def short(measured: Measured) -> str:
    """Losing half of all blocks, in Markdown, on the panels that have trials enough."""
    lines = [
        table_row(["", "trials", "partial recovery", "and `priority` 1/8", "and `--preset general`"]),
        table_row(["---"] + ["---:"] * 4),
        table_row([_PAPER[0], _PAPER[1], _PAPER[3], _PAPER[5], ""]),
    ]
    for panel in measured.panels():
        recovered, saved = measured.recovered(panel, "1/2"), measured.saved(panel, "priority-1-8-partial")
        cells = [recovered, saved, measured.general(panel)]
        texts = [reduction_text(cell) for cell in cells]
        if texts != [MISSING] * len(cells):
            lines.append(table_row([panel.title, trials_text(cells), *texts]))
    return "\n".join(lines)


def costs(measured: Measured) -> str:
    """Mean costs of figure 8 at lag 0, in iterations, in Markdown."""
    strategies = {
        "full checkpoint, full recovery": "full-full",
        "and partial recovery": "full-partial",
        **{f"`priority` {r}": f"priority-{r.replace('/', '-')}-partial" for r in ("1/2", "1/4", "1/8")},
        "`round` 1/8": "round-1-8-partial",
        "`random` 1/8": "random-1-8-partial",
    }
    for policy in priority_checkpoints.OF_OTHERS:
        name = f"{policy}-1-8-partial"
        if any(measured.saved(panel, name) for panel in measured.panels()):
            strategies[f"`{policy}` 1/8"] = name
    lines = [table_row(["", *strategies]), table_row(["---"] + ["---:"] * len(strategies))]
    for panel in measured.panels():
        lines.append(table_row([panel.title, *(_cost(measured.saved(panel, name)) for name in strategies.values())]))
    return "\n".join(lines)


LATE_FROM_ITER = 16
"""Two full saves have been made, and the first big steps of training are over."""


def tables(results: Path) -> dict[str, str]:
    """All tables, by the name in ``<!-- NAME: begin -->``."""
    measured = read(results)
    seven, repeated = (results / f.FIGURE.file_name for f in (partial_recovery, repeated_failures))
    return {
        "headline": headline(measured),
        "headline-late": headline(read(results, LATE_FROM_ITER)),
        "headline-short": short(measured),
        "recovery-costs": costs(measured),
        "wrong-choice": wrong_choice.table(read_folder(seven), LEAST_TRIALS),
        "repeated-failures": repeated_table.table(read_folder(repeated, RepeatedRow)),
        "beyond": beyond_table.tables(read_folder(results / beyond.FIGURE.file_name)),
    }


def _whole(cell: CellSummary | None) -> str:
    if cell is None or cell.reduction_whole is None or cell.n_trials < LEAST_TRIALS:
        return MISSING
    return f"{percent(cell.reduction_whole)} %"


def _cost(cell: CellSummary | None) -> str:
    return MISSING if cell is None else f"{_number(cell.cost)} ({cell.n_trials})"


def _number(cost: Interval) -> str:
    return f"{cost.value:.2f} [{cost.low:.2f}, {cost.high:.2f}]".replace("-", "−")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m scarml.experiments.headline", description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="folder of the figures' results")
    parser.add_argument("--page", type=Path, action="append", default=[], help="page whose marked parts are replaced")
    given = parser.parse_args(argv)
    try:
        texts = tables(given.results)
        for page in given.page:
            page.write_text(_filled(page.read_text(), texts))
    except (ScarError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{texts['headline']}\n")
    return 0


def _filled(page: str, texts: Mapping[str, str]) -> str:
    for name, text in texts.items():
        if has_marked(page, name):
            page = replace_marked(page, name, text)
    return page


if __name__ == "__main__":
    sys.exit(main())

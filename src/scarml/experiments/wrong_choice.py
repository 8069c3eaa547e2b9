"""What the wrong kind of recovery costs: full where partial would do, and partial where full would have been better.

It is made from the rows of figure 7 alone, where both have recovered from the same failures, with the same checkpoints.
`scarml.experiments.headline` writes the table into a page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from scarml.experiments.marked_page import table_row
from scarml.experiments.panels import PANELS
from scarml.experiments.results import TrialRow
from scarml.experiments.summary import select
from scarml.theory.bootstrap import Interval, mean_interval

__all__ = ["WrongChoice", "table", "wrong_choices"]

DEAREST = Fraction(1, 10)
"""Of all failures: those after which a choice cost most."""
_EQUAL_ITERS = 1e-6
"""Costs that differ by less are equal, but for rounding."""


@dataclass(frozen=True, slots=True)
class WrongChoice:
    """Full against partial recovery, after the same failures.

    Args:
        panel, lost_fraction: of the failures.
        n_trials: how many.
        full, partial: mean iteration costs.
        difference: mean of what full recovery costs more than partial recovery, with a paired bootstrap.
        full_is_better: share of the failures after which it costs less.
        dearest_full, dearest_partial: mean of what either choice cost more than the other, after the tenth of all
            failures after which it did most; 0 where it costs no more.
    """

    panel: str
    lost_fraction: str
    n_trials: int
    full: float
    partial: float
    difference: Interval
    full_is_better: float
    dearest_full: float
    dearest_partial: float


def wrong_choices(rows: Sequence[TrialRow], least_trials: int = 1) -> list[WrongChoice]:
    """For each panel and lost fraction, in the paper's order, what comes of the rows of figure 7.

    Args:
        rows: of both recoveries; failures that only one of them has are left out.
        least_trials: leave out what has fewer.
    """
    known = {(r.panel, r.lost_fraction) for r in rows}
    names = [name for name in PANELS if any(panel == name for panel, _ in known)]
    found = []
    for name in names:
        for lost in sorted((lost for panel, lost in known if panel == name), key=Fraction):
            full, partial = (
                {r.trial: r.cost for r in select(rows, panel=name, lost_fraction=lost, strategy=strategy)}
                for strategy in ("full-full", "full-partial")
            )
            both = sorted(full.keys() & partial.keys())
            if len(both) >= least_trials:
                pairs = np.array([(full[trial], partial[trial]) for trial in both])
                found.append(_compared(name, lost, pairs))
    return found


def _compared(panel: str, lost_fraction: str, pairs: NDArray[np.float64]) -> WrongChoice:
    full, partial = pairs.T
    return WrongChoice(
        panel=panel,
        lost_fraction=lost_fraction,
        n_trials=len(pairs),
        full=float(full.mean()),
        partial=float(partial.mean()),
        difference=mean_interval(full - partial),
        full_is_better=float((partial - full > _EQUAL_ITERS).mean()),
        dearest_full=_dearest(full - partial),
        dearest_partial=_dearest(partial - full),
    )


def _dearest(more: NDArray[np.float64]) -> float:
    n = math.ceil(DEAREST * len(more))
    return float(np.sort(np.maximum(more, 0))[-n:].mean())


def table(rows: Sequence[TrialRow], least_trials: int = 1) -> str:
    """In Markdown."""
    head = (
        *("", "lost", "trials", "cost, full", "cost, partial", "full costs more by", "full is better after"),
        *("full, dearest tenth", "partial, dearest tenth"),
    )
    lines = [table_row(head), table_row(["---"] + ["---:"] * (len(head) - 1))]
    for c in wrong_choices(rows, least_trials):
        d = c.difference
        cells = [
            PANELS[c.panel].title,
            c.lost_fraction,
            str(c.n_trials),
            f"{c.full:.2f}",
            f"{c.partial:.2f}",
            f"{_signed(d.value)} [{_signed(d.low)}, {_signed(d.high)}]",
            f"{round(100 * c.full_is_better)} %",
            f"{c.dearest_full:.1f}",
            f"{c.dearest_partial:.1f}",
        ]
        lines.append(table_row(cells).replace("-", "−"))
    return "\n".join(lines)


def _signed(iters: float) -> str:
    """With no sign at a nought."""
    return f"{iters:+.2f}" if abs(iters) >= 0.005 else "0.00"

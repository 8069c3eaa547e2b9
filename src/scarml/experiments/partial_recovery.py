"""Figure 7: full against partial recovery from full checkpoints, for growing lost fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from scarml.experiments.panels import PaperPanel
from scarml.experiments.recovery_figure import Loss, RecoveryFigure
from scarml.experiments.strategy import full, partial
from scarml.experiments.sweep import Cell

__all__ = ["FIGURE", "LOST_FRACTIONS"]

LOST_FRACTIONS = (Fraction(1, 2), Fraction(1, 4), Fraction(3, 4), Fraction(1))
"""In the order in which they are run; the paper shows all but the last."""


def cells_of(panel: PaperPanel) -> Sequence[Loss]:
    """At lag 0, which is the paper's protocol."""
    strategies = (full(), partial("full", Fraction(1)))
    return [(lost, Cell(strategy, 0)) for lost in LOST_FRACTIONS for strategy in strategies]


FIGURE = RecoveryFigure(
    name="partial-recovery",
    file_name="figure-7-partial-recovery",
    description="figure 7: full against partial recovery, for lost fractions of 1/4 to 1",
    cells=cells_of,
)

"""Figure 8: which blocks to save, at equal bytes: `priority`, `round` and `random`, losing half of all blocks.

A fraction r is saved every r C iterations. With r = 1 all three are the full checkpoint. Beside the paper's lag 0 also
lag 1, where a save is not yet durable when the next failure strikes: `priority`, and the floor, the lost blocks as they
were an iteration ago. Last come two baselines of others, CPR's `mfu` and `ssu`, with r = 1/8 at lag 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from scarml.experiments.panels import PaperPanel
from scarml.experiments.recovery_figure import Loss, RecoveryFigure
from scarml.experiments.strategy import FLOOR, Strategy, full, partial
from scarml.experiments.sweep import Cell

__all__ = ["FIGURE", "FRACTIONS", "LOST_FRACTION", "OF_OTHERS", "POLICIES"]

LOST_FRACTION = Fraction(1, 2)
POLICIES = ("priority", "round", "random")
OF_OTHERS = ("mfu", "ssu")
FRACTIONS = (Fraction(1, 8), Fraction(1, 4), Fraction(1, 2))
"""Of a save, besides 1."""


def cells_of(panel: PaperPanel) -> Sequence[Loss]:
    """What answers most comes first."""
    priority, others = (
        [partial(policy, r, budget_in=unit) for unit in panel.budgets for r in FRACTIONS for policy in policies]
        for policies in (POLICIES[:1], POLICIES[1:])
    )
    whole: list[Strategy] = [full(), partial("full", Fraction(1))]
    lag_0 = [*whole, *priority, *others]
    lag_1 = [*whole, *priority, FLOOR]
    of_others = [partial(policy, FRACTIONS[0]) for policy in OF_OTHERS]
    strategies = ((0, lag_0), (1, lag_1), (0, of_others))
    return [(LOST_FRACTION, Cell(s, lag)) for lag, of_lag in strategies for s in of_lag]


FIGURE = RecoveryFigure(
    name="priority-checkpoints",
    file_name="figure-8-priority-checkpoints",
    description="figure 8: priority, round and random checkpoints at equal bytes, losing 1/2",
    cells=cells_of,
)

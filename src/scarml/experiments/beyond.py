"""Beyond the paper: what more `priority` can do with the bytes of an eighth of the state in every iteration.

Half of all blocks are lost, as in figure 8. In every iteration every strategy saves an eighth of the bytes that the
state takes in memory; but where blocks differ in size, the paper's `priority` 1/8, an eighth of the blocks, may write
more: the largest move most. So it is run with an eighth of the bytes, too. What is added to it, alone and together:

====================  =================================================================================================
``bfloat16``          floating-point numbers in 2 bytes, so that a save has more blocks
``narrow``            the narrowest form of each field (`scarml.checkpoint.encoding.narrow`): values as ``int8`` or
                      ``mxint8``, moments of an optimizer as ``mxfp8``, topics in as many bits as they need
``per-byte``          a budget in bytes, and distances ranked per stored byte, each times what the model says that the
                      loss feels of it (`Table.weights`); only where blocks differ in size or in weight
``phase-aware``       least for what the next phase overwrites; only where there are such tables
``repair``            the model mends what was restored; only where it can
``general``           ``narrow``, ``per-byte`` and ``phase-aware``: the setting that is meant for every model
``general-repair``    and ``repair``
====================  =================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from scarml.checkpoint.encoding import Encodings
from scarml.checkpoint.selection import Checkpoint
from scarml.core.block import Table
from scarml.experiments.panels import BEYOND, PaperPanel
from scarml.experiments.problem import trainer_for
from scarml.experiments.recovery_figure import Loss, RecoveryFigure
from scarml.experiments.strategy import FLOOR, GENERAL, Strategy, full, partial, repair
from scarml.experiments.sweep import Cell

__all__ = ["FIGURE", "bfloat16", "strategies"]

LOST_FRACTION = Fraction(1, 2)
EIGHTH, PAPER_INTERVAL = Fraction(1, 8), 8
"""Of the state, in every iteration: the whole state's worth every 8 iterations."""


def bfloat16(tables: Sequence[Table]) -> Encodings:
    """Every field of floating-point numbers as bfloat16.

    Example:
        >>> from scarml.core.block import Field
        >>> bfloat16([Table("W", 8, (Field("value"), Field("step", "int32")))])
        {'W': {'value': 'bfloat16'}}
    """
    fields = {t.name: {f.name: "bfloat16" for f in t.fields if np.dtype(f.dtype).kind == "f"} for t in tables}
    return {name: named for name, named in fields.items() if named}


def strategies(panel: PaperPanel) -> list[Strategy]:
    """What is compared on a panel, at equal bytes, the general setting first. Loads the panel."""
    trainer = trainer_for(panel.panel)
    tables, can_mend = trainer.tables, trainer.problem.model.n_repair_phases > 0
    shorter = bfloat16(tables)
    sizes = np.concatenate([t.block_bytes for t in tables])
    differ = bool((sizes != sizes[0]).any()) or any(t.weights is not None for t in tables)
    some_are_dead = any(t.dead_at_boundary for t in tables)
    plain = Checkpoint("priority", EIGHTH, PAPER_INTERVAL, budget_in="bytes")

    found = [GENERAL]
    if can_mend:
        found.append(Strategy("general-repair", replace(GENERAL.checkpoint, recovery="repair")))
    found.append(partial("priority", EIGHTH, PAPER_INTERVAL))
    if (sizes != sizes[0]).any():
        found.append(partial("priority", EIGHTH, PAPER_INTERVAL, budget_in="bytes"))
    if can_mend:
        found.append(repair("priority", EIGHTH, PAPER_INTERVAL))
    if some_are_dead:
        found.append(Strategy("phase-aware", replace(plain, phase_aware=True)))
    if shorter:
        found.append(Strategy("bfloat16", replace(plain, encode=shorter)))
    if differ or some_are_dead:  # else it is the general setting
        found.append(Strategy("narrow", replace(plain, encode="narrow")))
    if differ:
        found.append(Strategy("per-byte", replace(plain, rank_by=GENERAL.checkpoint.rank_by)))
    return found


def cells_of(panel: PaperPanel) -> Sequence[Loss]:
    """At lag 0 and 1; the floor at lag 1. What answers most comes first."""
    general, *others = strategies(panel)
    whole = full(PAPER_INTERVAL)
    first = [Cell(whole, 0), Cell(general, 0), Cell(whole, 1), Cell(general, 1), Cell(FLOOR, 1)]
    rest = [Cell(s, lag) for lag in (0, 1) for s in others]
    return [(LOST_FRACTION, cell) for cell in [*first, *rest]]


FIGURE = RecoveryFigure(
    name="beyond",
    file_name="beyond",
    description="beyond the paper: narrower values, ranking per byte, phase-aware budgets and repair, losing 1/2",
    cells=cells_of,
    known=BEYOND,
)

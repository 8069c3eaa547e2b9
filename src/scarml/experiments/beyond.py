"""Beyond the paper: what more `priority` can do with the bytes of an eighth of the state in every iteration.

Half of all blocks are lost, as in figure 8, and every strategy saves in every iteration. What it adds to the paper's
`priority` 1/8, alone and together:

===================  ==================================================================================================
``bfloat16``         floating-point numbers in 2 bytes, so that a save has more blocks
``narrow``           values as ``int8`` with a scale a block, moments of an optimizer as bfloat16, topics in as many
                     bits as they need
``per-byte``         a budget in bytes, and distances per stored byte; only where blocks differ in size
``repair``           the model mends what was restored; only where it can
``general``          ``narrow`` and ``per-byte``: the setting that is meant for every model
``general-1-2``      ``general`` at a fraction of 1/2, as if a scale took no bytes: with short rows more than the
                     bytes of an eighth; only for floating-point numbers
``general-repair``   and ``repair``; where a model cannot mend it is the same as ``general``
===================  ==================================================================================================

A narrower form takes b bytes where the plain one takes B. So 1/C of the state is saved with the smallest whole C for
which b / C is at most B / 8, but for 1 % (`equal_bytes`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from scarml.checkpoint.encoding import Encodings, packed_for, stored_block_bytes
from scarml.checkpoint.selection import Checkpoint, Recovery
from scarml.core.block import Field, Table
from scarml.core.model import Model
from scarml.experiments.panels import PaperPanel
from scarml.experiments.problem import trainer_for
from scarml.experiments.recovery_figure import Loss, RecoveryFigure
from scarml.experiments.strategy import FLOOR, Strategy, full, partial, repair
from scarml.experiments.sweep import Cell
from scarml.models.lda import LDA

__all__ = ["FIGURE", "PAPER_INTERVAL", "bfloat16", "equal_bytes", "narrow", "strategies"]

LOST_FRACTION = Fraction(1, 2)
PAPER_INTERVAL = 8
"""C: an eighth of the state in every iteration."""
_TOLERANCE = 0.01
"""Of the bytes; scales of a few bytes beside large blocks."""


def bfloat16(tables: Sequence[Table]) -> Encodings:
    """Every field of floating-point numbers as bfloat16.

    Example:
        >>> bfloat16([Table("W", 8, (Field("value"), Field("step", "int32")))])
        {'W': {'value': 'bfloat16'}}
    """
    fields = {t.name: {f.name: "bfloat16" for f in t.fields if _is_float(f)} for t in tables}
    return {name: named for name, named in fields.items() if named}


def narrow(model: Model, tables: Sequence[Table]) -> Encodings:
    """The narrowest form of every field that is made for it.

    ``int8`` for values, bfloat16 for the moments beside them, and packed topics where the model has topics.
    """
    named = {t.name: {f.name: form for f in t.fields if (form := _narrowest(model, f))} for t in tables}
    return {name: fields for name, fields in named.items() if fields}


def equal_bytes(tables: Sequence[Table], encodings: Encodings) -> int:
    """The interval C, for which saving 1/C in every iteration writes no more than a plain eighth.

    Args:
        tables: that are saved.
        encodings: how.

    Example:
        >>> rows = [Table("W", 784, (Field("value", "float32", (10,)),))]
        >>> equal_bytes(rows, {}), equal_bytes(rows, bfloat16(rows)), equal_bytes(rows, {"W": {"value": "int8"}})
        (8, 4, 3)
    """
    stored, plain = (_total(tables, kept) for kept in (encodings, {}))
    return max(1, math.ceil(PAPER_INTERVAL * stored / plain / (1 + _TOLERANCE)))


def strategies(panel: PaperPanel) -> list[Strategy]:
    """What is compared on a panel, at equal bytes, the general setting first. Loads the panel."""
    trainer = trainer_for(panel.panel)
    model, tables = trainer.problem.model, trainer.tables
    narrower, shorter, unit = narrow(model, tables), bfloat16(tables), panel.budgets[-1]
    differ = len(set(np.concatenate([stored_block_bytes(t, {}) for t in tables]).tolist())) > 1

    def general(name: str, encodings: Encodings, recovery: Recovery = "partial", every: int | None = None) -> Strategy:
        every = every or equal_bytes(tables, encodings)
        checkpoint = Checkpoint(
            "priority",
            Fraction(1, every),
            every,
            recovery=recovery,
            budget_in="bytes",
            rank_by="distance-per-byte",
            encode=encodings,
        )
        return Strategy(name, checkpoint)

    def encoded(name: str, encodings: Encodings) -> Strategy:
        every = equal_bytes(tables, encodings)
        return Strategy(name, Checkpoint("priority", Fraction(1, every), every, budget_in=unit, encode=encodings))

    found = [general("general", narrower)]
    eighth = Fraction(1, PAPER_INTERVAL)
    if model.n_repair_phases:
        found += [general("general-repair", narrower, "repair"), repair("priority", eighth, PAPER_INTERVAL)]
    found.append(partial("priority", eighth, PAPER_INTERVAL))
    if shorter:
        found += [general("general-1-2", narrower, every=2), encoded("bfloat16", shorter)]
    if differ:
        found += [encoded("narrow", narrower), general("per-byte", {})]
    return found


def cells_of(panel: PaperPanel) -> Sequence[Loss]:
    """At lag 0 and 1; the floor at lag 1. What answers most comes first."""
    general, *others = strategies(panel)
    whole = full(PAPER_INTERVAL)
    first = [Cell(whole, 0), Cell(general, 0), Cell(whole, 1), Cell(general, 1), Cell(FLOOR, 1)]
    rest = [Cell(s, lag) for lag in (0, 1) for s in others]
    return [(LOST_FRACTION, cell) for cell in [*first, *rest]]


def _narrowest(model: Model, field: Field) -> str | None:
    if _is_float(field):
        return "int8" if field.name == "value" else "bfloat16"
    return packed_for(model.n_components) if isinstance(model, LDA) else None


def _is_float(field: Field) -> bool:
    return np.dtype(field.dtype).kind == "f"


def _total(tables: Sequence[Table], encodings: Encodings) -> int:
    return sum(int(stored_block_bytes(t, encodings.get(t.name, {})).sum()) for t in tables)


FIGURE = RecoveryFigure(
    name="beyond",
    file_name="beyond",
    description="beyond the paper: narrower values, ranking per byte and repair at the same bytes, losing 1/2",
    cells=cells_of,
)

"""Repair: lost blocks have been restored, older than the rest; the model mends them from survivors and data.

A repair does the model's last phases again, as many as it says, but each for the lost blocks alone: with
`Model.lost_part` of every shard, the ordinary `reads` and `compute`, and the ordinary fold, apply and commit. So ALS
solves the lost rows from the other side, and LDA samples the lost documents given all the counts. Survivors stay as
they are, and nothing depends on where blocks and shards are.

Its *work* is counted in iterations: the examples that it goes through, as a part of those of an iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from scarml.core.block import Ids, Table
from scarml.core.contract import require
from scarml.core.model import Computed, Context, Model, Shard

__all__ = ["check_mended", "check_n_repair_phases", "lost_part", "repair_phases", "work_iters"]


def repair_phases(n_repair_phases: int, n_phases: int, upcoming: Context) -> list[Context]:
    """The phases of a repair, in order: those before the one to be computed next.

    At the very beginning there are none before; then they are of the first iteration.

    Example:
        >>> [(c.iteration, c.phase, c.repair) for c in repair_phases(2, 2, Context(seed=0, iteration=8, phase=1))]
        [(7, 1, 1), (8, 0, 2)]
    """
    first = (upcoming.iteration - 1) * n_phases + upcoming.phase - n_repair_phases
    phases = (divmod(first + step, n_phases) for step in range(n_repair_phases))
    return [
        replace(upcoming, iteration=max(before, 0) + 1, phase=phase, repair=step)
        for step, (before, phase) in enumerate(phases, start=1)
    ]


def check_n_repair_phases(n_repair_phases: Any) -> None:
    """`Model.n_repair_phases`.

    Raises:
        ModelError: it is no number of phases.
    """
    right = isinstance(n_repair_phases, int) and not isinstance(n_repair_phases, bool) and n_repair_phases >= 0
    require(right, "n_repair_phases", f"must be a whole number of at least 0, got {n_repair_phases!r}")


def lost_part(model: Model, ctx: Context, shard: Shard, lost: Mapping[str, Ids]) -> Shard:
    """What `Model.lost_part` returns.

    Raises:
        ModelError: it is no part of the shard, or has blocks that are not lost.
    """
    part = model.lost_part(ctx, shard, lost)
    where = f"lost_part of shard {shard.index}"
    require(isinstance(part, Shard), where, f"must return a Shard, got a {type(part).__name__}")
    require(part.index == shard.index, where, f"has index {part.index}")
    require(part.n_examples >= 0, where, f"has {part.n_examples} examples")
    for name, ids in part.blocks.items():
        mine = np.intersect1d(shard.blocks.get(name, ids[:0]), lost.get(name, ids[:0]))
        require(bool(np.isin(ids, mine).all()), where, f"has blocks of {name!r} that are not lost, or not its own")
    return part


def check_mended(tables: Mapping[str, Table], lost: Mapping[str, Ids], shard: Shard, computed: Computed) -> None:
    """See that a phase of a repair leaves all that is not lost as it is.

    Raises:
        ModelError: it updates a block that is not lost.
    """
    for update in computed.updates:
        if tables[update.table].derived:
            continue
        ids = update.ids if isinstance(update.ids, np.ndarray) else tables[update.table].all_ids
        only_lost = bool(np.isin(ids, lost.get(update.table, ids[:0])).all())
        where = f"compute of the lost part of shard {shard.index}"
        require(only_lost, where, f"updates blocks of {update.table!r} that are not lost")


def work_iters(n_examples: int, n_examples_of_all: int, n_phases: int) -> float:
    """What so many examples are of an iteration, in which each phase goes through all of them.

    Example:
        >>> work_iters(500, 1000, n_phases=2)
        0.25
    """
    return n_examples / (max(n_examples_of_all, 1) * n_phases)

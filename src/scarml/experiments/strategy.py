"""Strategies that experiments compare, by name: what is saved, and how lost blocks are recovered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from scarml.checkpoint.budget import BudgetUnit
from scarml.checkpoint.policy import policy_named
from scarml.checkpoint.selection import Checkpoint

__all__ = ["FLOOR", "GENERAL", "Strategy", "full", "partial", "repair"]


@dataclass(frozen=True, slots=True)
class Strategy:
    """What is saved and how it is recovered, with a name for tables and files: another name for every checkpoint."""

    name: str
    checkpoint: Checkpoint


def full(interval_iters: int = 8) -> Strategy:
    """The traditional checkpoint: everything saved every C iterations, everything taken back."""
    return Strategy("full-full", Checkpoint("full", Fraction(1), interval_iters, recovery="full"))


def partial(
    policy: str, fraction: Fraction | float | str, interval_iters: int = 8, budget_in: BudgetUnit = "blocks"
) -> Strategy:
    """Partial recovery from checkpoints of a fraction of the state, at equal bytes per C iterations."""
    checkpoint = Checkpoint(policy, fraction, interval_iters, budget_in=budget_in)
    own, r = policy_named(policy).name, checkpoint.schedule.fraction  # of a module:Class too
    name = own if own == "full" else f"{own}-{r.numerator}-{r.denominator}"
    named = name if budget_in == "blocks" else f"{name}-of-bytes"
    return Strategy(f"{named}-partial", checkpoint)


def repair(policy: str, fraction: Fraction | float | str, interval_iters: int = 8) -> Strategy:
    """As `partial`, and then the model mends what was restored."""
    restored = partial(policy, fraction, interval_iters)
    checkpoint = replace(restored.checkpoint, recovery="repair")
    return Strategy(restored.name.removesuffix("partial") + "repair", checkpoint)


FLOOR = Strategy("floor", Checkpoint("full", Fraction(1), 1))
"""Everything saved in every iteration, lost blocks restored: no saved value can do better at the same lag."""

GENERAL = Strategy("general", Checkpoint.preset("general", fraction=Fraction(1, 8), interval_iters=8))
"""One setting for every model, at the bytes of the paper's ``priority`` 1/8."""

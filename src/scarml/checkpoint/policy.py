"""Which blocks to save: the paper's three strategies (section 5.4) and the traditional full checkpoint.

A policy is a value that scores every block; the blocks with the highest scores are saved, as far as the budget goes.
All blocks of all tables compete with each other. Equal scores are settled by table and id, so that the choice does not
depend on which node answered first. Policies of the user's own are made known by `register`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.budget import BudgetUnit
from scarml.core.block import Ids
from scarml.core.rng import stream
from scarml.errors import UsageError

__all__ = [
    "POLICIES",
    "Candidates",
    "Full",
    "Policy",
    "Priority",
    "Random",
    "RankBy",
    "Round",
    "choose",
    "policy_named",
    "register",
]

RankBy = Literal["distance", "distance-per-byte", "weighted-distance-per-byte"]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Every block that could be saved, in table and id order; arrays of shape (n,).

    Args:
        size_bytes: stored size of each block.
        distance: from its last saved value; +inf for a block whose save was given up, NaN for one that is not finite.
            Zeros for policies that do not ask for distances.
        weight: how much the loss feels it when a block moves (`Table.weights`); ones where the model does not say.
    """

    size_bytes: Ids
    distance: NDArray[np.float64]
    weight: NDArray[np.float64]


class Policy(Protocol):
    """Scores blocks; a score of 0 or less, or NaN, means: do not save."""

    name: ClassVar[str]
    needs_distances: ClassVar[bool]

    def scores(self, candidates: Candidates, n_saves: int, cursor: int, seed: int) -> NDArray[np.float64]:
        """Scores of all candidates, higher first.

        Args:
            candidates: what could be saved.
            n_saves: saves chosen before this one.
            cursor: blocks chosen in all saves before this one.
            seed: of the run.
        """
        ...


@dataclass(frozen=True, slots=True)
class Priority:
    """The blocks that changed most since they were last saved (section 4.2)."""

    name: ClassVar[str] = "priority"
    needs_distances: ClassVar[bool] = True
    rank_by: RankBy = "distance"

    def scores(self, candidates: Candidates, n_saves: int, cursor: int, seed: int) -> NDArray[np.float64]:
        """Distance, distance per stored byte, or that times the block's weight."""
        if self.rank_by == "distance":
            return candidates.distance
        per_byte: NDArray[np.float64] = candidates.distance / np.maximum(candidates.size_bytes, 1)
        return per_byte * candidates.weight if self.rank_by == "weighted-distance-per-byte" else per_byte


@dataclass(frozen=True, slots=True)
class Round:
    """All blocks in turn."""

    name: ClassVar[str] = "round"
    needs_distances: ClassVar[bool] = False

    def scores(self, candidates: Candidates, n_saves: int, cursor: int, seed: int) -> NDArray[np.float64]:
        """Highest for the block whose turn it is."""
        n = len(candidates.size_bytes)
        return n - ((np.arange(n, dtype=np.float64) - cursor) % n)


@dataclass(frozen=True, slots=True)
class Random:
    """Blocks drawn uniformly, without replacement within a save."""

    name: ClassVar[str] = "random"
    needs_distances: ClassVar[bool] = False

    def scores(self, candidates: Candidates, n_saves: int, cursor: int, seed: int) -> NDArray[np.float64]:
        """Uniform in (0, 1]."""
        return 1.0 - stream(seed, "policy-random", n_saves).random(len(candidates.size_bytes))


@dataclass(frozen=True, slots=True)
class Full:
    """Everything, every C iterations: the traditional checkpoint. A fraction other than 1 is refused."""

    name: ClassVar[str] = "full"
    needs_distances: ClassVar[bool] = False

    def scores(self, candidates: Candidates, n_saves: int, cursor: int, seed: int) -> NDArray[np.float64]:
        """The same for all."""
        return np.ones(len(candidates.size_bytes))


POLICIES: dict[str, Callable[[], Policy]] = {p.name: p for p in (Priority, Round, Random, Full)}
"""How each is made, by name."""


def register(policy: type[Policy]) -> type[Policy]:
    """Make a policy of the user's own known by its ``name``. Also a decorator.

    Args:
        policy: is made without arguments. Registering the same class again changes nothing.

    Raises:
        UsageError: if something is missing in it, or another policy has the name.

    Example:
        >>> @register
        ... class First:
        ...     name, needs_distances = "first", False
        ...
        ...     def scores(self, candidates, n_saves, cursor, seed):
        ...         return -np.arange(1.0 - len(candidates.size_bytes), 1.0) + 1
        >>> policy_named("first").name
        'first'
        >>> _ = POLICIES.pop("first")
    """
    lacking = [what for what in ("name", "needs_distances", "scores") if not hasattr(policy, what)]
    if lacking:
        raise UsageError(f"policy {policy.__name__} has no {lacking[0]!r}; expected name, needs_distances and scores")
    known = POLICIES.get(policy.name, policy)
    if (getattr(known, "__module__", ""), getattr(known, "__qualname__", "")) != (
        policy.__module__,
        policy.__qualname__,
    ):
        raise UsageError(
            f"policy {policy.__name__} calls itself {policy.name!r}, as another does; give it another name"
        )
    POLICIES[policy.name] = policy
    return policy


def policy_named(name: str, rank_by: RankBy = "distance") -> Policy:
    """The policy of that name. Raises UsageError with the names there are."""
    if name not in POLICIES:
        raise UsageError(f"--policy {name!r} is unknown; choose one of {', '.join(POLICIES)}")
    return Priority(rank_by) if name == Priority.name else POLICIES[name]()


def choose(scores: NDArray[np.float64], size_bytes: Ids, unit: BudgetUnit, balance: Fraction) -> Ids:
    """The positions with the highest scores that the balance pays for, ascending.

    In bytes, blocks are taken in the order of their scores up to the first that does not fit: a large block is not
    overtaken for ever by small ones, since what is left over is carried to the next save.
    """
    wanted = scores > 0  # not NaN either
    if unit == "blocks":
        return _top(scores, wanted, min(int(balance), int(np.count_nonzero(wanted))))
    order = np.flatnonzero(wanted)
    order = order[np.argsort(-scores[order], kind="stable")]
    fits = np.cumsum(size_bytes[order]) <= float(balance)
    return np.sort(order[: int(fits.sum())])


def _top(scores: NDArray[np.float64], wanted: NDArray[np.bool_], n: int) -> Ids:
    """The ``n`` highest of the wanted scores, all above 0; equal ones in order."""
    if n <= 0:
        return np.zeros(0, np.int64)
    ranked = scores[wanted]
    ranked.partition(len(ranked) - n)
    least = ranked[len(ranked) - n]
    chosen = scores >= least
    too_many = int(np.count_nonzero(chosen)) - n
    if too_many:
        level = np.flatnonzero(scores == least)
        chosen[level[len(level) - too_many :]] = False
    return np.flatnonzero(chosen)

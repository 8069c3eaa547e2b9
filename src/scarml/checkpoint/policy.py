"""Which blocks to save: the paper's three strategies (section 5.4), two of CPR, and the traditional full checkpoint.

A policy is a value that scores every block; the blocks with the highest scores are saved, as far as the budget goes.
All blocks of all tables compete with each other. Equal scores are settled by table and id, so that the choice does not
depend on which node answered first. A policy of the user's own is named ``module:Class``, or made known by `register`.

CPR: Maeng et al., Understanding and Improving Failure Tolerant Training for Deep Learning Recommendation with Partial
Recovery, MLSys 2021. It saves rows of embedding tables by how often they are used, which costs less than measuring how
far they have moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.budget import BudgetUnit
from scarml.core.block import Ids
from scarml.core.rng import stream
from scarml.errors import UsageError
from scarml.plugins import imported, is_importable

__all__ = [
    "POLICIES",
    "Candidates",
    "Full",
    "MostFrequentlyUsed",
    "Policy",
    "Priority",
    "Quantity",
    "Random",
    "RankBy",
    "Round",
    "SubSampledUsed",
    "choose",
    "needs_of",
    "policy_named",
    "register",
    "scores_of",
]

Quantity = Literal["distance", "n_uses"]
"""What a policy may want to know of every block: names of `Candidates`."""
RankBy = Literal["distance", "distance-per-byte", "weighted-distance-per-byte"]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Every block that could be saved, in table and id order; arrays of shape (n,), which cannot be written into.

    Args:
        size_bytes: stored size of each block.
        distance: from its last saved value; +inf for a block whose save was given up, NaN for one that is not finite.
            Zeros for policies that do not ask for distances.
        weight: how much the loss feels it when a block moves (`Table.weights`); ones where the model does not say.
        n_uses: how often it was used since it was last staged for a save, see `BlockCache.use`; +inf for a block whose
            save was given up. Zeros for policies that do not ask for uses.
    """

    size_bytes: Ids
    distance: NDArray[np.float64]
    weight: NDArray[np.float64]
    n_uses: NDArray[np.float64]

    def __post_init__(self) -> None:
        for name in ("size_bytes", "distance", "weight", "n_uses"):
            read_only = getattr(self, name).view()  # they may be the originals, which training goes on with
            read_only.flags.writeable = False
            object.__setattr__(self, name, read_only)


class Policy(Protocol):
    """Scores blocks; a score of 0 or less, or NaN, means: do not save.

    It says what it needs by ``needs_distances``, and by ``needs_uses``, which may be left out for False.
    """

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
        return _turns(len(candidates.size_bytes), cursor)


@dataclass(frozen=True, slots=True)
class Random:
    """Blocks drawn uniformly, without replacement within a save."""

    name: ClassVar[str] = "random"
    needs_distances: ClassVar[bool] = False

    def scores(self, candidates: Candidates, n_saves: int, cursor: int, seed: int) -> NDArray[np.float64]:
        """Uniform in (0, 1]."""
        return 1.0 - stream(seed, "policy-random", n_saves).random(len(candidates.size_bytes))


@dataclass(frozen=True, slots=True)
class MostFrequentlyUsed:
    """The blocks that were used most often since they were last saved (CPR's MFU); unused ones are not saved.

    Of those used equally often, the one whose turn it is comes first. So where every iteration uses all blocks equally
    often, the one saved longest ago is used most, and this is `Round`, block by block.
    """

    name: ClassVar[str] = "mfu"
    needs_distances: ClassVar[bool] = False
    needs_uses: ClassVar[bool] = True

    def scores(self, candidates: Candidates, n_saves: int, cursor: int, seed: int) -> NDArray[np.float64]:
        """Uses, and less than one more for the turn."""
        n_uses = candidates.n_uses
        turns = _turns(len(n_uses), cursor) / (len(n_uses) + 1)
        return np.where(n_uses > 0, n_uses + turns, 0.0)


@dataclass(frozen=True, slots=True)
class SubSampledUsed:
    """A random choice of blocks that a sample of the uses has hit (CPR's SSU).

    CPR puts one access in ``period`` on a list of distinct blocks, and saves those, or as many of them as the budget
    pays for, at random. A block that was used n times is on such a list with probability 1 - (1 - 1/period)^n; so the
    list is drawn here, from the numbers of uses alone. For one save that is CPR's distribution. Lists of successive
    saves are drawn independently, where CPR's remembers: a block that was left out gets another chance at the next save
    without being used again.
    """

    name: ClassVar[str] = "ssu"
    needs_distances: ClassVar[bool] = False
    needs_uses: ClassVar[bool] = True
    period: int = 2

    def scores(self, candidates: Candidates, n_saves: int, cursor: int, seed: int) -> NDArray[np.float64]:
        """Uniform in (0, 1] for blocks on the list, else 0."""
        n, rng = len(candidates.n_uses), stream(seed, "policy-ssu", n_saves)
        is_listed = rng.random(n) < 1.0 - (1.0 - 1.0 / self.period) ** candidates.n_uses
        return np.where(is_listed, 1.0 - rng.random(n), 0.0)


@dataclass(frozen=True, slots=True)
class Full:
    """Everything, every C iterations: the traditional checkpoint. A fraction other than 1 is refused."""

    name: ClassVar[str] = "full"
    needs_distances: ClassVar[bool] = False

    def scores(self, candidates: Candidates, n_saves: int, cursor: int, seed: int) -> NDArray[np.float64]:
        """The same for all."""
        return np.ones(len(candidates.size_bytes))


POLICIES: dict[str, Callable[[], Policy]] = {
    p.name: p for p in (Priority, Round, Random, MostFrequentlyUsed, SubSampledUsed, Full)
}
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
    POLICIES[policy.name] = _checked(policy)
    return policy


def _checked(policy: type[Policy]) -> type[Policy]:
    """A class of the user's own, seen to have what is needed, and a name of its own."""
    lacking = [what for what in ("name", "needs_distances", "scores") if not hasattr(policy, what)]
    if lacking:
        raise UsageError(f"policy {policy.__name__} has no {lacking[0]!r}; expected name, needs_distances and scores")
    if not isinstance(policy.name, str):
        raise UsageError(f"policy {policy.__name__} has the name {policy.name!r}; expected text")
    known = POLICIES.get(policy.name, policy)
    if (getattr(known, "__module__", ""), getattr(known, "__qualname__", "")) != (
        policy.__module__,
        policy.__qualname__,
    ):
        raise UsageError(
            f"policy {policy.__name__} calls itself {policy.name!r}, as another does; give it another name"
        )
    return policy


def policy_named(name: str, rank_by: RankBy = "distance") -> Policy:
    """The policy of that name, or the user's own ``module:Class``.

    Args:
        name: of `POLICIES`, or of a class that can be imported and is made without arguments.
        rank_by: for `Priority`.

    Raises:
        UsageError: there is none of that name, with the names there are; the class cannot be imported or made, or is
            no policy.

    Example:
        >>> policy_named("round")
        Round()
    """
    if not isinstance(name, str):
        raise UsageError(f"--policy {name!r} is no name; choose one of {', '.join(POLICIES)}, or module:Class")
    if name == Priority.name:
        return Priority(rank_by)
    if name in POLICIES:
        return _made(POLICIES[name], name)
    if not is_importable(name):
        known = ", ".join(POLICIES)
        raise UsageError(f"--policy {name!r} is unknown; choose one of {known}, or module:Class for one of your own")
    found = imported(name, "policy")
    if not isinstance(found, type):
        raise UsageError(f"policy {name!r} is a {type(found).__name__}; expected a class")
    return _made(_checked(found), name)


def _made(policy: Callable[[], Policy], name: str) -> Policy:
    try:
        return policy()
    except Exception as error:  # of the user's own class
        raise UsageError(
            f"policy {name!r} is made without arguments, and making it raised {type(error).__name__}: {error}"
        ) from error


def needs_of(policy: Policy) -> tuple[Quantity, ...]:
    """What it wants to know of every block.

    Example:
        >>> needs_of(policy_named("priority")), needs_of(policy_named("mfu"))
        (('distance',), ('n_uses',))
    """
    asked: dict[Quantity, Any] = {"distance": policy.needs_distances, "n_uses": getattr(policy, "needs_uses", False)}
    return tuple(what for what, is_needed in asked.items() if is_needed)


def scores_of(policy: Policy, candidates: Candidates, n_saves: int, cursor: int, seed: int) -> NDArray[np.float64]:
    """What `Policy.scores` returns.

    Raises:
        UsageError: a policy of the user's own failed, or did not score every block.
    """
    n, who = len(candidates.size_bytes), f"policy {type(policy).__module__}:{type(policy).__qualname__}"
    try:
        scores = np.asarray(policy.scores(candidates, n_saves, cursor, seed), np.float64)
    except Exception as error:
        if type(policy).__module__ == __name__:
            raise
        raise UsageError(f"{who} raised {type(error).__name__} in scores(): {error}") from error
    if scores.shape != (n,):
        raise UsageError(f"{who} gave scores of shape {scores.shape}; expected one for each block, shape ({n},)")
    return scores


def _turns(n: int, cursor: int) -> NDArray[np.float64]:
    """Shape (n,): n for the block whose turn it is, n - 1 for the next, and so on down to 1."""
    return n - ((np.arange(n, dtype=np.float64) - cursor) % n)


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

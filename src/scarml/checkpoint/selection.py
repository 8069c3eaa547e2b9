"""Schedule, budget and policy together: when to save, how much, and which blocks.

The servers' checkpoint coordinator, the library and the laboratory all choose through this one class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.budget import BudgetAccount, BudgetUnit
from scarml.checkpoint.encoding import Encodings, encoding_named, encodings_for, narrow, stored_block_bytes
from scarml.checkpoint.policy import Candidates, Full, Quantity, RankBy, choose, needs_of, policy_named, scores_of
from scarml.checkpoint.schedule import Schedule
from scarml.core.block import Ids, Table
from scarml.errors import UsageError

__all__ = ["PRESETS", "Checkpoint", "Recovery", "SaveSelector"]

Recovery = Literal["partial", "repair", "full"]
_NARROW = "narrow"
_FOR_ANY = Fraction(1, 8)
"""Of a phase-aware save; so that what is dead at iteration boundaries, but not within them, does not grow old."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What to save, how often, and how to recover.

    Args:
        policy: ``priority``, ``round``, ``random``, ``mfu``, ``ssu`` or ``full``; or one of the user's own, as
            ``module:Class``, or by the name that it has been registered with (`scarml.checkpoint.policy.register`).
        fraction: r, the part of the state that one save writes; ``"1/8"``, 0.125 or a Fraction. ``full`` means 1.
        interval_iters: C, iterations in which the whole state's worth is written.
        recovery: ``partial`` restores what was lost; ``repair`` does, and then lets the model mend it, if it can;
            ``full`` takes everything back and needs policy ``full``.
        budget_in: count the fraction in ``blocks`` (the paper), or in ``bytes`` of the state as training has it: then
            what is stored narrower buys more blocks.
        rank_by: what ``priority`` ranks by: ``distance`` (the paper), ``distance-per-byte`` of what is stored, or
            ``weighted-distance-per-byte``, where a model says how much the loss feels each block (`Table.weights`).
        encode: a narrower form to store values in: ``plain``, ``float32``, ``bfloat16``, ``int8`` or ``mxint8`` for the
            ``value`` of every table of floating-point numbers; ``narrow`` for the narrowest form that is made for each
            field (`scarml.checkpoint.encoding.narrow`); or per table and field, as ``{"W": {"value": "int8"}}``. A
            last save of a graceful stop is always plain.
        phase_aware: most of a save goes to the tables that the next phase reads, and an eighth, with what they leave
            over, to any: so least to those that are dead at iteration boundaries (`Table.dead_at_boundary`).

    Raises:
        UsageError: one sentence for each combination that makes no sense.

    Example:
        >>> Checkpoint(policy="priority", fraction="1/8", interval_iters=8).schedule.period_iters
        Fraction(1, 1)
    """

    policy: str = "priority"
    fraction: Fraction | float | str = Fraction(1, 8)
    interval_iters: int = 8
    recovery: Recovery = "partial"
    budget_in: BudgetUnit = "blocks"
    rank_by: RankBy = "distance"
    encode: str | Encodings = "plain"
    phase_aware: bool = False
    schedule: Schedule = field(init=False)

    def __post_init__(self) -> None:
        policy_named(self.policy)
        fraction = _as_fraction(self.fraction)
        if self.policy == Full.name and fraction != 1:
            raise UsageError(f"--policy full saves everything, but --fraction is {fraction}; expected 1 or no fraction")
        if self.recovery not in get_args(Recovery):
            raise UsageError(f"--recovery {self.recovery!r} is unknown; choose partial, repair or full")
        if self.recovery == "full" and self.policy != Full.name:
            raise UsageError(
                f"--recovery full needs complete checkpoints, but --policy is {self.policy}; "
                "add --policy full, or use --recovery partial"
            )
        if self.budget_in not in ("blocks", "bytes"):
            raise UsageError(f"--budget-in {self.budget_in!r} is unknown; choose blocks or bytes")
        if self.rank_by not in get_args(RankBy):
            raise UsageError(f"--rank-by {self.rank_by!r} is unknown; choose one of {', '.join(get_args(RankBy))}")
        if isinstance(self.encode, str) and self.encode != _NARROW:
            encoding_named(self.encode, also=(_NARROW,))
        if not isinstance(self.encode, str | Mapping):
            raise UsageError(f"--encode {self.encode!r} is unknown; choose the name of an encoding, or a dict by table")
        if not isinstance(self.phase_aware, bool):
            raise UsageError(f"phase_aware is {self.phase_aware!r}; expected True or False")
        object.__setattr__(self, "fraction", fraction)
        object.__setattr__(self, "schedule", Schedule(fraction, self.interval_iters))

    @classmethod
    def preset(cls, name: str, **settings: Any) -> Checkpoint:
        """A setting by name, with what is said differently.

        ``paper`` is the paper's: blocks are counted, and ranked by distance. ``general`` is one for every model: a
        budget in bytes, values as narrow as is made for them, weighted distances per byte, and phase-aware. It costs
        less at the same bytes (``docs/reproduction.md``), but what is restored is rounded.

        Raises:
            UsageError: if there is none of that name.

        Example:
            >>> Checkpoint.preset("general", fraction="1/4").encode
            'narrow'
        """
        if name not in list(PRESETS):
            raise UsageError(f"--preset {name!r} is unknown; choose one of {', '.join(PRESETS)}")
        return cls(**{**PRESETS[name], **settings})

    def encodings(self, tables: Sequence[Table]) -> Encodings:
        """How the fields of these tables are stored.

        Raises:
            UsageError: an encoding is none for its field, or there is no such table or field.
        """
        if self.encode == _NARROW:
            return narrow(tables)
        if self.encode == "plain":
            return {}
        named = self.encode
        if isinstance(named, str):
            named = {t.name: {"value": named} for t in tables if not t.derived and _is_floating(t)}
        unknown = sorted(set(named) - {t.name for t in tables})
        if unknown:
            raise UsageError(f"there is no table {unknown[0]!r} to encode; there are {[t.name for t in tables]}")
        for t in tables:
            encodings_for(t, named.get(t.name, {}))
        return named


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "general": {
        "budget_in": "bytes",
        "rank_by": "weighted-distance-per-byte",
        "encode": _NARROW,
        "phase_aware": True,
    },
}
"""What differs from the defaults, by name; see `Checkpoint.preset`."""


class SaveSelector:
    """Chooses the blocks of one save after the other.

    Args:
        checkpoint: the settings.
        tables: the model's, in the order in which equal scores are settled; of derived ones nothing is saved.
        seed: of the run.

    Example:
        >>> import numpy as np
        >>> from scarml.core.block import Field, Table
        >>> table = Table("W", 8, (Field("value"),))
        >>> selector = SaveSelector(Checkpoint(fraction="1/4"), [table], seed=0)
        >>> selector.earn(); selector.select({"W": np.arange(8.0)})["W"].tolist()
        [6, 7]
    """

    def __init__(self, checkpoint: Checkpoint, tables: Sequence[Table], seed: int) -> None:
        self._checkpoint = checkpoint
        self._policy = policy_named(checkpoint.policy, checkpoint.rank_by)
        self._tables = tuple(t for t in tables if not t.derived)
        self._seed = seed
        encodings = checkpoint.encodings(tables)
        self._size_bytes = np.concatenate([stored_block_bytes(t, encodings.get(t.name, {})) for t in self._tables])
        self._weights = np.concatenate([np.ones(t.n_blocks) if t.weights is None else t.weights for t in self._tables])
        cost, plain = self._size_bytes, np.concatenate([t.block_bytes for t in self._tables])
        if checkpoint.budget_in == "blocks":
            cost = plain = np.ones_like(cost)
        share = checkpoint.schedule.fraction * int(plain.sum())
        self._cost = cost
        self._comes_last = np.repeat(
            [t.dead_at_boundary and checkpoint.phase_aware for t in self._tables], [t.n_blocks for t in self._tables]
        )
        self._account = BudgetAccount(share=share, largest=int(cost.max()))
        self._n_saves = 0
        self._cursor = 0
        self._owed = np.zeros(len(cost), bool)

    @property
    def needs(self) -> tuple[Quantity, ...]:
        """What `select` wants to know of all blocks."""
        return needs_of(self._policy)

    @property
    def is_full(self) -> bool:
        """Whether each save is a complete one."""
        return self._policy.name == Full.name

    def is_due(self, iteration: int) -> bool:
        """Whether a save falls due at x(``iteration``)."""
        return self._checkpoint.schedule.is_due(iteration)

    def n_due(self, iteration: int, after: int) -> int:
        """How many saves fall due after x(``after``), up to x(``iteration``)."""
        return self._checkpoint.schedule.n_due(iteration, after)

    def earn(self, n_due: int = 1) -> None:
        """A save fell due, or several, whether or not they are made: their share of the budget may be spent."""
        self._account = self._account.earn(n_due)

    def owe(self, ids: Mapping[str, Ids]) -> None:
        """These were chosen, and their save was given up: whatever the policy, they come first in the next."""
        start = 0
        for t in self._tables:
            if t.name in ids:
                self._owed[start + ids[t.name]] = True
            start += t.n_blocks

    def select(
        self,
        distances: Mapping[str, NDArray[np.float64]] | None = None,
        n_uses: Mapping[str, NDArray[np.float64]] | None = None,
    ) -> dict[str, Ids]:
        """Choose within the budget, and account for it.

        Args:
            distances: per table the distance of each block from its last saved value, shape (n_blocks,); None for
                policies that do not ask for them.
            n_uses: in the same way, how often each block has been used since it was staged; see `BlockCache.uses`.

        Returns:
            Per table the ids to save, ascending; tables of which nothing is saved are left out.
        """
        candidates = Candidates(self._size_bytes, self._joined(distances), self._weights, self._joined(n_uses))
        scores = scores_of(self._policy, candidates, self._n_saves, self._cursor, self._seed)
        if self._owed.any():
            scores = np.where(self._owed & ~np.isnan(scores), np.inf, scores)
        picked = self._choose(scores)
        self._account = self._account.spend(int(self._cost[picked].sum()))
        self._owed[picked] = False
        self._n_saves += 1
        self._cursor += len(picked)
        chosen, start = {}, 0
        for t in self._tables:
            ids = picked[np.searchsorted(picked, start) : np.searchsorted(picked, start + t.n_blocks)] - start
            if len(ids):
                chosen[t.name] = ids
            start += t.n_blocks
        return chosen

    def _choose(self, scores: NDArray[np.float64]) -> Ids:
        """The positions to save, ascending."""
        if self.is_full:  # whatever a budget says: recovery relies on it, and narrower forms of short blocks are wider
            return np.arange(len(scores))
        unit, balance = self._checkpoint.budget_in, self._account.balance
        if not self._comes_last.any():
            return choose(scores, self._size_bytes, unit, balance)
        first = choose(np.where(self._comes_last, 0, scores), self._size_bytes, unit, balance * (1 - _FOR_ANY))
        rest = scores.copy()
        rest[first] = 0
        then = choose(rest, self._size_bytes, unit, balance - int(self._cost[first].sum()))
        return np.union1d(first, then)

    def _joined(self, of_tables: Mapping[str, NDArray[np.float64]] | None) -> NDArray[np.float64]:
        """Of all tables, one after the other; zeros for what nobody has asked for."""
        if of_tables is None:
            return np.zeros(len(self._size_bytes))
        parts = [of_tables[t.name] for t in self._tables]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _is_floating(table: Table) -> bool:
    return all(np.dtype(f.dtype).kind == "f" for f in table.fields if f.name == "value")


def _as_fraction(value: Fraction | float | str) -> Fraction:
    try:
        fraction = Fraction(value)
    except (ValueError, ZeroDivisionError, OverflowError, TypeError):
        raise UsageError(f"--fraction {value!r} is not a number; expected for example 1/8 or 0.125") from None
    return fraction.limit_denominator(1_000_000)

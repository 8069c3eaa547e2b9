"""Versions of saved blocks: which value of a block a store holds.

A version is the pair (term, commit). Both only grow, and pairs are compared in that order; the iteration beside them is
a label for people, never an order, since it repeats after a rollback.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Ids

__all__ = ["Version", "Versions"]


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """The version of everything that one save stores.

    Args:
        term: of the run, from 1; 0 is for x(0), which no term saved.
        commit: counter of commits, 0 for x(0).
        iteration: label: this many iterations had been done.
    """

    term: int
    commit: int
    iteration: int


@dataclass(frozen=True, slots=True, eq=False)
class Versions:
    """The versions of some blocks, shape (n,) each, in the order of the blocks they stand beside."""

    term: NDArray[np.int64]
    commit: NDArray[np.int64]
    iteration: NDArray[np.int64]

    @classmethod
    def initial(cls, n_blocks: int) -> Versions:
        """The version of x(0)."""
        return cls(np.zeros(n_blocks, np.int64), np.zeros(n_blocks, np.int64), np.zeros(n_blocks, np.int64))

    def __len__(self) -> int:
        return len(self.term)

    def set(self, at: Ids, version: Version) -> None:
        """Set the versions at positions ``at``, in place."""
        self.term[at] = version.term
        self.commit[at] = version.commit
        self.iteration[at] = version.iteration

    def take(self, at: Ids) -> Versions:
        """A copy of the versions at positions ``at``."""
        return Versions(self.term[at], self.commit[at], self.iteration[at])

    def put(self, at: Ids, other: Versions) -> None:
        """Overwrite the versions at positions ``at``, in place."""
        self.term[at] = other.term
        self.commit[at] = other.commit
        self.iteration[at] = other.iteration

    def is_older_than(self, other: Versions) -> NDArray[np.bool_]:
        """Where (term, commit) is smaller than ``other``'s, shape (n,)."""
        older: NDArray[np.bool_] = (self.term < other.term) | ((self.term == other.term) & (self.commit < other.commit))
        return older

"""When a save is due: every rC iterations (section 4.2 of the paper).

With interval C and fraction r, a save of r of the state every rC iterations writes the whole state's worth every C
iterations, whatever r is.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from scarml.errors import UsageError

__all__ = ["Schedule"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Saves of ``fraction`` of the state, ``interval_iters`` iterations for the whole.

    Raises:
        UsageError: unless 0 < fraction <= 1, the interval is a whole number, and fraction · interval_iters >= 1.

    Example:
        >>> [k for k in range(1, 9) if Schedule(Fraction(1, 4), 8).is_due(k)]
        [2, 4, 6, 8]
    """

    fraction: Fraction
    interval_iters: int

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise UsageError(f"--fraction is {self.fraction}; expected more than 0 and at most 1, for example 1/8")
        if not isinstance(self.interval_iters, int | np.integer):
            raise UsageError(f"--interval is {self.interval_iters!r}; expected a whole number of iterations")
        if self.interval_iters < 1:
            raise UsageError(f"--interval is {self.interval_iters}; expected at least 1 iteration")
        if self.period_iters < 1:
            raise UsageError(
                f"--fraction {self.fraction} of an --interval of {self.interval_iters} asks for a save every "
                f"{self.period_iters} iterations; expected at least one iteration between saves: take a fraction of "
                f"at least 1/{self.interval_iters} or a longer interval"
            )

    @property
    def period_iters(self) -> Fraction:
        """Iterations between saves, rC; need not be whole."""
        return self.fraction * self.interval_iters

    def is_due(self, iteration: int) -> bool:
        """Whether a save falls due at x(``iteration``)."""
        return self.n_due(iteration, iteration - 1) > 0

    def n_due(self, iteration: int, after: int) -> int:
        """How many saves fall due after x(``after``), up to x(``iteration``).

        Example:
            >>> Schedule(Fraction(1, 4), 8).n_due(9, after=3)
            3
        """
        period, parts = self.period_iters.as_integer_ratio()
        return iteration * parts // period - max(after, 0) * parts // period

"""How much one save may write: a fraction of the state, in blocks (the paper) or in bytes.

What a save leaves over, and what skipped saves left unspent, is carried to the next. A save never writes more than
twice its own share; or, where blocks are larger than a share, than its share and one block: what is left over because
the next block did not fit is less than that block, so nothing of it is ever forfeited.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

__all__ = ["BudgetAccount", "BudgetUnit"]

BudgetUnit = Literal["blocks", "bytes"]


@dataclass(frozen=True, slots=True)
class BudgetAccount:
    """What may be spent, as a value: `earn` and `spend` return the next account.

    Args:
        share: what one save earns: r · (blocks or bytes of the state).
        largest: the largest single block, in the same unit.
        balance: what may be spent now.

    Example:
        >>> account = BudgetAccount(share=Fraction(5, 2), largest=1)
        >>> account.earn().spend(2).earn().balance
        Fraction(3, 1)
    """

    share: Fraction
    largest: int
    balance: Fraction = Fraction(0)

    def earn(self, n_due: int = 1) -> BudgetAccount:
        """One more save has fallen due, or several."""
        limit = self.share + max(self.share, Fraction(self.largest))
        return replace(self, balance=min(self.balance + n_due * self.share, limit))

    def spend(self, amount: int) -> BudgetAccount:
        """So much has been written."""
        return replace(self, balance=self.balance - amount)

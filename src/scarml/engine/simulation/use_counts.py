"""How often each block has been used since it was staged or restored, worked out from a sequential run alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scarml.checkpoint.version_index import Versions
from scarml.core.block import Ids

__all__ = ["UseCounts"]


class UseCounts:
    """What the caches of all nodes together must have counted, in one incarnation of a run.

    Args:
        n_blocks: of each table that is saved.

    Example:
        >>> counts = UseCounts({"W": 2})
        >>> counts.begin(commit=4)
        >>> counts.committed(5, {"W": np.array([3, 1])})
        >>> staged = Versions.initial(2)
        >>> counts.since(staged, term=1, name="W", ids=np.arange(2)).tolist()
        [3, 1]
    """

    def __init__(self, n_blocks: Mapping[str, int]) -> None:
        self._total = {name: np.zeros(n, np.int64) for name, n in n_blocks.items()}
        self._restored_at = {name: np.zeros(n, np.int64) for name, n in n_blocks.items()}
        """The total when a block was last restored."""
        self._total_at: dict[int, dict[str, Ids]] = {}
        """By commit."""

    def begin(self, commit: int) -> None:
        """A view has been installed at this commit."""
        self._total_at[commit] = self._total

    def committed(self, commit: int, uses: Mapping[str, Ids]) -> None:
        """So often has each block been used by this commit."""
        self._total = {name: n + uses.get(name, 0) for name, n in self._total.items()}
        self._total_at[commit] = self._total

    def restored(self, name: str, ids: Ids) -> None:
        """These blocks have just been restored."""
        self._restored_at[name][ids] = self._total[name][ids]

    def since(self, staged: Versions, term: int, name: str, ids: Ids) -> Ids:
        """Uses of the blocks ``ids`` since they were staged or restored, whatever was later.

        Args:
            staged: their staged versions.
            term: of this incarnation, now.
            name: of the table.
            ids: the blocks.
        """
        before = self._restored_at[name][ids]
        is_ours = staged.term == term
        for commit in np.unique(staged.commit[is_ours]).tolist():
            at = is_ours & (staged.commit == commit)
            before[at] = np.maximum(before[at], self._total_at[commit][name][ids[at]])
        since: Ids = self._total[name][ids] - before
        return since

"""Distances that are kept from save to save, so that only what was touched is measured again.

Measuring is done in pieces that stay in the processor's cache, either when a save asks for it, or by a thread between
saves (`BackgroundScoring`). What that thread sees may be half changed: its scores only rank blocks; what is saved is
copied at the boundary itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.block_cache import BlockCache
from scarml.checkpoint.version_index import Version
from scarml.core.block import Blocks, Ids

__all__ = ["BackgroundScoring", "TableScores"]

_PIECE_BYTES = 1 << 20


class TableScores:
    """The distance of each block of one table from its staged value, as of when it was last measured.

    Args:
        blocks: the current ones.
        cache: their running checkpoint.
    """

    def __init__(self, blocks: Blocks, cache: BlockCache) -> None:
        self._blocks = blocks
        self._cache = cache
        self._distance = np.zeros(len(blocks))
        self._is_touched = np.zeros(len(blocks), bool)
        self._all_touched = False
        block_bytes = max(1, blocks.nbytes // len(blocks))
        self._piece_blocks = max(1, _PIECE_BYTES // block_bytes)

    def touch(self, ids: Ids | None) -> None:
        """These blocks may have changed; None: all of them."""
        if ids is None:
            self._all_touched = True
        else:
            self._is_touched[ids] = True

    def measured(self) -> NDArray[np.float64]:
        """All distances, after measuring what was touched."""
        if self._all_touched:
            self._clear()
            self._distance = self._cache.score(self._blocks)
        for piece in self.pieces():
            self.measure(piece)
        return self._distance

    def kept(self) -> NDArray[np.float64]:
        """All distances as they are."""
        return self._distance

    def pieces(self) -> Iterator[Ids | slice]:
        """What was touched, in pieces; it does not count as touched any more."""
        if self._all_touched:
            self._clear()
            for first in range(0, len(self._blocks), self._piece_blocks):
                yield slice(first, min(first + self._piece_blocks, len(self._blocks)))
            return
        ids = np.flatnonzero(self._is_touched)
        self._is_touched[ids] = False
        for first in range(0, len(ids), self._piece_blocks):
            yield ids[first : first + self._piece_blocks]

    def measure(self, piece: Ids | slice) -> None:
        """Measure some blocks."""
        part = self._blocks.span(piece.start, piece.stop) if isinstance(piece, slice) else self._blocks.take(piece)
        self._distance[piece] = self._cache.score(part)

    def staged(self, ids: Ids, version: Version) -> None:
        """Blocks were chosen for a save; those that it really has are at distance 0."""
        is_in_it = self._cache.staged.commit[ids] == version.commit  # commits of one process are not used twice
        self._distance[ids if is_in_it.all() else ids[is_in_it]] = 0.0

    def _clear(self) -> None:
        self._all_touched = False
        self._is_touched[:] = False


class BackgroundScoring:
    """A thread that measures what was touched, between saves.

    Args:
        tables: to measure; looked into at every round.

    Example:
        >>> scoring = BackgroundScoring({})
        >>> with scoring.paused():      # nothing is measured meanwhile
        ...     pass
        >>> scoring.close()
    """

    def __init__(self, tables: Mapping[str, TableScores]) -> None:
        self._tables = tables
        self._condition = threading.Condition()
        self._is_wanted = False
        self._is_busy = False
        self._is_paused = False
        self._is_measuring = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="scar-scoring", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is something to measure."""
        with self._condition:
            self._is_wanted = True
            self._condition.notify_all()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is measured in this block. It is waited for one piece at most."""
        with self._condition:
            self._is_paused = True
            self._condition.wait_for(lambda: not self._is_measuring)
        try:
            yield
        finally:
            with self._condition:
                self._is_paused = False
                self._condition.notify_all()

    def wait_until_done(self) -> None:
        """Wait until everything that was touched before the last `wake` has been measured."""
        with self._condition:
            self._condition.wait_for(lambda: self._is_closed or not (self._is_wanted or self._is_busy))

    def close(self) -> None:
        """End the thread."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while self._begin_round():
            for table in list(self._tables.values()):
                pieces = table.pieces()
                while self._measure_next(table, pieces):
                    pass

    def _begin_round(self) -> bool:
        """Wait until there is something to measure; False at the end."""
        with self._condition:
            self._is_busy = False
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._is_closed or self._is_wanted)
            self._is_wanted, self._is_busy = False, True
            return not self._is_closed

    def _measure_next(self, table: TableScores, pieces: Iterator[Ids | slice]) -> bool:
        """Measure one piece, unless paused; whether there was one."""
        with self._condition:
            self._condition.wait_for(lambda: self._is_closed or not self._is_paused)
            if self._is_closed:
                return False
            self._is_measuring = True
        try:
            piece = next(pieces, None)
            if piece is not None:
                table.measure(piece)
            return piece is not None
        finally:
            with self._condition:
                self._is_measuring = False
                self._condition.notify_all()

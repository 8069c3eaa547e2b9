"""Giving back the space of blocks that have been saved again: a bounded piece of compaction after each save."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from scarml.errors import StoreError, SupersededError
from scarml.storage.compaction import Compactor, Limits
from scarml.storage.run_folder import RunFolder

__all__ = ["Tidying"]

_log = logging.getLogger(__name__)


class Tidying:
    """Compacts a run while it goes on; there is one in the process that owns the run.

    Args:
        run: its own way to the run folder.
        in_background: runs a task on another thread, one after the other.
        supersede: told, in words, if another process has taken the run over.
        limits: when to compact, and how much at once.
    """

    def __init__(
        self,
        run: RunFolder,
        in_background: Callable[[Callable[[], None]], None],
        supersede: Callable[[str], None],
        limits: Limits | None = None,
    ) -> None:
        self._run = run
        self._in_background = in_background
        self._supersede = supersede
        self._limits = limits
        self._compactor: Compactor | None = None
        self._term = 0
        self._is_waiting = False

    def after_save(self, term: int, live_nodes: Collection[str]) -> None:
        """A save has been committed in this term: see soon whether there is something to do.

        ``live_nodes``: names of the nodes that save now.
        """
        if not self._is_waiting:
            self._is_waiting = True
            self._in_background(lambda: self._step(term, live_nodes))

    def _step(self, term: int, live_nodes: Collection[str]) -> None:
        self._is_waiting = False
        if self._compactor is None or self._term != term:
            self._compactor, self._term = Compactor(self._run, term, self._limits), term
        try:
            step = self._compactor.step(live_nodes)
        except SupersededError as e:
            self._supersede(str(e))
        except StoreError as e:
            _log.warning("compaction is put off: %s", e)
        else:
            if step is not None:
                _log.debug("compacted: %s", step)
                self.after_save(term, live_nodes)

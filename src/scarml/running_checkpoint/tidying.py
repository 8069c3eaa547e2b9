"""Giving back the space of blocks that have been saved again: a bounded piece of compaction after each save."""

from __future__ import annotations

import logging
from collections.abc import Callable

from scarml.errors import StoreError, SupersededError
from scarml.running_checkpoint.state import NODE
from scarml.storage.compaction import Compactor

__all__ = ["Tidying"]

_log = logging.getLogger(__name__)


class Tidying:
    """Compacts the run in the thread that stores.

    Args:
        compactor: of the run, in the name of its term.
        call: runs a task in that thread, after what waits.
        supersede: told if another process has taken the run over.
    """

    def __init__(
        self, compactor: Compactor, call: Callable[[Callable[[], None]], None], supersede: Callable[[str], None]
    ) -> None:
        self._compactor = compactor
        self._call = call
        self._supersede = supersede
        self._is_waiting = False

    def after_save(self) -> None:
        """A save has been committed: see soon whether there is something to do."""
        if not self._is_waiting:
            self._is_waiting = True
            self._call(self._step)

    def _step(self) -> None:
        self._is_waiting = False
        try:
            step = self._compactor.step([NODE])
        except SupersededError as e:
            self._supersede(str(e))
        except StoreError as e:
            _log.warning("compaction is put off: %s", e)
        else:
            if step is not None:
                _log.debug("compacted: %s", step)
                self.after_save()

"""The driver's one compactor: a bounded piece after each save, in the background, in the name of the present term."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from scarml.control import messages as m
from scarml.control.view import NodeId
from scarml.errors import StoreError, SupersededError
from scarml.storage.compaction import Compactor, Limits
from scarml.storage.run_folder import RunFolder

__all__ = ["Tidying"]

_log = logging.getLogger(__name__)


class Tidying:
    """Compacts a run while it goes on.

    Args:
        run: the driver's own way to the run folder.
        in_background: runs a task, one after the other.
        post: brings an event to the controller.
        limits: when to compact, and how much at once.
    """

    def __init__(
        self,
        run: RunFolder,
        in_background: Callable[[Callable[[], None]], None],
        post: Callable[[m.Event], None],
        limits: Limits | None,
    ) -> None:
        self._run = run
        self._in_background = in_background
        self._post = post
        self._limits = limits
        self._compactor: Compactor | None = None
        self._term = 0
        self._is_waiting = False

    def after_save(self, term: int, live_nodes: Collection[NodeId]) -> None:
        """A save has been committed: see soon whether there is something to compact."""
        if self._is_waiting:
            return
        self._is_waiting = True
        nodes = tuple(live_nodes)
        self._in_background(lambda: self._step(term, nodes))

    def _step(self, term: int, live_nodes: Collection[NodeId]) -> None:
        self._is_waiting = False
        if self._compactor is None or self._term != term:
            self._compactor, self._term = Compactor(self._run, term, self._limits), term
        try:
            step = self._compactor.step(live_nodes)
        except SupersededError as e:
            self._post(m.Superseded(str(e)))
        except StoreError as e:
            _log.warning("compaction is put off: %s", e)
        else:
            if step is not None:
                _log.debug("compacted: %s", step)
                self.after_save(term, live_nodes)

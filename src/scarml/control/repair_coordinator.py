"""The repair coordinator: after lost blocks have been restored, the model mends them, phase by phase.

Each phase of a repair is an atomic phase like any other, but over the lost blocks alone (`scarml.core.repair`), and its
commit is one more version. So a failure in the middle leaves whole values that training really had. What is lost then
is restored as well, and the repair begins again, for all blocks that have been restored and not yet mended.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scarml.control import messages as m
from scarml.control.view import Layout
from scarml.core.block import Ids
from scarml.core.model import Context
from scarml.core.repair import repair_phases, work_iters

__all__ = ["RepairCoordinator"]


class RepairCoordinator:
    """Knows what is to be mended, and how far that has come.

    Args:
        layout: of the run.
        n_phases: of the model.
        n_repair_phases: of the model; 0: what was restored stays as it is.
    """

    def __init__(self, layout: Layout, n_phases: int, n_repair_phases: int) -> None:
        self._layout = layout
        self._n_phases = n_phases
        self._n_repair_phases = n_repair_phases
        self.unmended: dict[str, Ids] = {}
        """Per table the blocks that have been restored since the last repair, ascending."""
        self._n_done = 0
        self._n_examples = 0
        self._n_examples_of_phase = 0

    @property
    def is_on(self) -> bool:
        """Whether lost blocks are mended at all."""
        return self._n_repair_phases > 0

    @property
    def is_pending(self) -> bool:
        """Whether there is something to mend."""
        return bool(self.unmended)

    def lose(self, lost: Mapping[str, Ids]) -> None:
        """These are being restored: a repair begins, or begins again."""
        if not self.is_on:
            return
        nothing = np.zeros(0, np.int64)
        for name, ids in lost.items():
            if len(ids):
                self.unmended[name] = np.union1d(self.unmended.get(name, nothing), ids)
        self._n_done = 0

    def begin(self, upcoming: Context) -> tuple[Context, list[m.Action]]:
        """The next phase of the repair, and what there is to say; ``upcoming`` is the phase that training stands at."""
        ctx = repair_phases(self._n_repair_phases, self._n_phases, upcoming)[self._n_done]
        self._n_examples_of_phase = 0
        if self._n_done:
            return ctx, []
        n_blocks = sum(map(len, self.unmended.values()))
        return ctx, [m.report("repair_started", n_blocks=n_blocks, n_phases=self._n_repair_phases)]

    def note_work(self, n_examples: int) -> None:
        """A node has gone through so many examples in the phase under way."""
        self._n_examples_of_phase += n_examples

    def on_committed(self, iteration: int) -> list[m.Action]:
        """The phase under way has been committed."""
        self._n_done += 1
        self._n_examples += self._n_examples_of_phase
        if self._n_done < self._n_repair_phases:
            return []
        n_blocks = sum(map(len, self.unmended.values()))
        done = work_iters(self._n_examples, self._layout.n_examples, self._n_phases)
        self.unmended, self._n_done, self._n_examples = {}, 0, 0
        return [
            m.report(
                "repair_completed",
                n_blocks=n_blocks,
                work_iters=done,
                iteration=iteration,
                perturbation=None,
                perturbation_is_exact=False,
            )
        ]

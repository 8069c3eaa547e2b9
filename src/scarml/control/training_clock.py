"""Where training stands: commits, phases and iterations.

Commits are counted and only grow. The iteration is a label: a full recovery takes it back.
"""

from __future__ import annotations

from scarml.core.model import Context

__all__ = ["TrainingClock"]


class TrainingClock:
    """Counts commits, phases and iterations.

    Args:
        n_phases: of the model.
        seed: of the run.
    """

    def __init__(self, n_phases: int, seed: int) -> None:
        self._n_phases = n_phases
        self._seed = seed
        self.commit = 0
        """Number of the last commit."""
        self.iteration = 0
        """x(iteration) is the state at the last boundary."""
        self.phase = 0
        """The phase to be computed next; 0 at a boundary."""
        self.executed = 0
        """Iterations done so far, those done again after a full recovery counted again."""

    @property
    def at_boundary(self) -> bool:
        """Whether a whole number of iterations has been committed."""
        return self.phase == 0

    def context(self) -> Context:
        """The phase to be computed next."""
        return Context(self._seed, self.iteration + 1, self.phase)

    def start(self, commit: int, iteration: int, executed: int) -> None:
        """Go on from what a store holds."""
        self.commit, self.iteration, self.phase, self.executed = commit, iteration, 0, executed

    def advance(self) -> bool:
        """A phase has been committed. Returns whether that ended an iteration."""
        self.commit += 1
        self.phase += 1
        if self.phase < self._n_phases:
            return False
        self.phase = 0
        self.iteration += 1
        self.executed += 1
        return True

    def count_commit(self) -> None:
        """What has been committed is no phase of an iteration: a rebuild of derived tables, or a phase of a repair."""
        self.commit += 1

    def rewind(self, iteration: int) -> None:
        """Everything has been taken back to x(``iteration``); commits go on counting."""
        self.iteration, self.phase = iteration, 0

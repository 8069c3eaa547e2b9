"""What the laboratory trains: a model on its data, with a criterion, from any state and any commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from scarml.core.block import Blocks, Ids, Table
from scarml.core.model import Context, Model
from scarml.core.rng import stream
from scarml.core.sequential import Sequential, State
from scarml.errors import UsageError
from scarml.models import registry
from scarml.theory.perturbation import perturbation_norm

__all__ = ["Measured", "Panel", "Problem", "Told", "Trainer", "nobody", "trainer_for"]

Measured = Literal["loss_sum", "distance"]
"""What the criterion is about: the summed loss, or the distance ‖x(k) − x*‖ to an optimum that the model knows."""


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A model on its data, and when it has converged.

    Args:
        model: the algorithm.
        data: what it takes.
        criterion: converged when the summed loss is below it, or with ``optimum`` the distance.
        seed: of all random values of the training.
        n_shards: how finely the data is cut.
        optimum: x*, where the criterion is about ‖x(k) − x*‖ instead of the loss.
        smoothed_iters: the criterion is about the mean of the losses of so many iterations up to now, where single
            ones go up and down by more than an iteration's progress.
    """

    model: Model
    data: Any
    criterion: float
    seed: int = 0
    n_shards: int = 16
    optimum: State | None = None
    smoothed_iters: int = 1


@dataclass(frozen=True, slots=True)
class Panel:
    """A problem by name, so that every process can load it for itself.

    Args:
        model: as for `scarml.models.registry.model_class`.
        data: as for `scarml.data.registry.load`, or None for the model's own data.
        criterion: None for what the model declares.
        seed, n_shards: as in `Problem`.
        hyper_parameters: pairs of name and value, for what differs from what the model declares for the data.
        measured: what the criterion is about.
        smoothed_iters: as in `Problem`.
        noisy: the algorithm draws random values while it trains, so that every trial needs controls of its own.
        label: instead of the name that model and data give.

    Example:
        >>> Panel("mlr", "mnist").name
        'mlr-mnist'
    """

    model: str
    data: str | None = None
    criterion: float | None = None
    seed: int = 0
    n_shards: int = 16
    hyper_parameters: tuple[tuple[str, Any], ...] = ()
    measured: Measured = "loss_sum"
    smoothed_iters: int = 1
    noisy: bool = False
    label: str = ""

    @property
    def name(self) -> str:
        """For files and tables."""
        model, data = (given.rpartition(":")[2] for given in (self.model, self.data or ""))
        return self.label or model.lower() + (f"-{data.rpartition('/')[2]}" if data else "")

    def load(self) -> Problem:
        """The problem.

        Raises:
            UsageError: if the model declares no criterion and none was given; also what the registry raises.
        """
        model = registry.model_class(self.model)
        criterion = registry.defaults_for(model, self.data).stop_loss_sum if self.criterion is None else self.criterion
        if criterion is None:
            raise UsageError(f"{self.name} declares no criterion; give one, midway between two successive losses")
        data = registry.data_for(model, self.data)
        created = registry.create(model, self.data, **dict(self.hyper_parameters))
        optimum = _optimum(created, data) if self.measured == "distance" else None
        return Problem(created, data, criterion, self.seed, self.n_shards, optimum, self.smoothed_iters)


def _optimum(model: Model, data: Any) -> State:
    """Of a model with one table, which has it as its ``optimum``."""
    known = getattr(model, "optimum", None)  # optional for users' models, so not part of the protocol
    if known is None:
        raise UsageError(f"{type(model).__name__} does not know its optimum; measure its summed loss")
    (table,) = model.tables(data)
    return {table.name: Blocks(table, table.all_ids, {"value": np.array(known)})}


def nobody(_: Trainer) -> None:
    """Nobody is told of a run's commits."""


Told = Callable[["Trainer"], None]
"""Is called after every commit of a run."""


class Trainer:
    """Trains one problem again and again, each time from a state that it is given.

    Cutting the data into shards may take longer than an iteration, so it is done once.

    Args:
        problem: what to train.

    Example:
        >>> import scarml as scar
        >>> trainer = Trainer(Problem(scar.QP(), None, criterion=1e-3))
        >>> trainer.next_iteration(); trainer.iterations
        1.0
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.n_phases = problem.model.n_phases
        self.commit = 0
        """Commits done: iteration and phase in one number."""
        self._run = Sequential(problem.model, problem.data, seed=problem.seed, n_shards=problem.n_shards)
        self._seed = problem.seed
        self._initial = self.state()

    @property
    def tables(self) -> Sequence[Table]:
        """The tables that are saved, in the model's order: all but the derived ones."""
        return [t for t in self._run.tables.values() if not t.derived]

    @property
    def initial(self) -> State:
        """x(0). Do not write into it."""
        return self._initial

    @property
    def iterations(self) -> float:
        """Iterations done; between phases, not a whole number."""
        return self.commit / self.n_phases

    @property
    def at_boundary(self) -> bool:
        """Whether whole iterations have been done."""
        return self.commit % self.n_phases == 0

    def with_criterion(self, criterion: float) -> Trainer:
        """Another one, which shares the data and the state with this one: `start` begins anew."""
        other = copy(self)
        other.problem = replace(self.problem, criterion=criterion)
        return other

    def state(self) -> State:
        """A copy of all blocks but derived ones."""
        return {t.name: self._run.state[t.name].copy() for t in self.tables}

    @property
    def uses(self) -> Mapping[str, Ids]:
        """Of the last commit, see `Sequential.uses`."""
        return self._run.uses

    def start(self, state: State, commit: int, key: int | None = None) -> None:
        """Go on from ``state``, of which a copy is taken, as the state after ``commit``.

        With a ``key`` the random values from here on are others, of their own for each key. A noisy algorithm is
        otherwise compared with what one stream of them happened to do.
        """
        for t in self.tables:
            self._run.state[t.name].put(state[t.name])
        self._run.rebuild()
        self.commit = commit
        seed = self.problem.seed
        self._seed = seed if key is None else int(stream(seed, "re-keyed", key).integers(1 << 31))

    def next_commit(self) -> None:
        """One phase."""
        self._run.run_phase(self._upcoming())
        self.commit += 1

    def next_iteration(self, told: Told = nobody) -> None:
        """All phases up to the next whole iteration.

        Args:
            told: is called after each.
        """
        while True:
            self.next_commit()
            told(self)
            if self.at_boundary:
                return

    def repair(self, lost: Mapping[str, Ids]) -> float:
        """Mend blocks that have just been restored. Returns its work in iterations; see `scarml.core.repair`."""
        return self._run.repair(lost, self._upcoming())

    def loss_sum(self) -> float:
        """The loss of the present state, or with a known optimum the distance from it."""
        optimum = self.problem.optimum
        if optimum is None:
            return self._run.loss_sum()
        pairs = [(self._run.state[name], x) for name, x in optimum.items()]
        return perturbation_norm(pairs, self.problem.model.distance)

    def _upcoming(self) -> Context:
        iteration, phase = divmod(self.commit, self.n_phases)
        return Context(self._seed, iteration + 1, phase)


@lru_cache(maxsize=1)  # a data set may fill much of the memory
def trainer_for(panel: Panel) -> Trainer:
    """This process's trainer of a panel."""
    return Trainer(panel.load())

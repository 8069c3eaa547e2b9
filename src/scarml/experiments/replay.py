"""The running checkpoint of one strategy, replayed along a trajectory.

Servers save through `SaveSelector` (when, how much, which blocks) and `BlockCache` (score, stage, mark durable); so
does the replay. It adds only a store that is a dictionary, and the moment when a save becomes durable.

The *lag* is counted in commits: a save of the state after commit s is durable for a failure that strikes on the state
after commit f if s + lag ≤ f. With lag 0 the save of x(T) is durable when a failure strikes in the next phase; with lag
1 it is not yet, and the save before is the newest. Between the phases of an iteration, one commit after x(T), the two
are the same.

After a failure that a save in flight has met, survivors finish their part of it. With lag 1 and a policy that asks for
distances or uses those are still being measured, and the save is void, as on servers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from scarml.checkpoint.block_cache import BlockCache
from scarml.checkpoint.selection import Checkpoint, SaveSelector
from scarml.checkpoint.version_index import Version, Versions
from scarml.core.block import Blocks, Ids
from scarml.core.sequential import State
from scarml.errors import UsageError
from scarml.experiments.problem import Trainer
from scarml.experiments.trajectory import Trajectory, Used

__all__ = ["Durable", "ReplayedCheckpoint", "replay"]

_TERM = 1


@dataclass(frozen=True, slots=True, eq=False)
class Durable:
    """What a store would restore.

    Args:
        blocks: per table the newest durable value of every block.
        iterations: per table the iteration of each of them, shape (n_blocks,); 0 for x(0).
    """

    blocks: State
    iterations: Mapping[str, Ids]


@dataclass(frozen=True, slots=True, eq=False)
class _InFlight:
    save_id: int
    commit: int
    staged: Mapping[str, Blocks]


class ReplayedCheckpoint:
    """The running checkpoint, told of one commit after the other.

    Args:
        trainer: what is trained.
        checkpoint: what is saved, and how often.
        lag: commits until a save is durable.
    """

    def __init__(self, trainer: Trainer, checkpoint: Checkpoint, lag: int = 0) -> None:
        if lag < 0 or lag != int(lag):
            raise UsageError(f"the lag is {lag} commits; expected a whole number of at least 0")
        distance = trainer.problem.model.distance
        encodings = checkpoint.encodings(trainer.tables)
        self._selector = SaveSelector(checkpoint, trainer.tables, trainer.problem.seed)
        self._caches = {
            t.name: BlockCache(trainer.initial[t.name], Versions.initial(t.n_blocks), distance, encodings.get(t.name))
            for t in trainer.tables
        }
        self._store = {name: blocks.copy() for name, blocks in trainer.initial.items()}
        self._n_phases = trainer.n_phases
        self._lag = lag
        self._measured: tuple[Version, State] | None = None  # the save that they are measured for
        self._in_flight: _InFlight | None = None
        self._n_saves = 0

    def commit(self, commit: int, state: State, uses: Mapping[str, Used]) -> None:
        """The state after ``commit`` is visible: what was written long enough ago is durable; save, if it is time.

        Args:
            commit, state: the state after it, which must stay as it is.
            uses: per table, since the call before.
        """
        if self._measured is not None:
            self._save(*self._measured)
        for name, used in uses.items():
            self._caches[name].use(used.ids, used.n)
        if self._in_flight is not None and self._in_flight.commit + self._lag <= commit:
            self._mark_durable(self._in_flight)
        iteration, phase = divmod(commit, self._n_phases)
        if phase == 0 and self._selector.is_due(iteration):
            self._selector.earn()
            if self._in_flight is None:  # else it is skipped, as by the coordinator: one save at a time
                version = Version(_TERM, commit, iteration)
                if self._selector.needs and self._lag > 0:
                    self._measured = version, state
                else:
                    self._save(version, state)

    def durable(self) -> Durable:
        """A copy of what would be restored now."""
        return Durable(
            {name: blocks.copy() for name, blocks in self._store.items()},
            {name: cache.durable.iteration.copy() for name, cache in self._caches.items()},
        )

    def restored(self, lost: Mapping[str, Ids]) -> None:
        """These blocks have just been restored from the store, since the servers that held them were lost.

        It goes as on servers: the lost caches are gone, and with them their part of a save in flight, or all of it
        if it is still being measured; survivors adopt what was restored. After a full recovery all blocks are such.

        Args:
            lost: per table their ids, ascending.
        """
        self._measured = None
        if self._in_flight is not None:
            self._in_flight = _without(self._in_flight, lost)
        for name, ids in lost.items():
            cache = self._caches[name]
            versions = cache.durable.take(ids)
            cache.keep(np.setdiff1d(cache.ids, ids, assume_unique=True))
            cache.adopt(self._store[name].take(ids), versions)

    def _save(self, version: Version, state: State) -> None:
        self._measured = None
        caches, needs = self._caches.items(), self._selector.needs
        distances = {name: cache.score(state[name]) for name, cache in caches} if "distance" in needs else None
        n_uses = {name: cache.uses() for name, cache in caches} if "n_uses" in needs else None
        self._n_saves += 1
        staged = {
            name: self._caches[name].stage(state[name], ids, version, self._n_saves)[0]
            for name, ids in self._selector.select(distances, n_uses).items()
        }
        self._in_flight = _InFlight(self._n_saves, version.commit, staged)
        if self._lag == 0:
            self._mark_durable(self._in_flight)

    def _mark_durable(self, save: _InFlight) -> None:
        for name, staged in save.staged.items():
            self._store[name].put(staged)
            self._caches[name].mark_durable(save.save_id)
        self._in_flight = None


def _without(save: _InFlight, lost: Mapping[str, Ids]) -> _InFlight | None:
    """What the other servers write of a save; None if that is nothing."""
    kept = {
        name: staged.take(np.setdiff1d(staged.ids, lost[name], assume_unique=True)) if name in lost else staged
        for name, staged in save.staged.items()
    }
    return replace(save, staged=kept) if any(len(staged) for staged in kept.values()) else None


def replay(
    trainer: Trainer, trajectory: Trajectory, checkpoint: Checkpoint, lag: int, commits: Iterable[int]
) -> dict[int, Durable]:
    """What a failure on the state after each of ``commits`` would find on the store.

    Returns:
        Per commit the durable state.
    """
    wanted = set(commits)
    running = ReplayedCheckpoint(trainer, checkpoint, lag)
    found = {0: running.durable()} if 0 in wanted else {}
    last = max(wanted, default=0)
    for commit in sorted(c for c in trajectory.states if 0 < c <= last):  # saves fall due at whole iterations only
        running.commit(commit, trajectory.states[commit], trajectory.uses[commit])
        if commit in wanted:
            found[commit] = running.durable()
    return found

"""Nine ways in which SCAR could be subtly wrong, each as a function that makes it so.

Each takes out one line of defence and nothing else. `test_mutations` shows that the simulation notices every one of
them, so that a green simulation means something.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from scarml.checkpoint.block_cache import BlockCache
from scarml.control import messages as m
from scarml.control.checkpoint_coordinator import CheckpointCoordinator, SaveStep
from scarml.control.recovery_coordinator import RecoveryCoordinator
from scarml.engine.node import BlockHolder, Reply
from scarml.engine.server import Server
from scarml.storage.local import LocalStore
from scarml.storage.run_folder import RunFolder
from scarml.storage.simulated_disk import SimulatedDisk

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mutation.

    Args:
        name: what is wrong.
        apply: makes it so.
        first_seed: where the search for a life that notices begins; some have to be searched for long.
    """

    name: str
    apply: Patch
    first_seed: int = 0


def _no_fsync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDisk, "sync", lambda self, path, inode: self._begin("sync", path))


def _fsync_after_rename(patch: pytest.MonkeyPatch) -> None:
    def put(self: LocalStore, name: str, chunks: Iterable[Any]) -> None:
        path = self._path(name)
        self._make_durable_folder(posixpath.dirname(path))
        temporary = f"{path}.{next(self._counter)}.{self._token}.tmp"
        file = self._files.create(temporary)
        for chunk in chunks:
            file.write(chunk)
        self._files.rename(temporary, path)
        file.sync()
        file.close()
        self._files.sync_folder(posixpath.dirname(path))

    patch.setattr(LocalStore, "put", put)


def _no_folder_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDisk, "sync_folder", lambda self, path: self._begin("sync_folder", path))


def _no_view_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BlockHolder, "obeys", lambda self, view: self.view is not None)


def _no_term_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RunFolder, "check_term", lambda self, term: None)


def _no_repeat_check(patch: pytest.MonkeyPatch) -> None:
    """Fold whatever comes, as a server would that counts updates instead of knowing them."""

    def push(self: Server, order: m.Push) -> list[Any]:
        if not self.holder.obeys(order.view) or order.commit != self.holder.commit + 1:
            return []
        for update in order.updates:
            self._accumulator(update.table).fold(update)
        self.n_folded += 1
        done = self.n_folded == self._layout.n_shards
        return [Reply(m.Prepared(self.name, order.view, order.commit))] if done else []

    patch.setattr(Server, "_push", push)


def _survivors_rolled_back(patch: pytest.MonkeyPatch) -> None:
    original = RecoveryCoordinator.lose

    def lose(self: RecoveryCoordinator, nodes: Any) -> None:
        original(self, nodes)
        self.unsettle_all()

    patch.setattr(RecoveryCoordinator, "lose", lose)


def _durable_when_staged(patch: pytest.MonkeyPatch) -> None:
    original = BlockCache.stage

    def stage(self: BlockCache, current: Any, ids: Any, version: Any, save_id: int, *more: Any) -> Any:
        staged = original(self, current, ids, version, save_id, *more)
        self.mark_durable(save_id)
        return staged

    patch.setattr(BlockCache, "stage", stage)


def _unit_before_complete(patch: pytest.MonkeyPatch) -> None:
    original = CheckpointCoordinator._progress

    def progress(self: CheckpointCoordinator, save: Any) -> Any:
        if self._selector.is_full and self.step is SaveStep.STAGING and not save.staging:
            save.writing.clear()
        return original(self, save)

    patch.setattr(CheckpointCoordinator, "_progress", progress)


MUTATIONS = (
    Mutation("fsync left out", _no_fsync),
    Mutation("fsync after rename", _fsync_after_rename, first_seed=700),
    Mutation("folder not synced", _no_folder_sync),
    Mutation("view check dropped", _no_view_check),
    Mutation("term check dropped", _no_term_check, first_seed=800),
    Mutation("repeat check dropped", _no_repeat_check),
    Mutation("survivors rolled back", _survivors_rolled_back),
    Mutation("cache marked durable before it is", _durable_when_staged),
    Mutation("full save counted before complete", _unit_before_complete),
)

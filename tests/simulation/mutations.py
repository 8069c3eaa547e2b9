"""Ways in which SCAR could be subtly wrong, each as a function that makes it so.

Each takes out one line of defence and nothing else. `test_mutations` shows that the simulation notices every one of
them, so that a green simulation means something.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from scarml.checkpoint.block_cache import BlockCache, CachePart
from scarml.checkpoint.version_index import Version, Versions
from scarml.control import messages as m
from scarml.control.checkpoint_coordinator import CheckpointCoordinator, SaveStep
from scarml.control.controller import Controller
from scarml.control.recovery_coordinator import RecoveryCoordinator
from scarml.control.repair_coordinator import RepairCoordinator
from scarml.core.model import ALL
from scarml.engine import worker
from scarml.engine.node import BlockHolder, Handed, HandOver, Reply, Store, Stored
from scarml.engine.node_host import NodeHost
from scarml.engine.server import Server
from scarml.engine.simulation import incarnation
from scarml.storage.background_writer import SaveJob, write_job
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
        faults: if given, only these strike in the lives that are searched; what it takes is rare in others.
    """

    name: str
    apply: Patch
    first_seed: int = 0
    faults: tuple[str, ...] = ()

    def concentrate(self, patch: pytest.MonkeyPatch) -> None:
        """Let only its faults strike."""
        if self.faults:
            patch.setattr(incarnation, "_FAULTS", [f for f in incarnation._FAULTS if f[0] in self.faults])


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
    """The controller has survivors load what they hold, and they obey: the one without the other does no harm."""
    lose, load = RecoveryCoordinator.lose, BlockHolder._load

    def lose_all(self: RecoveryCoordinator, *args: Any) -> None:
        lose(self, *args)
        self.unsettle_all()

    def load_all(self: BlockHolder, *args: Any) -> Any:
        term, self.term = self.term, -1  # what they hold is thought to be of another term
        try:
            return load(self, *args)
        finally:
            self.term = term

    patch.setattr(RecoveryCoordinator, "lose", lose_all)
    patch.setattr(BlockHolder, "_load", load_all)


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


def _giver_forgets(patch: pytest.MonkeyPatch) -> None:
    original = BlockHolder._take_over

    def take_over(self: BlockHolder, *args: Any) -> None:
        original(self, *args)
        self._outgoing = {}

    patch.setattr(BlockHolder, "_take_over", take_over)


def _no_lease_check(patch: pytest.MonkeyPatch) -> None:
    def store(self: NodeHost, output: Store) -> None:
        if not self._is_over:
            self._to_itself(Stored(output.segment.save_id, write_job(self._folder, SaveJob(output.segment))))

    patch.setattr(NodeHost, "_store", store)


def _hand_over_during_a_save(patch: pytest.MonkeyPatch) -> None:
    original = Controller._proceed

    def proceed(self: Controller) -> list[m.Action]:
        change = self.membership.change(self.view)
        return original(self) if self._lost or change.is_empty else self._reshape(change)

    patch.setattr(Controller, "_proceed", proceed)


def _without_cache(patch: pytest.MonkeyPatch, version_of: Callable[[BlockHolder], Version]) -> None:
    """Who takes blocks over believes of all of them what ``version_of`` says, instead of what their giver knew."""
    original = BlockHolder._add_handed

    def add_handed(self: BlockHolder, handed: Handed) -> None:
        believed: Handed = {}
        for name, parts in handed.items():
            for part in parts:
                versions = Versions.initial(len(part.blocks))
                versions.set(np.arange(len(versions)), version_of(self))
                nobody = np.zeros(len(versions), bool)
                known = {"durable": versions, "staged": versions, "given_up": nobody, "taken_over": nobody}
                cache = replace(part.cache, saved=part.blocks, **known)
                believed.setdefault(name, []).append(HandOver(part.blocks, cache))
        original(self, believed)

    patch.setattr(BlockHolder, "_add_handed", add_handed)


def _claims_too_much(patch: pytest.MonkeyPatch) -> None:
    _without_cache(patch, lambda holder: Version(holder.term, holder.commit, 0))


def _claims_too_little(patch: pytest.MonkeyPatch) -> None:
    _without_cache(patch, lambda holder: Version(0, 0, 0))


def _hands_over_no_counts(patch: pytest.MonkeyPatch) -> None:
    original = BlockCache.part

    def part(self: BlockCache, ids: Any) -> CachePart:
        whole = original(self, ids)
        return replace(whole, n_uses=np.zeros_like(whole.n_uses))

    patch.setattr(BlockCache, "part", part)


def _counts_dropped_phases(patch: pytest.MonkeyPatch) -> None:
    original = Server._forget_phase

    def forget(self: Server) -> None:
        for name, accumulator in self._accumulators.items():
            if name in self.holder.caches:
                self.holder.caches[name].use(ALL, accumulator.n_updates)
        original(self)

    patch.setattr(Server, "_forget_phase", forget)


def _forgets_earlier_losses(patch: pytest.MonkeyPatch) -> None:
    original = RepairCoordinator.lose

    def lose(self: RepairCoordinator, lost: Mapping[str, Any]) -> None:
        self.unmended = {}
        original(self, lost)

    patch.setattr(RepairCoordinator, "lose", lose)


def _goes_on_where_it_was(patch: pytest.MonkeyPatch) -> None:
    original = RepairCoordinator.lose

    def lose(self: RepairCoordinator, lost: Mapping[str, Any]) -> None:
        n_done = self._n_done
        original(self, lost)
        self._n_done = n_done

    patch.setattr(RepairCoordinator, "lose", lose)


def _mends_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(worker, "lost_part", lambda model, ctx, shard, lost: shard)
    patch.setattr(worker, "check_mended", lambda *_: None)


def _mended_is_durable(patch: pytest.MonkeyPatch) -> None:
    original = Server._commit

    def commit(self: Server, order: m.CommitPhase) -> Any:
        outputs = original(self, order)
        if outputs and order.ctx.repair:
            for cache in self.holder.caches.values():
                cache.durable.set(np.arange(len(cache.ids)), Version(self.holder.term, order.commit, 0))
        return outputs

    patch.setattr(Server, "_commit", commit)


MUTATIONS = (
    Mutation("fsync left out", _no_fsync),
    Mutation("fsync after rename", _fsync_after_rename, faults=("power loss in a file operation",)),
    Mutation("folder not synced", _no_folder_sync),
    Mutation("view check dropped", _no_view_check, faults=("kill one", "slow one down")),
    Mutation("term check dropped", _no_term_check, faults=("driver cut off", "store slow", "slow one down")),
    Mutation("repeat check dropped", _no_repeat_check),
    Mutation("survivors rolled back", _survivors_rolled_back),
    Mutation("cache marked durable before it is", _durable_when_staged),
    Mutation("full save counted before complete", _unit_before_complete),
    Mutation("the giver forgets its blocks at once", _giver_forgets),
    Mutation("lease not checked before storing", _no_lease_check, faults=("pause two", "store slow")),
    Mutation("hand-over while a save is in flight", _hand_over_during_a_save, faults=("scale", "store slow")),
    Mutation("blocks handed over without cache, all taken for durable", _claims_too_much),
    Mutation(
        "blocks handed over without cache, none taken for durable",
        _claims_too_little,
        faults=("scale", "drain one", "driver cut off"),
    ),
    Mutation("numbers of uses not handed over", _hands_over_no_counts, faults=("scale", "drain one")),
    Mutation("uses of a dropped phase counted", _counts_dropped_phases),
    Mutation("a repair forgets what was lost before", _forgets_earlier_losses, faults=("kill one", "kill one again")),
    Mutation("a repair is not begun again", _goes_on_where_it_was, 100, ("kill one", "kill one again")),
    Mutation("a repair mends survivors too", _mends_everything),
    Mutation("mended blocks taken for durable", _mended_is_durable),
)

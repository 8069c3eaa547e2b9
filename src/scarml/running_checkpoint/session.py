"""One process's work on a run: the folder it owns, the term it has claimed, and the saves it makes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from scarml.checkpoint.selection import SaveSelector
from scarml.checkpoint.version_index import Version
from scarml.control.checkpoint_coordinator import CheckpointCoordinator
from scarml.control.history import Record
from scarml.control.recovery_coordinator import RecoveryCoordinator
from scarml.control.view import Layout
from scarml.core.block import Ids
from scarml.errors import DamagedError, StoppedError, StoreError
from scarml.running_checkpoint.extra import unpack
from scarml.running_checkpoint.history import History
from scarml.running_checkpoint.opening import describe, open_folder
from scarml.running_checkpoint.reports import CheckpointStatus, RestoreReport
from scarml.running_checkpoint.saver import Begun, Saver
from scarml.running_checkpoint.scores import BackgroundScoring
from scarml.running_checkpoint.settings import Settings
from scarml.running_checkpoint.state import NODE, State, Taken
from scarml.storage.event_log import BufferedEventLog
from scarml.storage.node_saves import NodeSaves
from scarml.storage.run_folder import RunFolder
from scarml.storage.store import Store
from scarml.storage.tidying import Tidying

__all__ = ["Found", "Session", "restore_report"]


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What was restored: the iteration to go on from, blocks, and extra state with its iteration; None in a new run."""

    iteration: int
    taken: Taken
    extra: dict[str, Any] | None
    extra_iteration: int | None


class Session:
    """An opened run. Made by `opened`.

    Args:
        folder: owned by this process.
        term: claimed by it.
        state: the user's tables.
        settings: what the user chose.
    """

    def __init__(self, folder: RunFolder, term: int, state: State, settings: Settings) -> None:
        self._folder = folder
        self._term = term
        self._state = state
        self._commit = 0
        self.last_begun = Begun()
        """What the last `save_everything` chose."""
        self.history = History(
            BufferedEventLog(partial(folder.append_events, term), self._in_background), settings.on_event
        )
        tables = {name: b.table for name, b in state.blocks.items()}
        # A seed of its own for each term: else every start would draw the same blocks as the one before.
        self._selector = SaveSelector(settings.checkpoint, list(tables.values()), settings.seed + term)
        layout = Layout(tables, {name: [t.all_ids] for name, t in tables.items()}, n_shards=0)
        coordinator = CheckpointCoordinator(
            self._selector, layout, RecoveryCoordinator(layout, [NODE], []), itertools.count().__next__
        )
        in_background = settings.scoring == "background" and "distance" in self._selector.needs
        saves = NodeSaves(NODE, state.blocks, state.caches, settings.encodings, partial(state.distances, in_background))
        self._saver = Saver(folder, coordinator, saves, self._take_in)
        self._tidying = Tidying(folder, self._saver.call, self._saver.supersede)
        self._scoring = BackgroundScoring(state.scores) if in_background else None

    @classmethod
    @contextmanager
    def opened(cls, store: Store, where: str, state: State, settings: Settings) -> Iterator[Session]:
        """Own the run until the end of the block; what is in flight then is waited for.

        Raises:
            RunExistsError, RunInUseError, UsageError: the folder cannot be used so.
            StoreError: it cannot be read or written.
        """
        description = describe(state.blocks.values(), settings.checkpoint, settings.seed)
        folder = open_folder(store, where, settings.resume, description)
        sessions: list[Session] = []

        def on_lost(cause: str) -> None:
            for session in sessions:
                session._saver.supersede(cause)

        with ExitStack() as stack:
            stack.enter_context(folder.owned(on_lost=on_lost))
            term = folder.claim_term("new" if folder.last_term() is None else "parent")
            session = cls(folder, term, state, settings)
            sessions.append(session)
            stack.callback(session._close)
            yield session

    # -------------------------------------------------------------------------------------------------------- restoring
    def restore(self, extra: dict[str, Any] | None) -> Found | None:
        """Fill the arrays; or, if nothing has been saved, save what they hold as x(0), and return None.

        Raises:
            DamagedError: there are segments, and none can be read.
            StoreError: the store cannot be read, or x(0) cannot be saved.
        """
        self.wait_until_settled()
        with self.quiet():
            reader = self._folder.reader(self._term)
            newest = reader.newest_version()
            if newest is None:
                for damage in reader.damaged_segments():
                    raise DamagedError(
                        f"nothing that this run has saved can be read; it is not begun anew: {damage.problem}"
                    )
                self._state.start_anew()
                self._tell_start(0)
                self._save_x0(extra)
                return None
            taken = self._state.restore(reader)
            stored = reader.newest_extra()
        self._commit = max(self._commit, newest.commit)
        self.history.durable_iteration = newest.iteration
        self._tell_start(newest.iteration)
        for text in taken.damaged:
            self.history.tell("copy_damaged", node=NODE, detail=text)
        self._tell_restored("start", newest.iteration, taken)
        return Found(
            newest.iteration, taken, unpack(stored[1]) if stored else None, stored[0].iteration if stored else None
        )

    def _save_x0(self, extra: dict[str, Any] | None) -> None:
        self._saver.save_all_changed(self._next_version(0), extra)
        if self.history.given_up is not None:
            raise StoreError(f"x(0) could not be saved, so training cannot begin: {self.history.given_up}")

    def recover(self, lost: Mapping[str, Ids], iteration: int) -> tuple[Taken, float | None]:
        """Fill in only the lost blocks. See `State.recover`."""
        self.wait_until_settled()
        with self.quiet():
            taken, perturbation = self._state.recover(self._folder.reader(self._term), lost)
        for text in taken.damaged:
            self.history.tell("copy_damaged", node=NODE, detail=text)
        self._tell_restored("partial", iteration, taken, perturbation=perturbation)
        return taken, perturbation

    # ----------------------------------------------------------------------------------------------------------- saving
    def is_due(self, iteration: int, after: int) -> bool:
        """Whether a save falls due at this boundary."""
        return self._selector.n_due(iteration, after) > 0

    @property
    def needs_uses(self) -> bool:
        """Whether the policy goes by how often blocks are used."""
        return "n_uses" in self._selector.needs

    def save_due(self, iteration: int, after: int, extra: dict[str, Any] | None) -> Begun:
        """Begin the save that is due, unless another is in flight."""
        version = self._next_version(iteration)
        begun = self._saver.boundary(version, after, extra)
        self._state.staged(begun.chosen, version)
        return begun

    def save_everything(self, iteration: int, extra: dict[str, Any] | None) -> str | None:
        """Save all that has changed, and wait until it is durable; None, or why it could not be saved."""
        version = self._next_version(iteration)
        self.last_begun = self._saver.save_all_changed(version, extra)
        self._state.staged(self.last_begun.chosen, version)
        return self.history.given_up

    def wait_until_settled(self) -> None:
        """Wait until no save is in flight. Raises as `raise_if_over`."""
        self._saver.wait_until_settled()

    def raise_if_over(self) -> None:
        """See whether saving can go on. Raises as `Saver.raise_if_over`."""
        self._saver.raise_if_over()

    def status(self, iteration: int, stall_s: float) -> CheckpointStatus:
        """How the running checkpoint stands at x(``iteration``)."""
        ages = iteration - self._state.durable_iterations()
        return CheckpointStatus(
            iteration=iteration,
            durable_iteration=self.history.durable_iteration,
            oldest_age=int(ages.max()),
            median_age=float(np.median(ages)),
            save_in_flight=self._saver.is_in_flight,
            n_saves=self.history.n_saves,
            n_skipped=self.history.n_skipped,
            n_failed=self.history.n_failed,
            stored_bytes=self.history.stored_bytes,
            last_error=self.history.last_error,
            stall_s=stall_s,
        )

    def quiet(self) -> AbstractContextManager[None]:
        """Nothing is measured in the background in this block."""
        return nullcontext() if self._scoring is None else self._scoring.paused()

    def measure_soon(self) -> None:
        """Measure what was touched in the background, if that is wanted."""
        if self._scoring is not None:
            self._scoring.wake()

    def wait_for_scores(self) -> None:
        """Wait until the thread has measured what it was told to."""
        if self._scoring is not None:
            self._scoring.wait_until_done()

    def _next_version(self, iteration: int) -> Version:
        self._commit += 1
        return Version(self._term, self._commit, iteration)

    def _tell_start(self, iteration: int) -> None:
        self.history.tell(
            "run_started", term=self._term, iteration=iteration, executed=iteration, servers=[NODE], workers=[]
        )

    def _tell_restored(self, kind: str, iteration: int, taken: Taken, **more: Any) -> None:
        oldest, newest = taken.span
        n_missing = sum(map(len, taken.missing.values()))
        self.history.tell(
            "recovery_completed",
            view=1,
            kind=kind,
            lost_blocks=taken.restored + n_missing,
            restored=taken.restored,
            from_x0=n_missing,
            oldest=oldest,
            newest=newest,
            iteration=iteration,
            **more,
        )

    def end(self, iteration: int, error: BaseException | None, *, is_saved: bool) -> None:
        """Tell the history how it ended."""
        is_stopped = isinstance(error, StoppedError)
        self.history.tell(
            "run_finished",
            outcome="stopped" if is_stopped else "failed" if error is not None else "done",
            reason=str(error or ""),
            saved=is_saved or is_stopped,
            iteration=iteration,
            executed=iteration,
        )

    def _take_in(self, record: Record) -> None:
        self.history.take_in(record)
        if record.name == "save_committed":
            self._tidying.after_save(self._term, [NODE])

    def _in_background(self, task: Callable[[], None]) -> None:
        self._saver.call(task)

    def _close(self) -> None:
        if self._scoring is not None:
            self._scoring.close()
        self._saver.close()
        self.history.flush()


def restore_report(found: Found | None, source: str, duration_s: float) -> RestoreReport:
    """What the user is told of a restore."""
    if found is None:
        return RestoreReport(0, True, 0, 0, 0, 0, source, None, (), duration_s)
    oldest, newest = found.taken.span
    return RestoreReport(
        iteration=found.iteration,
        is_new=False,
        restored=found.taken.restored,
        kept=sum(map(len, found.taken.missing.values())),
        oldest=oldest,
        newest=newest,
        source=source,
        extra_iteration=found.extra_iteration,
        damaged=tuple(found.taken.damaged),
        duration_s=duration_s,
    )

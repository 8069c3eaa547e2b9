"""Carries out what the checkpoint coordinator decides, for the one node of a loop of the user's own.

Measuring and staging happen in the thread that calls; storing, and what follows from it, in a writer's thread; another
attempt after a failure, when a timer says so. Nothing of it waits for the user's next call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from scarml.checkpoint.version_index import Version
from scarml.control import messages as m
from scarml.control.checkpoint_coordinator import CheckpointCoordinator, SaveStep
from scarml.control.history import Record
from scarml.core.block import Ids
from scarml.errors import StoreError, SupersededError, UsageError
from scarml.storage.background_writer import BackgroundWriter, Outcome, SaveJob
from scarml.storage.node_saves import NodeSaves
from scarml.storage.run_folder import RunFolder
from scarml.storage.unit import FullSave

__all__ = ["Begun", "Saver"]


@dataclass(frozen=True, slots=True, eq=False)
class Begun:
    """A save that was begun, or was not.

    Args:
        chosen: per table the ids of the blocks that were chosen.
        n_blocks, size_bytes: what was staged of them.
        is_skipped: it was due, and another is in flight.
    """

    chosen: Mapping[str, Ids] = field(default_factory=dict)
    n_blocks: int = 0
    size_bytes: int = 0
    is_skipped: bool = False


class Saver:
    """One save after the other.

    Args:
        folder: where to.
        coordinator: decides.
        saves: measures and stages.
        on_record: gets every record of the history, one at a time, in any thread.
    """

    def __init__(
        self,
        folder: RunFolder,
        coordinator: CheckpointCoordinator,
        saves: NodeSaves,
        on_record: Callable[[Record], None],
    ) -> None:
        self._folder = folder
        self._coordinator = coordinator
        self._saves = saves
        self._on_record = on_record
        self._mutex = threading.RLock()
        self._settled = threading.Condition(self._mutex)
        self._writer = BackgroundWriter(folder)
        self._timers: dict[int, threading.Timer] = {}
        self._superseded: str | None = None
        self._cut_short: str | None = None
        self._extra: dict[str, Any] | None = None
        self._begun = Begun()

    # ------------------------------------------------------------------------------------------- the user's own thread
    def boundary(self, version: Version, after: int, extra: dict[str, Any] | None) -> Begun:
        """A boundary of training: begin a save if one is due, and stage it."""
        return self._begin(lambda: self._coordinator.boundary(version, after), extra)

    def save_all_changed(self, version: Version, extra: dict[str, Any] | None) -> Begun:
        """Save everything that differs from what is durable, as it is, and wait until it is durable or given up.

        Raises:
            SupersededError: another process has taken the run over.
        """
        self.wait_until_settled()
        begun = self._begin(lambda: self._coordinator.save_all_changed(version), extra)
        self.wait_until_settled()
        return begun

    def wait_until_settled(self) -> None:
        """Wait until no save is in flight: what was staged is durable, or has been given up.

        Raises as `raise_if_over`.
        """
        with self._settled:
            self._settled.wait_for(self._is_settled)
        self.raise_if_over()

    @property
    def is_in_flight(self) -> bool:
        """Whether a save is in flight."""
        return self._coordinator.step is not SaveStep.IDLE

    def raise_if_over(self) -> None:
        """See whether saving can go on.

        Raises:
            SupersededError: another process has taken the run over.
            UsageError: an exception, such as KeyboardInterrupt, cut a save short.
        """
        if self._superseded is not None:
            raise SupersededError(self._superseded)
        if self._cut_short is not None:
            raise UsageError(
                f"{self._cut_short} cut a save short, so that it is not known what has been copied; leave the with "
                'block, and go on with a new RunningCheckpoint and resume="auto"'
            )

    def supersede(self, cause: str) -> None:
        """Another process has taken the run over: nothing that this one stores counts any more."""
        with self._settled:
            self._superseded = self._superseded or cause
            self._settled.notify_all()

    def call(self, task: Callable[[], None]) -> None:
        """Do something else on the store, in the writer's thread."""
        self._writer.call(task)

    def close(self) -> None:
        """Wait for the save in flight, then end the threads."""
        with self._settled:
            self._settled.wait_for(self._is_settled)
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()
        self._writer.close()

    def _begin(self, decide: Callable[[], list[m.Action]], extra: dict[str, Any] | None) -> Begun:
        with self._settled:
            self._extra, self._begun = extra, Begun()
            self._carry_out(decide)
            self._extra = None
            return self._begun

    def _is_settled(self) -> bool:
        return self._superseded is not None or self._cut_short is not None or not self.is_in_flight

    # ------------------------------------------------------------------------------------------------ what was decided
    def _carry_out(self, decide: Callable[[], list[m.Action]]) -> None:
        """Let the coordinator decide, in any thread, and carry out what it decides."""
        with self._settled:
            try:
                todo = deque(decide())
                while todo:
                    todo.extendleft(reversed(self._perform(todo.popleft())))
            except BaseException as e:
                self._cut_short = type(e).__name__
                raise
            finally:
                self._settled.notify_all()

    def _perform(self, action: m.Action) -> list[m.Action]:
        """Carry out one action; what the coordinator decides next."""
        match action:
            case m.Send(order=m.MeasureBlocks() as order):
                return self._coordinator.on_measured(self._saves.measure(order))
            case m.Send(order=m.SaveBlocks() as order):
                return self._stage(order)
            case m.Send(order=m.RetrySave() as order):
                segment = self._saves.retry(order.save_id)
                if segment is not None:
                    self._submit(SaveJob(segment))
            case m.Send(order=m.GiveUpSave() as order):
                self._saves.give_up(order.save_id)
            case m.SetTimer():
                timer = threading.Timer(action.delay_s, self._on_timer, (action.token,))
                timer.daemon = True
                self._timers[action.token] = timer
                timer.start()
            case m.CompleteUnit():
                self._writer.call(partial(self._complete_unit, action))
            case m.Report():
                if action.record.name == "save_skipped":
                    self._begun = Begun(is_skipped=True)
                self._on_record(action.record)
        return []

    def _stage(self, order: m.SaveBlocks) -> list[m.Action]:
        events, segment = self._saves.stage(order, self._extra)
        decided: list[m.Action] = []
        for event in events:
            match event:
                case m.BlocksStaged():
                    n_blocks = sum(map(len, order.ids.values())) - event.n_left_out
                    self._begun = Begun(order.ids, n_blocks, event.size_bytes)
                    decided += self._coordinator.on_staged(event)
                case m.SaveCommitted():
                    decided += self._coordinator.on_committed(event)
        if segment is not None:
            self._submit(SaveJob(segment))
        return decided

    def _submit(self, job: SaveJob) -> None:
        self._writer.submit(job, partial(self._on_stored, job.segment.save_id))

    # ------------------------------------------------------------------------------------------------ in other threads
    def _on_stored(self, save_id: int, outcome: Outcome) -> None:
        with self._settled:
            match self._saves.stored(save_id, outcome):
                case m.SaveCommitted() as event:
                    self._carry_out(partial(self._coordinator.on_committed, event))
                case m.SaveFailed() as event:
                    self._carry_out(partial(self._coordinator.on_failed, event))
                case m.Superseded() as event:
                    self.supersede(event.cause)

    def _on_timer(self, token: int) -> None:
        with self._settled:
            self._timers.pop(token, None)
            self._carry_out(partial(self._coordinator.on_timer, token))

    def _complete_unit(self, action: m.CompleteUnit) -> None:
        v = action.version
        try:
            self._folder.write_unit(FullSave(v.term, v.commit, v.iteration, action.save_id, action.segments))
        except SupersededError as e:
            self.supersede(str(e))
        except StoreError as e:
            self._carry_out(partial(self._coordinator.on_unit_failed, action.save_id, str(e)))
        else:
            self._carry_out(partial(self._coordinator.on_unit, action.save_id))

"""The checkpoint coordinator: the four steps of a save (section 4.3 of the paper).

    1. ask every node for what the policy goes by: the distances of its blocks from their saved values, say;
    2. collect them;
    3. choose the blocks, and tell their owners;
    4. the owners copy them into their caches (training may go on), then store them in the background.

Steps 1 to 4a run while workers compute the next phase: between commits blocks do not change, so only the commit must
wait for them (`holds_commit`). At most one save is in flight, since the choice is global.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.policy import Quantity
from scarml.checkpoint.selection import SaveSelector
from scarml.checkpoint.version_index import Version
from scarml.control.messages import (
    Action,
    BlocksMeasured,
    BlocksStaged,
    CompleteUnit,
    GiveUpSave,
    MeasureBlocks,
    RetrySave,
    SaveBlocks,
    SaveCommitted,
    SaveFailed,
    Send,
    SetTimer,
    report,
)
from scarml.control.recovery_coordinator import RecoveryCoordinator
from scarml.control.view import Layout, NodeId
from scarml.core.block import Ids

__all__ = ["CheckpointCoordinator", "SaveStep"]

MAX_ATTEMPTS = 6
FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 5.0


class SaveStep(Enum):
    """How far the save in flight has come."""

    IDLE = "no save in flight"
    MEASURING = "waiting for what blocks are chosen by"
    STAGING = "waiting for caches to be up to date"
    WRITING = "waiting for the store"
    RECORDING = "waiting for the record of a complete full save"


@dataclass(slots=True)
class _Save:
    save_id: int
    version: Version
    final: bool
    measuring: set[NodeId] = field(default_factory=set)
    staging: set[NodeId] = field(default_factory=set)
    writing: set[NodeId] = field(default_factory=set)
    values: dict[Quantity, dict[str, NDArray[np.float64]]] = field(default_factory=dict)
    changed: dict[str, list[Ids]] = field(default_factory=dict)
    attempts: dict[NodeId, int] = field(default_factory=dict)
    segments: list[str] = field(default_factory=list)
    parts: dict[NodeId, dict[str, Ids]] = field(default_factory=dict)
    n_blocks: int = 0
    size_bytes: dict[NodeId, int] = field(default_factory=dict)
    stored_bytes: int = 0
    whole: bool = True
    """Every chosen block is, or may yet be, durable."""
    given_up: bool = False
    """A part of it has been reported as given up."""


class CheckpointCoordinator:
    """Drives one save at a time.

    Args:
        selector: when, how much and which blocks.
        layout: what there is to save.
        recovery: knows the view.
        new_timer: gives a fresh token for a timer.
        extra: of an iteration, what is to be stored beside the blocks of a save of it.
    """

    def __init__(
        self,
        selector: SaveSelector,
        layout: Layout,
        recovery: RecoveryCoordinator,
        new_timer: Callable[[], int],
        extra: Callable[[int], Mapping[str, Any] | None] = lambda _: None,
    ) -> None:
        self._selector = selector
        self._layout = layout
        self._recovery = recovery
        self._new_timer = new_timer
        self._extra = extra
        self._retries: dict[int, NodeId | None] = {}
        """By timer the node that tries again; None: the record of a complete full save is tried again."""
        self._unit_attempts = 0
        self._next_save_id = 1
        self._save: _Save | None = None
        self.saved_iterations = {t.name: np.zeros(t.n_blocks, np.int64) for t in layout.saved_tables}
        """Per table the iteration of each block's durable value."""
        self._drift: dict[str, NDArray[np.float64]] = {}
        """Per table how far each block was from its saved value when that was last measured."""
        self._drift_at_iter = 0
        self._without_drift: dict[str, list[Ids]] = {}
        """Blocks that have been saved or restored since."""
        self.step = SaveStep.IDLE
        self.last_unit: Version | None = None
        """The newest complete full save."""
        self.final_is_whole: bool | None = None
        """Whether the last save of everything changed became durable; None while that is not known."""

    @property
    def holds_commit(self) -> bool:
        """Whether blocks must not change yet."""
        return self.step in (SaveStep.MEASURING, SaveStep.STAGING)

    @property
    def version_in_flight(self) -> Version | None:
        """The version that the save in flight will have."""
        return self._save.version if self._save is not None else None

    # -------------------------------------------------------------------------------------------------------- starting
    def boundary(self, version: Version, after: int | None = None) -> list[Action]:
        """x(``version.iteration``) has been committed: start a save if one is due.

        ``after`` is the boundary before; where there are boundaries only at some iterations, a save that fell due in
        between is due now. By default there is one at every iteration.
        """
        n_due = self._selector.n_due(version.iteration, version.iteration - 1 if after is None else after)
        if not n_due:
            return []
        self._selector.earn(n_due)
        if self.step is not SaveStep.IDLE:
            return [report("save_skipped", iteration=version.iteration, step=self.step.value)]
        return self._begin(version, final=False)

    def save_all_changed(self, version: Version) -> list[Action]:
        """Save every block whose bytes differ from the durable ones, outside the budget. Only when idle.

        Policy ``full`` saves everything instead, as one more complete checkpoint to go on from.
        """
        self.final_is_whole = None
        return self._begin(version, final=True)

    def _begin(self, version: Version, final: bool) -> list[Action]:
        self._save = save = _Save(self._next_save_id, version, final)
        self._next_save_id += 1
        actions: list[Action] = [report("save_started", save_id=save.save_id, iteration=version.iteration, final=final)]
        needs = () if final else self._selector.needs
        if self._selector.is_full or not (final or needs):
            return actions + self._choose(save)
        self.step = SaveStep.MEASURING
        view = self._recovery.view
        save.measuring = set(view.nodes)
        save.values = {what: {t.name: np.zeros(t.n_blocks) for t in self._layout.saved_tables} for what in needs}
        return actions + [Send(n, MeasureBlocks(view.number, save.save_id, needs, final)) for n in view.nodes]

    # ------------------------------------------------------------------------------------------------ the steps of one
    def on_measured(self, event: BlocksMeasured) -> list[Action]:
        """Steps 2 and 3."""
        save = self._current(event.save_id)
        if save is None or event.node not in save.measuring:
            return []
        save.measuring.remove(event.node)
        for name, ids in event.ids.items():
            for what, tables in event.values.items():
                if len(ids) == len(save.values[what][name]):  # of one node that has them all
                    save.values[what][name] = tables[name]
                else:
                    save.values[what][name][ids] = tables[name]
            save.changed.setdefault(name, []).append(ids)
        return [] if save.measuring else self._choose(save)

    def _choose(self, save: _Save) -> list[Action]:
        if save.final and self._selector.is_full:
            chosen = {t.name: t.all_ids for t in self._layout.saved_tables}
        elif save.final:
            chosen = {name: np.sort(np.concatenate(ids)) for name, ids in save.changed.items()}
            if not any(len(ids) for ids in chosen.values()):
                # Something must be stored to say how far training has come, even if nothing has changed.
                first = self._layout.saved_tables[0]
                chosen = {first.name: first.all_ids[:1]}
        else:
            chosen = self._selector.select(save.values.get("distance"), save.values.get("n_uses"))
        if "distance" in save.values:
            self._drift, self._drift_at_iter = save.values["distance"], save.version.iteration
            self._without_drift = {name: [ids] for name, ids in chosen.items()}
        save.values, save.changed = {}, {}
        save.n_blocks = sum(len(ids) for ids in chosen.values())
        parts = self._recovery.split_by_owner({name: ids for name, ids in chosen.items() if len(ids)})
        save.parts, save.staging, save.writing = parts, set(parts), set(parts)
        self.step = SaveStep.STAGING
        unit = self._selector.is_full
        view, extra = self._recovery.view.number, self._extra(save.version.iteration)
        orders: list[Action] = [
            Send(n, SaveBlocks(view, save.save_id, save.version, ids, unit, save.final, extra))
            for n, ids in parts.items()
        ]
        return orders + self._progress(save)

    def on_staged(self, event: BlocksStaged) -> list[Action]:
        """Step 4, first half."""
        save = self._current(event.save_id)
        if save is None or event.node not in save.staging:
            return []
        save.staging.remove(event.node)
        save.size_bytes[event.node] = event.size_bytes
        actions: list[Action] = []
        if event.left_out:
            save.whole = False
            part = save.parts[event.node]
            save.parts[event.node] = {
                name: np.setdiff1d(ids, event.left_out.get(name, ()), assume_unique=True) for name, ids in part.items()
            }
            n_blocks = event.n_left_out
            actions = [report("blocks_not_finite", save_id=save.save_id, node=event.node, n_blocks=n_blocks)]
        return actions + self._progress(save)

    def on_committed(self, event: SaveCommitted) -> list[Action]:
        """Step 4, second half."""
        save = self._current(event.save_id)
        if save is None or event.node not in save.writing:
            return []
        save.writing.remove(event.node)
        save.stored_bytes += event.stored_bytes
        for name, ids in save.parts[event.node].items():
            self.saved_iterations[name][ids] = save.version.iteration
        if event.segment is not None:
            save.segments.append(event.segment)
        return self._progress(save)

    def on_failed(self, event: SaveFailed) -> list[Action]:
        """The store refused: try again a few times, then give this node's part up."""
        save = self._current(event.save_id)
        if save is None or event.node not in save.writing:
            return []
        n = save.attempts[event.node] = save.attempts.get(event.node, 0) + 1
        actions = self._again_or_not(save, event.node, event.cause, n)
        if n < MAX_ATTEMPTS:
            return actions
        save.whole, save.given_up = False, True
        save.writing.remove(event.node)
        save.size_bytes.pop(event.node, None)
        self._selector.owe(save.parts[event.node])
        actions += [
            Send(event.node, GiveUpSave(save.save_id)),
            report("save_given_up", save_id=save.save_id, cause=event.cause),
        ]
        return actions + self._progress(save)

    def on_timer(self, token: int) -> list[Action]:
        """Time to try again."""
        if token not in self._retries or self._save is None:
            return []
        node = self._retries.pop(token)
        if node is None:
            return [_complete_unit(self._save)]
        return [Send(node, RetrySave(self._save.save_id))] if node in self._save.writing else []

    def on_unit(self, save_id: int) -> list[Action]:
        """A complete full save has been recorded as such."""
        save = self._current(save_id)
        if save is None or self.step is not SaveStep.RECORDING:
            return []
        self.last_unit = save.version
        return self._end(save)

    def on_unit_failed(self, save_id: int, cause: str) -> list[Action]:
        """The store refused the record: try again a few times, then the save does not count as a complete one."""
        save = self._current(save_id)
        if save is None or self.step is not SaveStep.RECORDING:
            return []
        self._unit_attempts += 1
        actions = self._again_or_not(save, None, cause, self._unit_attempts)
        if self._unit_attempts < MAX_ATTEMPTS:
            return actions
        save.whole = False
        return [*actions, report("save_given_up", save_id=save_id, cause=cause), *self._end(save)]

    def _again_or_not(self, save: _Save, node: NodeId | None, cause: str, attempt: int) -> list[Action]:
        again = attempt < MAX_ATTEMPTS
        who = node or "controller"
        actions: list[Action] = [
            report("save_failed", save_id=save.save_id, node=who, cause=cause, attempt=attempt, retried=again)
        ]
        if again:
            token = self._new_timer()
            self._retries[token] = node
            actions.append(SetTimer(token, min(FIRST_RETRY_S * 2 ** (attempt - 1), LONGEST_RETRY_S)))
        return actions

    def _progress(self, save: _Save) -> list[Action]:
        actions: list[Action] = []
        if self.step is SaveStep.STAGING and not save.staging:
            self.step = SaveStep.WRITING
            actions.append(
                report(
                    "save_staged",
                    save_id=save.save_id,
                    iteration=save.version.iteration,
                    n_blocks=save.n_blocks,
                    size_bytes=sum(save.size_bytes.values()),
                )
            )
        if self.step is SaveStep.WRITING and not save.writing:
            if self._selector.is_full and save.whole:
                self.step = SaveStep.RECORDING
                self._unit_attempts = 0
                return [*actions, _complete_unit(save)]
            return actions + self._end(save)
        return actions

    def _end(self, save: _Save) -> list[Action]:
        self._save, self.step, self._retries = None, SaveStep.IDLE, {}
        if save.final:
            self.final_is_whole = save.whole
        if not save.segments and not save.whole:
            cause = "none of its blocks could be stored"
            return [] if save.given_up else [report("save_given_up", save_id=save.save_id, cause=cause)]
        return [
            report(
                "save_committed",
                save_id=save.save_id,
                iteration=save.version.iteration,
                n_blocks=save.n_blocks,
                stored_bytes=save.stored_bytes,
                size_bytes=sum(save.size_bytes.values()),
                whole=save.whole,
            )
        ]

    # -------------------------------------------------------------------------------------------------------- failures
    def lose(self, node: NodeId) -> list[Action]:
        """``node`` is gone: a save that is still measuring is void, else its part of the save does not count."""
        save = self._save
        if save is None or self.step is SaveStep.RECORDING:
            return []
        if self.step is SaveStep.MEASURING:
            return self.void(f"{node} was lost while blocks were measured")
        save.final = False  # what is restored may be older: it is not the last save any more
        if node in save.writing or node in save.staging:
            save.whole = False
            save.staging.discard(node)
            save.writing.discard(node)
            save.size_bytes.pop(node, None)
        return self._progress(save)

    def note_loaded(self, loaded: Mapping[str, tuple[Ids, NDArray[np.int64]]]) -> None:
        """These blocks have been restored, with values of these iterations."""
        for name, (ids, iterations) in loaded.items():
            self.saved_iterations[name][ids] = iterations

    def forget_drift(self, lost: Mapping[str, Ids], iteration: int) -> dict[str, Any]:
        """What restoring these blocks perturbs, as far as it is known from when distances were last measured.

        Returns:
            Fields of ``recovery_completed``: the estimate, None if nothing is known; that it is not exact; and how many
            iterations old it is.
        """
        squares = 0.0
        for name, ids in lost.items() if self._drift else ():
            moved = ids
            for saved in self._without_drift.setdefault(name, []):
                moved = np.setdiff1d(moved, saved, assume_unique=True)
            squares += float(np.square(self._drift[name][moved]).sum())
            self._without_drift[name].append(ids)
        is_known = bool(self._drift) and np.isfinite(squares)
        return {
            "perturbation": float(np.sqrt(squares)) if is_known else None,
            "perturbation_is_exact": False,
            "perturbation_age_iters": iteration - self._drift_at_iter if is_known else None,
        }

    def void(self, cause: str) -> list[Action]:
        """Drop a save of which nothing has been staged yet; its budget stays for the next."""
        if self._save is None or self.step is not SaveStep.MEASURING:
            return []
        save_id = self._save.save_id
        self._save, self.step = None, SaveStep.IDLE
        return [report("save_given_up", save_id=save_id, cause=cause)]

    def _current(self, save_id: int) -> _Save | None:
        return self._save if self._save is not None and self._save.save_id == save_id else None


def _complete_unit(save: _Save) -> CompleteUnit:
    return CompleteUnit(save.save_id, save.version, tuple(sorted(save.segments)))

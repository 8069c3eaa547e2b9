"""What the library tells of saves, restores and recoveries: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scarml.core.block import Ids

__all__ = ["CheckpointStatus", "RecoverReport", "RestoreReport", "SaveReport"]


@dataclass(frozen=True, slots=True, eq=False)
class SaveReport:
    """What one call of `RunningCheckpoint.save` did.

    Args:
        iteration: that was saved, or would have been.
        outcome: ``staged``: copied, and on its way to the store; ``nothing-changed``: no block has moved; ``not-due``;
            ``skipped``: due, but the save before it is still in flight: its budget is carried to the next;
            ``durable``: everything is on the store.
        saved: per table the ids of the blocks that were chosen.
        n_blocks: how many those are.
        size_bytes: of what was staged of them.
        stall_s: how long the call took.
    """

    iteration: int
    outcome: str
    saved: Mapping[str, Ids] = field(default_factory=dict)
    n_blocks: int = 0
    size_bytes: int = 0
    stall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What `RunningCheckpoint.restore` found.

    Args:
        iteration: to go on from; 0 in a new run.
        is_new: whether there was nothing to restore: what the arrays held was saved as x(0).
        restored: blocks that were filled in.
        kept: blocks of which the store has no copy that can be used; they keep what the arrays held.
        oldest, newest: the iterations of the restored values.
        source: the run folder.
        extra_iteration: of the extra state that was restored; None if there was none.
        damaged: copies that could not be used, and why; older ones were.
        duration_s: how long it took.
    """

    iteration: int
    is_new: bool
    restored: int
    kept: int
    oldest: int
    newest: int
    source: str
    extra_iteration: int | None
    damaged: tuple[str, ...]
    duration_s: float


@dataclass(frozen=True, slots=True)
class RecoverReport:
    """What `RunningCheckpoint.recover` did.

    Args:
        restored: blocks that were filled in.
        oldest, newest: the iterations of their values.
        perturbation: how far the state was moved, the norm of (restored − what the arrays held); what that means is for
            the caller to know: if they held the lost values, it is the paper's δ. None if what they held is not finite.
        damaged: copies that could not be used, and why; older ones were.
        duration_s: how long it took.
    """

    restored: int
    oldest: int
    newest: int
    perturbation: float | None
    damaged: tuple[str, ...]
    duration_s: float


@dataclass(frozen=True, slots=True)
class CheckpointStatus:
    """How a running checkpoint stands.

    Args:
        iteration: the last one that `save` was called with, or that was restored.
        durable_iteration: the newest one of which something is on the store.
        oldest_age, median_age: of the durable values of the blocks, in iterations.
        save_in_flight: whether something is on its way to the store.
        n_saves, n_skipped, n_failed: saves that became durable; that fell due while another was in flight; that were
            given up after several attempts, so that their blocks come first in the next one.
        stored_bytes: written to the store so far.
        last_error: of the store, in words; None since the last save that became durable.
        stall_s: total time spent in `save`.
    """

    iteration: int
    durable_iteration: int
    oldest_age: int
    median_age: float
    save_in_flight: bool
    n_saves: int
    n_skipped: int
    n_failed: int
    stored_bytes: int
    last_error: str | None
    stall_s: float

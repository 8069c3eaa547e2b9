"""The history of a run: one record for everything a person may want to know of.

Records go to the event log of the run folder, to the progress display, and to the user's ``on_event``. They are data: a
name and JSON-ready fields. The engine adds the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["RECORD_NAMES", "Record"]

RECORD_NAMES = {
    "nodes_starting": "processes for the nodes are being started: n_nodes",
    "run_started": (
        "training begins or goes on: term, iteration, servers, workers; and processes, where nodes have their own"
    ),
    "view_changed": "membership: view, servers, workers",
    "iteration_committed": "x(iteration) is visible everywhere: iteration, commit, executed",
    "loss_evaluated": "the loss at a boundary: iteration, executed, loss_sum, loss_mean",
    "metrics_evaluated": (
        "metrics on held-out data at a boundary: iteration, executed, metrics by name; with early stopping what it "
        "stops_by, best, best_iteration, n_since_best"
    ),
    "commit_held": "all is prepared, but blocks are still being measured or staged for a save: commit",
    "commit_released": "the held commit goes on: commit",
    "save_started": "a save fell due: save_id, iteration, final (all that has changed, before the end)",
    "save_staged": "caches are up to date, training may go on: save_id, iteration, n_blocks, size_bytes",
    "save_committed": "the store holds the save: save_id, iteration, n_blocks, size_bytes, stored_bytes, whole",
    "save_failed": "the store refused: save_id, node, cause, attempt, retried (it is tried again)",
    "save_given_up": "a save will never be durable; its blocks come first in the next one: save_id, cause",
    "save_skipped": "a save fell due while another was in flight: iteration, step of that; its budget is carried over",
    "blocks_not_finite": (
        "blocks with NaN or infinity, or too large for their encoding, were not saved: save_id, node, n_blocks"
    ),
    "nodes_killed": "nodes are lost on purpose, for real, by SIGKILL: iteration, processes",
    "node_lost": "a node is gone: node, reason, simulated; killed, if that was on purpose and for real",
    "node_joined": "a new node is ready: node; pid and host, where it has a process of its own",
    "node_left": "a node has handed over all that it held, and is gone: node",
    "scale_requested": "so many nodes are wanted: servers, workers",
    "drain_requested": "a node is to hand over and leave: node, reason",
    "request_refused": "something that was asked for cannot be done: request, reason",
    "handover_started": "blocks move between live nodes: view, moving_blocks, joining, leaving",
    "handover_completed": "training goes on with other nodes: view, moved_blocks, iteration",
    "waiting_for_node": "no server, or no worker, is left; one is being started: kind",
    "recovery_started": "lost blocks are being restored: view, kind, lost_blocks",
    "recovery_completed": (
        "lost blocks are restored: view, kind, lost_blocks, restored, from_x0, oldest, newest, mean_age_iters, "
        "iteration, perturbation, and whether it is exact; an estimate has the age in iterations of what it is made "
        "from"
    ),
    "repair_declined": "the model mends nothing: `repair` recovery restores what is lost, as `partial` does",
    "repair_started": "the model mends restored blocks: n_blocks, n_phases",
    "repair_completed": (
        "restored blocks are mended: n_blocks, work_iters (what that took, in iterations), iteration, the perturbation "
        "that is left, None where it is not known, and whether it is exact"
    ),
    "recovery_waiting": "the store cannot be read; trying again: node, cause, attempt",
    "copy_damaged": "a stored copy of a block could not be used, an older one was: node, detail",
    "stop_requested": "the run ends at the next boundary: reason",
    "run_finished": "the end: outcome, reason, saved, iteration, executed",
}
"""Every record name, and what it says."""


@dataclass(frozen=True, slots=True)
class Record:
    """One event of a run.

    Args:
        name: one of `RECORD_NAMES`.
        fields: JSON-ready values.
        t_s: seconds since the start of this process's run, set by the engine.
    """

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    t_s: float = 0.0

    def __getitem__(self, key: str) -> Any:
        return self.fields[key]

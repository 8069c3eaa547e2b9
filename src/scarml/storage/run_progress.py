"""Where a run stands, as its records tell while it goes on: what every way of showing progress is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from scarml.control.history import Record
from scarml.storage.live_status import NodeStatus, SavesStatus, Status

__all__ = ["RunProgress", "SavedAges"]

_MOST_LOST_NODES = 32

Place = Callable[[str], tuple[int | None, str | None]]
"""Of a node: number and host of its process, where it has one of its own."""


@dataclass(frozen=True, slots=True)
class SavedAges:
    """How old the durable values of the blocks are, in iterations.

    Args:
        median, oldest: over the blocks that have been saved at all.
        n_saved, n_blocks: how many those are, and of how many.
    """

    median: int
    oldest: int
    n_saved: int
    n_blocks: int

    @classmethod
    def of(cls, saved_iterations: Mapping[str, Any], iteration: int) -> SavedAges | None:
        """From the iterations of the durable values, per table."""
        if not saved_iterations:
            return None
        saved = np.concatenate(list(saved_iterations.values()))
        ever = saved[saved > 0]
        if not len(ever):
            return cls(0, 0, 0, len(saved))
        return cls(int(iteration - np.median(ever)), int(iteration - ever.min()), len(ever), len(saved))


@dataclass(slots=True, kw_only=True)
class RunProgress:
    """What records have said so far.

    Args:
        ages: asks the run how old its saved blocks are; None where that cannot be known.

    Example:
        >>> progress = RunProgress()
        >>> progress.take_in(Record("iteration_committed", {"iteration": 3, "executed": 3}))
        >>> progress.status().iteration
        3
    """

    ages: Callable[[], Mapping[str, Any]] | None = None
    t_s: float = 0.0
    iteration: int = 0
    executed: int = 0
    losses: list[float] = field(default_factory=list)
    loss: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    """The last on held-out data."""
    metrics_iteration: int | None = None
    """They are of x(metrics_iteration)."""
    servers: dict[str, bool] = field(default_factory=dict)
    """Name → alive; who left of their own accord, or was lost and replaced, is not in it."""
    workers: dict[str, bool] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    """Of the nodes that have processes of their own."""
    saved_ages: SavedAges | None = None
    saved_iteration: int | None = None
    n_saves: int = 0
    n_skipped: int = 0
    bytes_saved: int = 0
    store_trouble: str | None = None
    store_failed: bool = False
    """The store has refused something for good."""
    activity: str = "starting"

    def take_in(self, record: Record) -> None:
        """Note what a record says."""
        fields = record.fields
        self.t_s = record.t_s
        match record.name:
            case "run_started":
                self.activity = "starting"
                self.pids = {p["node"]: p["pid"] for p in fields.get("processes", ()) if p["pid"] is not None}
                self.servers = dict.fromkeys(fields["servers"], True)
                self.workers = dict.fromkeys(fields["workers"], True)
                self.iteration, self.executed = fields["iteration"], fields["executed"]
            case "iteration_committed":
                self.iteration, self.executed, self.activity = fields["iteration"], fields["executed"], "training"
            case "loss_evaluated":
                self.loss = {k: fields[k] for k in ("loss_sum", "loss_mean") if k in fields}
                self.losses.append(fields["loss_sum"])
            case "metrics_evaluated":
                self.metrics, self.metrics_iteration = dict(fields["metrics"]), fields["iteration"]
            case "recovery_started":
                self.activity = f"recovering {fields['lost_blocks']:,} blocks"
            case "recovery_completed":
                self.iteration, self.activity = fields["iteration"], "training"
                self._ask_ages()
            case "run_finished":
                self.activity = fields["outcome"]
            case _:
                self.activity = _activity(record) or self.activity
                self._take_in_nodes(record)
                self._take_in_store(record)

    def status(self, place: Place = lambda _: (None, None)) -> Status:
        """For whoever looks from elsewhere. Of the nodes that were lost only the last are told.

        Args:
            place: of a node.
        """
        lost = [n for nodes in (self.servers, self.workers) for n, alive in nodes.items() if not alive]
        untold = set(islice(lost, max(len(lost) - _MOST_LOST_NODES, 0)))
        ages = self.saved_ages if self.saved_ages is not None and self.saved_ages.n_saved else None
        return Status(
            iteration=self.iteration,
            executed=self.executed,
            loss=dict(self.loss),
            metrics=dict(self.metrics),
            metrics_iteration=self.metrics_iteration,
            activity=self.activity,
            nodes=tuple(
                NodeStatus(name, kind, alive, *place(name))
                for kind, nodes in (("server", self.servers), ("worker", self.workers))
                for name, alive in nodes.items()
                if name not in untold
            ),
            saves=SavesStatus(
                n=self.n_saves,
                size_bytes=self.bytes_saved,
                iteration=self.saved_iteration,
                median_age_iters=ages.median if ages is not None else None,
                oldest_age_iters=ages.oldest if ages is not None else None,
                trouble=self.store_trouble,
            ),
        )

    def _take_in_nodes(self, record: Record) -> None:
        fields = record.fields
        match record.name:
            case "view_changed":
                for nodes, names in ((self.servers, fields["servers"]), (self.workers, fields["workers"])):
                    for name in names:
                        _take_in_new(nodes, name)
            case "node_joined" if fields.get("pid") is not None:
                self.pids[fields["node"]] = fields["pid"]
            case "node_lost":
                self.pids.pop(fields["node"], None)
                for nodes in (self.servers, self.workers):
                    if fields["node"] in nodes:
                        nodes[fields["node"]] = False
            case "node_left":
                self.pids.pop(fields["node"], None)
                for nodes in (self.servers, self.workers):
                    nodes.pop(fields["node"], None)

    def _take_in_store(self, record: Record) -> None:
        fields = record.fields
        match record.name:
            case "save_committed":
                self.n_saves += 1
                self.bytes_saved += fields["size_bytes"]
                self.saved_iteration = fields["iteration"]
                self.store_trouble = None
                self._ask_ages()
            case "save_skipped":
                self.n_skipped += 1
            case "save_failed" | "recovery_waiting":
                self.store_trouble = fields["cause"]
            case "save_given_up" if (
                self.store_trouble is not None
            ):  # else its blocks were not finite, or a node was lost
                self.store_trouble, self.store_failed = fields["cause"], True

    def _ask_ages(self) -> None:
        if self.ages is not None:
            self.saved_ages = SavedAges.of(self.ages(), self.iteration)


def _take_in_new(nodes: dict[str, bool], name: str) -> None:
    """A new node takes the place of one that was lost, if there is one: then as many are alive as there were."""
    if name not in nodes:
        lost = next((n for n, is_alive in nodes.items() if not is_alive), None)
        if lost is not None:
            del nodes[lost]
        nodes[name] = True


def _activity(record: Record) -> str | None:
    """What a run is doing from now on, if the record says so."""
    f = record.fields
    match record.name:
        case "nodes_starting":
            return f"starting {f['n_nodes']:,} process{'' if f['n_nodes'] == 1 else 'es'}"
        case "stop_requested":
            return "stopping at the next boundary"
        case "handover_started":
            return f"handing over {f['moving_blocks']:,} blocks"
        case "handover_completed":
            return "training"
        case "waiting_for_node":
            return f"waiting for a {f['kind']}"
        case _:
            return None

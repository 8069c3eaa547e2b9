"""Where a run stands, as its history tells: what every way of showing progress is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scarml.control.history import Record

__all__ = ["Criterion", "RunStatus", "SavedAges"]


@dataclass(frozen=True, slots=True)
class Criterion:
    """Training is done when the loss of this name is below this value."""

    name: str
    below: float


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
        import numpy as np

        if not saved_iterations:
            return None
        saved = np.concatenate(list(saved_iterations.values()))
        ever = saved[saved > 0]
        if not len(ever):
            return cls(0, 0, 0, len(saved))
        return cls(int(iteration - np.median(ever)), int(iteration - ever.min()), len(ever), len(saved))


@dataclass(slots=True)
class RunStatus:
    """What records have said so far.

    Args:
        title: of the run, for people.
        criterion: when training is done.
        ages: asks the run how old its saved blocks are; None where that cannot be known.
    """

    title: str = ""
    criterion: Criterion | None = None
    ages: Callable[[], Mapping[str, Any]] | None = None
    t_s: float = 0.0
    iteration: int = 0
    executed: int = 0
    losses: list[float] = field(default_factory=list)
    loss: dict[str, float] = field(default_factory=dict)
    servers: dict[str, bool] = field(default_factory=dict)
    """Name → alive."""
    workers: dict[str, bool] = field(default_factory=dict)
    saved_ages: SavedAges | None = None
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
                self.servers = dict.fromkeys(fields["servers"], True)
                self.workers = dict.fromkeys(fields["workers"], True)
                self.iteration, self.executed = fields["iteration"], fields["executed"]
            case "iteration_committed":
                self.iteration, self.executed, self.activity = fields["iteration"], fields["executed"], "training"
            case "loss_evaluated":
                self.loss = {k: fields[k] for k in ("loss_sum", "loss_mean") if k in fields}
                self.losses.append(fields["loss_sum"])
            case "node_lost":
                for nodes in (self.servers, self.workers):
                    if fields["node"] in nodes:
                        nodes[fields["node"]] = False
            case "recovery_started":
                self.activity = f"recovering {fields['lost_blocks']:,} blocks"
            case "recovery_completed":
                self.iteration, self.activity = fields["iteration"], "training"
                self._ask_ages()
            case "stop_requested":
                self.activity = "stopping at the next boundary"
            case "run_finished":
                self.activity = fields["outcome"]
            case _:
                self._take_in_store(record)

    def _take_in_store(self, record: Record) -> None:
        fields = record.fields
        match record.name:
            case "save_committed":
                self.n_saves += 1
                self.bytes_saved += fields["size_bytes"]
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

    def loss_in_words(self) -> str:
        """For example ``loss_sum 6,812 (done below 4,542)``."""
        name = self.criterion.name if self.criterion else "loss_sum"
        if name not in self.loss:
            return "loss not known yet"
        goal = f" (done below {self.criterion.below:,.6g})" if self.criterion else ""
        return f"{name} {self.loss[name]:,.6g}{goal}"

"""What came of a run, gathered from the records of its history."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from scarml.checkpoint.selection import Checkpoint
from scarml.control.history import Record
from scarml.control.messages import Finish, Outcome

__all__ = ["SCHEMA_VERSION", "Result"]

SCHEMA_VERSION = 1


@dataclass(slots=True)
class Result:
    """The outcome of `Job.run`.

    Args:
        checkpoint: the settings of the run.
        n_examples: for losses per example.
        outcome, reason: how it ended, and why in words.
        saved: whether every changed block is durable, so that resuming is the same as never having stopped.
        iteration: the state is x(iteration).
        iterations: iterations done in all, those repeated after a full recovery counted again.
        losses: (iterations done, loss_sum) at every evaluation.
        metrics: (iterations done, held-out metrics by name) at every evaluation of these.
        early_stopping: what early stopping knew last: ``stops_by``, ``best``, ``best_iteration``, ``n_since_best``;
            empty without it.
        failures: per lost node its name, the iteration, the reason, and whether it was simulated.
        recoveries: per recovery its kind, lost blocks, perturbation, span of restored iterations, and seconds; of kind
            ``repair`` also its work in iterations, its seconds, and the perturbation that it left.
        bytes_saved: bytes of block values that became durable, ids and checksums not counted.
        stored_bytes: the same with everything.
        stall_s: time for which commits had to wait for saves.
        digest: SHA-256 of all blocks in table and id order.
    """

    checkpoint: Checkpoint
    n_examples: int
    outcome: Outcome = "stopped"
    reason: str = ""
    saved: bool = False
    iteration: int = 0
    iterations: int = 0
    losses: list[tuple[int, float]] = field(default_factory=list)
    metrics: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    early_stopping: dict[str, Any] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    recoveries: list[dict[str, Any]] = field(default_factory=list)
    resumed_from: dict[str, Any] | None = None
    n_saves: int = 0
    bytes_saved: int = 0
    stored_bytes: int = 0
    stall_s: float = 0.0
    wall_s: float = 0.0
    digest: str | None = None
    _held_at_s: float = 0.0
    _recovering_since_s: float = 0.0
    _repairing_since_s: float = 0.0

    @property
    def converged(self) -> bool:
        """Whether the criterion was met."""
        return self.outcome == "converged"

    def take_in(self, record: Record) -> Record:
        """Note what a record says. Returns it with the seconds and means that follow from earlier ones."""
        fields, extra = record.fields, {}
        self.wall_s = record.t_s
        match record.name:
            case "run_started" | "iteration_committed":
                self.iteration, self.iterations = fields["iteration"], fields["executed"]
            case "loss_evaluated":
                self.losses.append((fields["executed"], fields["loss_sum"]))
                extra = {"loss_mean": fields["loss_sum"] / max(self.n_examples, 1)}
            case "metrics_evaluated":
                self.metrics.append((fields["executed"], dict(fields["metrics"])))
                known = ("stops_by", "best", "best_iteration", "n_since_best")
                self.early_stopping = {name: fields[name] for name in known if name in fields}
            case "commit_held":
                self._held_at_s = record.t_s
            case "commit_released":
                self.stall_s += record.t_s - self._held_at_s
            case "save_committed":
                self.n_saves += 1
                self.bytes_saved += fields["size_bytes"]
                self.stored_bytes += fields["stored_bytes"]
            case "node_lost":
                self.failures.append({"iteration": self.iteration, **fields})
            case "recovery_started":
                self._recovering_since_s = record.t_s
            case "recovery_completed":
                extra = self._recovered(record)
            case "repair_started":
                self._repairing_since_s = record.t_s
            case "repair_completed":
                extra = self._repaired(record)
        return replace(record, fields={**fields, **extra}) if extra else record

    def _recovered(self, record: Record) -> dict[str, Any]:
        if record["kind"] == "start":
            if record["restored"]:
                keys = ("iteration", "restored", "from_x0", "oldest", "newest", "mean_age_iters")
                self.resumed_from = {k: record[k] for k in keys}
            return {}
        self.iteration = record["iteration"]
        extra = {"seconds": record.t_s - self._recovering_since_s}
        recovery = {**record.fields, **extra, "executed": self.iterations}
        if record["kind"] == "repair":
            # Until it is completed. If nothing was lost, or another node is before that, it never will be.
            recovery |= {"repair_iters": 0.0, "repair_seconds": 0.0, "perturbation_repaired": record["perturbation"]}
        self.recoveries.append(recovery)
        return extra

    def _repaired(self, record: Record) -> dict[str, Any]:
        seconds = record.t_s - self._repairing_since_s
        self.recoveries[-1] |= {
            "repair_iters": record["work_iters"],
            "repair_seconds": seconds,
            "perturbation_repaired": record["perturbation"],
        }
        return {"seconds": seconds}

    def end(self, finish: Finish, digest: str | None) -> None:
        """The run is over."""
        self.outcome, self.reason, self.saved, self.digest = finish.outcome, finish.reason, finish.saved, digest

    def to_json(self) -> dict[str, Any]:
        """One JSON-ready object: what ``--json`` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "outcome": self.outcome,
            "reason": self.reason,
            "converged": self.converged,
            "saved": self.saved,
            "iteration": self.iteration,
            "iterations": self.iterations,
            "losses": [{"iterations": k, "loss_sum": loss} for k, loss in self.losses],
            "metrics": [{"iterations": k, "metrics": values} for k, values in self.metrics],
            "early_stopping": self.early_stopping or None,
            "failures": self.failures,
            "recoveries": self.recoveries,
            "resumed_from": self.resumed_from,
            "n_saves": self.n_saves,
            "bytes_saved": self.bytes_saved,
            "stored_bytes": self.stored_bytes,
            "stall_s": round(self.stall_s, 6),
            "wall_s": round(self.wall_s, 6),
            "digest": self.digest,
        }

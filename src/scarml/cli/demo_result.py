"""What the demo comes to: a tidy table of all curves, a table for people, one JSON object."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scarml.cli.run_name import RUNS, new_folder, run_folder

__all__ = ["Folder", "Played", "Row", "as_table", "to_json"]

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Row:
    """A point of a curve.

    Args:
        run: name of the run.
        iterations: done in all when it was taken.
        iteration: of the state.
        loss_sum: at that moment.
        event: empty, or what happened then.
    """

    run: str
    iterations: int
    iteration: int
    loss_sum: float
    event: str = ""


@dataclass(frozen=True, slots=True)
class Played:
    """One run of the demo, done.

    Args:
        name, label: for programs and for people.
        rows: its curve.
        converged: whether it met the criterion.
        iterations: until then, repeated ones counted again.
        lost_blocks: None if nothing was lost.
        perturbation: None if nothing was lost, or if it cannot be known.
        bytes_saved: of block values.
        digest: of all blocks at the end.
        simulated: whether the failure was.
        n_skipped: saves that fell due while the one before was still being written.
    """

    name: str
    label: str
    rows: Sequence[Row]
    converged: bool
    iterations: int
    lost_blocks: int | None
    perturbation: float | None
    bytes_saved: int
    digest: str | None
    simulated: bool
    n_skipped: int


@dataclass(frozen=True, slots=True)
class Folder:
    """Where the demo keeps its runs and pictures."""

    path: Path

    @classmethod
    def make(cls, named: Path | None) -> Folder:
        """The folder that the user names, or a new one.

        Raises:
            UsageError: it cannot be made.
        """
        if named is None:
            return cls(new_folder(RUNS, "demo"))
        with run_folder(str(named), "demo", None) as path:
            return cls(Path(path))

    def write_table(self, played: Sequence[Played]) -> list[dict[str, Any]]:
        """Keep the curves as ``demo.csv``, and return them as rows."""
        rows = [dataclasses.asdict(row) for p in played for row in p.rows]
        with (self.path / "demo.csv").open("w", newline="") as f:
            writer = csv.DictWriter(f, [field.name for field in dataclasses.fields(Row)])
            writer.writeheader()
            writer.writerows(rows)
        return rows


def iteration_cost(played: Played, baseline: Played) -> int:
    """Iterations more than without failures."""
    return played.iterations - baseline.iterations


def as_table(played: Sequence[Played]) -> list[str]:
    """For people, a line a run."""
    head = ("", "iterations", "cost", "lost blocks", "perturbation", "bytes saved")
    body = [head]
    for p in played:
        cost = "" if p is played[0] else f"{iteration_cost(p, played[0]):+d}"
        lost = "" if p.lost_blocks is None else f"{p.lost_blocks}"
        delta = "" if p.perturbation is None else f"{p.perturbation:.6f}"
        body.append((p.label, str(p.iterations), cost, lost, delta, f"{p.bytes_saved:,}"))
    widths = [max(len(row[i]) for row in body) for i in range(len(head))]
    lines = [
        "  ".join([f"{row[0]:<{widths[0]}}", *(f"{c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in body
    ]
    return [*lines[:1], "─" * len(lines[0]), *lines[1:], *_notes(played)]


def _notes(played: Sequence[Played]) -> list[str]:
    same = [p.label for p in played[1:] if p.digest == played[0].digest]
    return [
        "",
        "iterations: until the criterion is met, repeated ones counted again; cost: how many more than without failure",
        "perturbation: distance of the restored from the lost parameters (the killed process took its values with it)",
        *(
            f"'{p.label}': {p.n_skipped} saves were skipped, since the disk was slower than training; the next one is "
            "up to twice as large"
            for p in played
            if p.n_skipped
        ),
        *(f"ends with bit for bit the parameters of '{played[0].label}': {label}" for label in same),
    ]


def to_json(played: Sequence[Played], criterion: float) -> dict[str, Any]:
    """For programs."""
    keys = (
        "name", "label", "converged", "iterations", "lost_blocks", "perturbation", "bytes_saved", "digest", "simulated",
        "n_skipped",
    )  # fmt: skip
    return {
        "schema_version": SCHEMA_VERSION,
        "stop_loss_sum": criterion,
        "runs": [{**{k: getattr(p, k) for k in keys}, "iteration_cost": iteration_cost(p, played[0])} for p in played],
    }

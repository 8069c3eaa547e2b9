"""What mending is worth: the cost of losing half of the parameters, partial recovery against `repair`.

    python -m scarml.experiments.repair_table --out docs/results/repair --trials 30

The failures are the same for both. The work of the repair is part of the cost. Finished cells are kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from scarml.errors import ScarError
from scarml.experiments.failure import FailurePlan
from scarml.experiments.problem import Panel
from scarml.experiments.results import TrialRow
from scarml.experiments.strategy import Strategy, partial, repair
from scarml.experiments.sweep import Cell, Sweep

__all__ = ["PANELS", "SAVED", "Comparison", "main", "measure", "render"]

PANELS = {
    "MF on MovieLens": (Panel("mf", "movielens"), 0),
    "MF on MovieLens, between the phases": (Panel("mf", "movielens"), 1),
    "LDA on KOS": (Panel("lda", "kos"), 0),
    "LDA on 20 Newsgroups": (Panel("lda", "20newsgroups"), 0),
}
"""By title what is trained, and after how many phases of an iteration failures strike."""

SAVED: dict[str, tuple[Strategy, Strategy]] = {
    "`priority` 1/8": (partial("priority", Fraction(1, 8)), repair("priority", Fraction(1, 8))),
    "full checkpoint": (partial("full", Fraction(1)), repair("full", Fraction(1))),
}
"""By title the two ways to recover from the same checkpoint."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The trials of one panel from one kind of checkpoint, in the same order."""

    title: str
    saved: str
    restored: Sequence[TrialRow]
    mended: Sequence[TrialRow]


def measure(title: str, out: Path, plan: FailurePlan, sweep: Sweep | None = None) -> list[Comparison]:
    """Run what is missing of one panel."""
    panel, after_phase = PANELS[title]
    sweep = sweep or Sweep(panel, replace(plan, after_phase=after_phase))
    folder = out / (panel.name + ("-between-phases" if after_phase else ""))
    found = []
    for saved, strategies in SAVED.items():
        restored, mended = (sweep.run([Cell(s, 0)], folder, lambda line: _write_error(line)) for s in strategies)
        found.append(Comparison(title, saved, restored, mended))
    return found


def render(measured: Sequence[Comparison]) -> str:
    """A table in Markdown; ± is twice the standard error, of the difference in pairs."""
    lines = [
        "| | saved as | trials | cost, partial | cost, repair | difference | work of it | ‖δ‖ restored | ‖δ‖ mended |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for m in measured:
        costs = [np.array([r.cost for r in rows]) for rows in (m.restored, m.mended)]
        mean = {
            name: float(np.mean([getattr(r, name) for r in m.mended]))
            for name in ("repair_iters", "perturbation", "perturbation_repaired")
        }
        cells = [
            *(_mean(c) for c in (*costs, costs[1] - costs[0])),
            f"{mean['repair_iters']:.2f}",
            *(f"{mean[name]:.4g}" for name in ("perturbation", "perturbation_repaired")),
        ]
        lines.append(f"| {m.title} | {m.saved} | {len(m.mended)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _mean(values: np.ndarray) -> str:
    spread = 2 * float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{np.mean(values):.2f} ± {spread:.2f}".replace("-", "−")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m scarml.experiments.repair_table", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--trials", type=int, default=30, help="failures a cell")
    parser.add_argument("--seed", type=int, default=2, help="of the failures")
    parser.add_argument("--panel", action="append", choices=list(PANELS), help="which panels (default: all)")
    given = parser.parse_args(argv)
    try:
        plan = FailurePlan(seed=given.seed, n_trials=given.trials)
        text = render([row for title in given.panel or PANELS for row in measure(title, given.out, plan)])
    except ScarError as error:
        _write_error(f"error: {error}")
        return 2
    sys.stdout.write(f"{text}\n")
    return 0


def _write_error(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())

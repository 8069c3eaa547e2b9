"""The first table: what losing half of the parameters costs, for MLR on MNIST and MF on MovieLens.

    python -m scarml.experiments.first_table --out docs/results/first-table --trials 30

Finished cells in the folder are kept, so that an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TextIO

import numpy as np

from scarml.errors import ScarError
from scarml.experiments.about import About
from scarml.experiments.failure import FailurePlan, truncated_geometric_mean
from scarml.experiments.marked_page import replace_marked
from scarml.experiments.problem import Panel
from scarml.experiments.processes import Processes
from scarml.experiments.results import TrialRow
from scarml.experiments.strategy import FLOOR, Strategy, full, partial
from scarml.experiments.summary import select
from scarml.experiments.sweep import Cell, Sweep
from scarml.theory.bootstrap import paired_reduction

__all__ = ["PARTS", "STRATEGIES", "Part", "main", "render", "run"]

EIGHTH = Fraction(1, 8)
STRATEGIES: dict[str, Strategy] = {
    "full checkpoint, full recovery": full(),
    "full checkpoint, partial recovery": partial("full", Fraction(1)),
    "`priority` 1/8, partial recovery": partial("priority", EIGHTH),
    "`round` 1/8, partial recovery": partial("round", EIGHTH),
    "`random` 1/8, partial recovery": partial("random", EIGHTH),
    "floor: everything saved in every iteration": FLOOR,
}
"""Their names in the table."""


@dataclass(frozen=True, slots=True)
class Part:
    """One block of the table.

    Args:
        title: above it.
        folder: of its results.
        panel: what is trained.
        lags: in commits, with what they mean.
        after_phase: as in `FailurePlan`.
        strategies: their names in the table; the first is the reference.
    """

    title: str
    folder: str
    panel: Panel
    lags: dict[int, str]
    after_phase: int = 0
    strategies: tuple[str, ...] = tuple(STRATEGIES)


_BOUNDARY = {0: "lag 0", 1: "lag 1"}
PARTS = (
    Part("MLR on MNIST", "mlr-mnist", Panel("mlr", "mnist"), _BOUNDARY),
    Part("MF on MovieLens, failures at iteration boundaries", "mf-movielens", Panel("mf", "movielens"), _BOUNDARY),
    Part(
        "MF on MovieLens, failures between the two phases of an iteration",
        "mf-movielens-between-phases",
        Panel("mf", "movielens"),
        {0: "lag 0 and lag 1", 2: "lag 2"},
        after_phase=1,
        strategies=tuple(name for name in STRATEGIES if "round" not in name and "random" not in name),
    ),
)


def run(
    out: Path,
    plan: FailurePlan,
    *,
    parts: Sequence[Part] = PARTS,
    processes: Processes = Processes(),  # noqa: B008  # frozen
    tell: Callable[[str], None] = lambda _: None,
) -> str:
    """Run what is missing in the folder ``out``, and render the table.

    Returns:
        Markdown, without the heading.
    """
    about = About(out / "about.json", resumed=out.exists() and any(out.rglob("*.csv")))
    command = f"python -m scarml.experiments.first_table --out {out} --trials {plan.n_trials}"
    facts = {"failure_seed": plan.seed, "lost_fraction": str(plan.lost_fraction)}
    texts = []
    with about.timing(command, processes.n, **facts):
        for part in parts:
            sweep = Sweep(part.panel, replace(plan, after_phase=part.after_phase), processes=processes)
            cells = [Cell(STRATEGIES[name], lag) for name in part.strategies for lag in part.lags]
            texts.append(render(part, sweep.run(cells, out / part.folder, tell), sweep.trajectory.n_iters))
    return "\n\n".join([about.in_words(), *texts])


def render(part: Part, rows: Sequence[TrialRow], n_iters: int) -> str:
    """One block of the table, from its rows alone."""
    reference, first = STRATEGIES[part.strategies[0]], rows[0]
    failures = select(rows, strategy=reference.name, lag_commits=0)
    mean_t = float(np.mean([r.failed_at_iter for r in failures]))
    expected = truncated_geometric_mean(min(first.rate_per_baseline / n_iters, 0.999), n_iters - 1)
    head = "| strategy | " + " | ".join(f"cost, {name} | reduction | whole | ‖δ‖" for name in part.lags.values()) + " |"
    lines = [
        f"**{part.title}.** Criterion: summed loss below {first.criterion:,.1f}, met after {n_iters} iterations "
        f"without failure. {len(failures)} failures, on x({mean_t:.1f}) on average (the distribution's mean is "
        f"{expected + first.failed_at_iter % 1:.1f}).",
        "",
        head,
        "| --- |" + " ---: |" * (4 * len(part.lags)),
    ]
    for title in part.strategies:
        columns = []
        for lag in part.lags:
            mine = select(rows, strategy=STRATEGIES[title].name, lag_commits=lag)
            theirs = select(rows, strategy=reference.name, lag_commits=lag)
            columns += _columns(mine, theirs)
        lines.append(f"| {title} | " + " | ".join(columns) + " |")
    return "\n".join(lines)


def _columns(mine: Sequence[TrialRow], reference: Sequence[TrialRow]) -> list[str]:
    cost, whole = float(np.mean([r.cost for r in mine])), float(np.mean([r.cost_whole for r in mine]))
    norm = float(np.mean([r.perturbation for r in mine]))
    if mine[0].strategy == reference[0].strategy:
        reduction = "–"
    else:
        change = paired_reduction([r.cost for r in reference], [r.cost for r in mine])
        reduction = f"{_percent(change.value)} % [{_percent(change.high)}, {_percent(change.low)}]"
    return [f"{cost:.2f}".replace("-", "−"), reduction, f"{whole:.2f}".replace("-", "−"), f"{norm:.3g}"]


def _percent(reduction: float) -> str:
    return f"{-100 * reduction:+.1f}".replace("-", "−")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m scarml.experiments.first_table", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--trials", type=int, default=30, help="failures a cell")
    parser.add_argument("--seed", type=int, default=1, help="of the failures")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--page", type=Path, help="page whose marked part is replaced by the table")
    given = parser.parse_args(argv)
    try:
        plan = FailurePlan(seed=given.seed, n_trials=given.trials)
        text = run(given.out, plan, processes=Processes(given.jobs), tell=lambda line: _write(sys.stderr, line))
        if given.page is not None:
            given.page.write_text(replace_marked(given.page.read_text(), "first-table", text))
    except ScarError as error:
        _write(sys.stderr, f"error: {error}")
        return 2
    except KeyboardInterrupt:
        _write(sys.stderr, "interrupted; the same command goes on with the cells that are missing")
        return 130
    _write(sys.stdout, text)
    return 0


def _write(stream: TextIO, line: str) -> None:
    stream.write(f"{line}\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())

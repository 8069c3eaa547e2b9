"""What a repair costs and gains, in sweeps and in the table of it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.unit.experiments.samples import trainer_of

from scarml.experiments.failure import FailurePlan
from scarml.experiments.problem import Panel
from scarml.experiments.repair_table import SAVED, Comparison, main, measure, render
from scarml.experiments.strategy import partial, repair
from scarml.experiments.sweep import Cell, Sweep

PLAN = FailurePlan(seed=2, n_trials=4)


def tiny_sweep(name: str = "mf") -> Sweep:
    return Sweep(Panel("mf", "movielens"), PLAN, trainer=trainer_of(name, 20))


def test_the_work_of_a_repair_is_part_of_the_cost() -> None:
    sweep = tiny_sweep()
    restored, mended = (sweep.run_cell(Cell(way("priority", Fraction(1, 8)), 0)) for way in (partial, repair))
    assert [r.strategy for r in mended] == ["priority-1-8-repair"] * 4
    for a, b in zip(restored, mended, strict=True):
        assert (a.repair_iters, a.perturbation_repaired) == (0, a.perturbation)
        assert (b.perturbation, b.n_lost_blocks, b.control) == (a.perturbation, a.n_lost_blocks, a.control)
        assert 0.3 < b.repair_iters < 0.7
        assert b.perturbation_repaired != b.perturbation
        whole = b.cost_whole + b.control_whole - b.repair_iters - b.rework_iters
        assert whole == pytest.approx(round(whole)), "what is left are whole iterations"


def test_a_model_that_mends_nothing_costs_what_partial_recovery_does() -> None:
    sweep = tiny_sweep("mlr")
    restored, mended = (sweep.run_cell(Cell(way("priority", Fraction(1, 8)), 0)) for way in (partial, repair))
    assert [r.cost for r in mended] == [r.cost for r in restored]


def test_the_table_is_that_of_the_rows_and_comes_again_from_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = measure("MF on MovieLens", tmp_path, PLAN, tiny_sweep())
    assert [m.saved for m in measured] == list(SAVED)
    lines = render(measured).splitlines()
    assert len(lines) == 2 + len(SAVED)
    for line, m in zip(lines[2:], measured, strict=True):
        cells = [c.strip() for c in line.strip("|").split("|")]
        costs = [np.mean([r.cost for r in rows]) for rows in (m.restored, m.mended)]
        expected = [*costs, costs[1] - costs[0]]
        assert [c.split(" ± ")[0].replace("−", "-") for c in cells[3:6]] == [f"{c:.2f}" for c in expected]
        assert cells[:3] == [m.title, m.saved, "4"]
    monkeypatch.setattr(Sweep, "run_cell", lambda *_: pytest.fail("all cells are there"))
    assert render(measure("MF on MovieLens", tmp_path, PLAN, tiny_sweep())) == "\n".join(lines)


def test_one_trial_has_no_spread() -> None:
    sweep = Sweep(Panel("mf", "movielens"), FailurePlan(n_trials=1), trainer=trainer_of("mf", 12))
    rows = sweep.run_cell(Cell(repair("full", Fraction(1)), 0))
    assert "± nan" in render([Comparison("t", "s", rows, rows)])


def test_bad_options_end_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path), "--trials", "0"]) == 2
    assert "--trials is 0" in capsys.readouterr().err

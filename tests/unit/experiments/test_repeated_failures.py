"""The figure of repeated failures on problems that take a second: its rows, its files, what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from tests.unit.experiments.samples import trainer_of

from scarml.errors import UsageError
from scarml.experiments import panel_figure, repeated_sweep
from scarml.experiments.failure import FailurePlan
from scarml.experiments.figures import Wanted
from scarml.experiments.panels import PANELS, PaperPanel
from scarml.experiments.problem import Panel
from scarml.experiments.processes import Processes
from scarml.experiments.repeated_failures import CELLS as FIGURE_CELLS
from scarml.experiments.repeated_failures import FIGURE, RATES
from scarml.experiments.repeated_rows import RepeatedRow, summarise
from scarml.experiments.repeated_sweep import RepeatedSweep
from scarml.experiments.repeated_table import expected_full_cost, table
from scarml.experiments.results import read_rows
from scarml.experiments.strategy import FLOOR, full, partial
from scarml.experiments.sweep import Cell

QP = PaperPanel("QP", Panel("qp"))
PLAN = FailurePlan(n_trials=5, rate_per_baseline=4.0)
CELLS = [Cell(full(), 0), Cell(partial("priority", Fraction(1, 8)), 0), Cell(FLOOR, 1)]


def tiny_sweep() -> RepeatedSweep:
    return RepeatedSweep(Panel("tiny-mlr"), trainer=trainer_of("mlr", 20))


def test_rows_say_everything() -> None:
    for cell in CELLS:
        for row in tiny_sweep().run_cell(cell, PLAN):
            assert (row.panel, row.strategy, row.lag_commits) == ("tiny-mlr", cell.strategy.name, cell.lag)
            assert (row.rate_per_baseline, row.lost_fraction, row.converged) == (4.0, "1/2", True)
            assert row.n_lost_blocks == 6 * row.n_failures
            assert row.control_whole == 20
            if cell.strategy.name == "full-full":
                assert row.cost == pytest.approx(row.rework_iters)
                assert row.cost_whole == row.rework_iters


def test_without_a_failure_all_strategies_cost_nothing_and_fail_alike() -> None:
    seldom = replace(PLAN, rate_per_baseline=0.5, n_trials=20)
    rows = [tiny_sweep().run_cell(cell, seldom) for cell in CELLS]
    spared = [[r.trial for r in of_cell if not r.n_failures] for of_cell in rows]
    assert spared[0] == spared[1] == spared[2] != []
    assert {r.cost for of_cell in rows for r in of_cell if not r.n_failures} == {0}


def test_a_cell_is_kept_and_more_runs_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cell = tmp_path / "rows.csv.gz", CELLS[1]
    whole = tiny_sweep().run_cell(cell, PLAN)
    first = tiny_sweep().run(cell, replace(PLAN, n_trials=3), path)
    trials: list[int] = []
    run = repeated_sweep._run

    def counted(*given: object) -> RepeatedRow:
        row = run(*given)  # type: ignore[arg-type]
        trials.append(row.trial)
        return row

    monkeypatch.setattr(repeated_sweep, "_run", counted)
    more = tiny_sweep().run(cell, PLAN, path)
    assert trials == [3, 4]
    assert more[:3] == first
    assert [replace(r, n_trials=5) for r in more] == whole
    assert read_rows(path, RepeatedRow) == more
    tiny_sweep().run(cell, replace(PLAN, rate_per_baseline=5.0), path)
    assert len(trials) == 2 + 5  # another rate is another cell


def test_the_figure_runs_once_and_says_what_it_came_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panel_figure, "QUICK", QP)
    told: list[tuple[str, int, int]] = []
    wanted = Wanted(quick=True, n_trials=1)
    rows = FIGURE.run(tmp_path, wanted, tell=lambda *what: told.append(what))
    n_cells = 2 * len(FIGURE_CELLS)
    assert len(rows) == n_cells
    assert told[-1] == ("qp", n_cells, n_cells)
    assert len(list((tmp_path / "qp" / "rate-8").glob("*.csv.gz"))) == len(FIGURE_CELLS)
    about = json.loads((tmp_path / "qp" / "about.json").read_text())
    assert about["command"] == "scarml figure repeated-failures --quick --trials 1"
    monkeypatch.setattr(repeated_sweep, "_run", None)
    assert FIGURE.run(tmp_path, wanted) == rows
    assert len(FIGURE.words(rows)) == len(FIGURE.summary(rows)) == n_cells
    assert any("8 failures a baseline, full-full at lag 0: 1 runs" in line for line in FIGURE.words(rows))


def test_every_panel_is_one_that_can_be_run(tmp_path: Path) -> None:
    assert all(not PANELS[name].panel.noisy and PANELS[name].panel.smoothed_iters == 1 for name in FIGURE.panels)
    assert set(RATES) == {1, 2, 4, 8}
    with pytest.raises(UsageError, match=r"no panel 'lda-reuters-r8'; choose one of mlr-mnist, "):
        FIGURE.run(tmp_path, Wanted(panels=("lda-reuters-r8",)))
    with pytest.raises(UsageError, match="deterministic"):
        RepeatedSweep(PANELS["lda-reuters-r8"].panel)
    with pytest.raises(UsageError, match="without a name"):
        RepeatedSweep(Panel("tiny-mlr"), processes=Processes(2), trainer=trainer_of("mlr", 20))


def test_runs_that_were_given_up_are_counted_and_make_no_reduction() -> None:
    rows = tiny_sweep().run_cell(CELLS[0], PLAN) + tiny_sweep().run_cell(CELLS[1], PLAN)
    whole, priority = summarise(rows)
    assert (whole.n_given_up, whole.reduction) == (0, None)
    assert priority.reduction is not None
    assert priority.reduction.value == pytest.approx(1 - priority.cost.value / whole.cost.value)
    rows[0] = replace(rows[0], converged=False, cost=1000.0)
    whole, priority = summarise(rows)
    assert (whole.n_given_up, priority.n_given_up, priority.reduction) == (1, 0, None)
    assert whole.cost.value > 200
    assert "at least: 1 were given up" in FIGURE.words(rows)[0]


def test_the_table_has_a_line_for_each_rate() -> None:
    rows = [replace(r, panel="mf-jester") for cell in CELLS for r in tiny_sweep().run_cell(cell, PLAN)]
    rows += [replace(r, rate_per_baseline=8.0, cost=9.0, converged=r.trial > 0) for r in rows]
    _, _, first, second = table(rows).splitlines()
    assert first.startswith("| MF on Jester | 4 | 5 |")
    full_mean = sum(r.cost for r in rows[:5]) / 5
    assert first.split(" | ")[4].startswith(f"{full_mean:.1f} [")
    assert first.split(" | ")[5] == first.split(" | ")[7] == "–"
    assert second.split(" | ")[4] == "≥ 9.0 [9.0, 9.0], 1 given up"


@pytest.mark.parametrize("rate", [2.0, 8.0])
def test_full_recovery_costs_about_what_the_model_of_run_time_expects(rate: float) -> None:
    """It strikes at any time, ours at boundaries; at lag 0 it expects a little more, at lag 1 less."""
    sweep = RepeatedSweep(Panel("tiny-qp"), trainer=trainer_of("qp", 60))
    costs = [
        sum(r.cost for r in sweep.run_cell(Cell(full(), lag), FailurePlan(n_trials=80, rate_per_baseline=rate))) / 80
        for lag in (0, 1)
    ]
    expected = expected_full_cost(60, 8, rate)
    assert 0.7 * expected < costs[0] < expected < costs[1] < 2 * expected

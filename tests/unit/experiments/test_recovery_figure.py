"""Figures 7 and 8 on a problem that takes a second."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from scarml.errors import UsageError
from scarml.experiments import beyond, panel_figure, partial_recovery, priority_checkpoints, recovery_figure, sweep
from scarml.experiments.figures import Wanted
from scarml.experiments.panels import PANELS, PaperPanel, panel_named
from scarml.experiments.problem import Panel
from scarml.models import registry

QP = PaperPanel("QP", Panel("qp"), ("blocks", "bytes"))
FIGURES = [partial_recovery.FIGURE, priority_checkpoints.FIGURE, beyond.FIGURE]


@pytest.fixture(autouse=True)
def _quick_is_a_quadratic_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panel_figure, "QUICK", QP)


@pytest.mark.parametrize("figure", FIGURES)
def test_every_cell_is_a_file_and_runs_once(
    figure: recovery_figure.RecoveryFigure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, int, int]] = []
    rows = figure.run(tmp_path, Wanted(quick=True, n_trials=3), tell=lambda *what: told.append(what))
    n_cells = len(figure.cells(QP))
    assert len(rows) == 3 * n_cells
    assert len(list((tmp_path / "qp").glob("lost-*/*.csv.gz"))) == n_cells
    assert told[-1] == ("qp", n_cells, n_cells)
    command = json.loads((tmp_path / "qp" / "about.json").read_text())["command"]
    assert command == f"scarml figure {figure.name} --quick --trials 3"
    monkeypatch.setattr(sweep, "train_to_criterion", None)
    assert figure.run(tmp_path, Wanted(quick=True, n_trials=3)) == rows
    assert len(figure.words(rows)) == len(figure.summary(rows)) == n_cells


def test_full_recovery_costs_the_same_whatever_is_lost(tmp_path: Path) -> None:
    rows = partial_recovery.FIGURE.run(tmp_path, Wanted(quick=True, n_trials=3))
    by_fraction = {
        lost: [r.cost for r in rows if r.strategy == "full-full" and r.lost_fraction == lost]
        for lost in ("1/4", "1/2", "3/4", "1")
    }
    assert len({tuple(costs) for costs in by_fraction.values()}) == 1


def test_budgets_in_bytes_are_run_beside_those_in_blocks() -> None:
    names = [cell.strategy.name for _, cell in priority_checkpoints.FIGURE.cells(QP) if cell.lag == 0]
    assert names.count("full-partial") == 1
    assert {"priority-1-8-partial", "priority-1-8-of-bytes-partial"} <= set(names)
    assert len(set(names)) == len(names) == 2 + 2 * 3 * 3 + 2


def test_strategies_of_figure_8_write_the_same_each_interval() -> None:
    for _, cell in priority_checkpoints.FIGURE.cells(QP):
        checkpoint = cell.strategy.checkpoint
        if cell.strategy.name != "floor":
            assert checkpoint.schedule.period_iters == checkpoint.fraction * 8


def test_an_unknown_panel_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no panel 'x'; choose one of mlr-mnist"):
        partial_recovery.FIGURE.run(tmp_path, Wanted(panels=("x",)))
    assert not list(tmp_path.iterdir())


def test_there_are_the_eight_panels_of_the_paper() -> None:
    assert len(PANELS) == 8
    assert panel_named("cnn-by-layer-mnist").budgets == ("blocks", "bytes")
    for panel in (p.panel for p in PANELS.values()):
        if panel.model == "cnn":
            pytest.importorskip("torch")
        model = registry.model_class(panel.model)
        registry.create(model, panel.data, **dict(panel.hyper_parameters))
        assert panel.criterion or registry.defaults_for(model, panel.data).stop_loss_sum
        assert panel.noisy == (panel.model == "lda")
    assert Fraction(1, 2) == priority_checkpoints.LOST_FRACTION

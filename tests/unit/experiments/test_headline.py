"""The headline table says what was planted in the rows, and nothing where there are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.experiments.samples import trainer_of

from scarml.errors import UsageError
from scarml.experiments.failure import FailurePlan
from scarml.experiments.headline import Measured, costs, headline, main, read, short, tables
from scarml.experiments.problem import Panel
from scarml.experiments.results import TrialRow, write_rows
from scarml.experiments.strategy import full
from scarml.experiments.sweep import Cell, Sweep

N = 20


def planted(panel: str, part: float, strategy: str, lost: str = "1/2", lag: int = 0) -> list[TrialRow]:
    """Full recovery, and a strategy that costs that part of it."""
    sweep = Sweep(Panel("tiny-mlr"), FailurePlan(n_trials=N), trainer=trainer_of("mlr", 20))
    whole = [replace(r, panel=panel, lost_fraction=lost, lag_commits=lag) for r in sweep.run_cell(Cell(full(), 0))]
    return whole + [replace(r, strategy=strategy, cost=part * r.cost, cost_whole=r.cost_whole) for r in whole]


@pytest.fixture(scope="module")
def measured() -> Measured:
    partial = planted("mlr-mnist", 0.5, "full-partial") + planted("mlr-mnist", 0.75, "full-partial", "3/4")
    priority = planted("mlr-mnist", 0.1, "priority-1-8-partial")
    priority += (
        planted("mlr-mnist", 0.2, "priority-1-8-partial", lag=1) + planted("mlr-mnist", 0.15, "floor", lag=1)[N:]
    )
    priority += planted("cnn-by-layer-mnist", 0.3, "priority-1-8-of-bytes-partial")
    beyond = planted("mlr-mnist", 0.02, "general") + planted("mlr-mnist", 0.18, "general", lag=1)
    return Measured(partial, priority, beyond)


def cells_of(table: str, title: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {title} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_reductions_are_those_that_were_planted(measured: Measured) -> None:
    cells = cells_of(headline(measured), "MLR on MNIST")
    assert cells == [
        "MLR on MNIST",
        "20",
        "−25 % [−25, −25]",
        "−50 % [−50, −50]",
        "–",
        "−90 % [−90, −90]",
        "+0 %",
        "−80 % [−80, −80]",
        "−98 % [−98, −98]",
        "−82 % [−82, −82]",
        "−85 % [−85, −85]",
    ]


def test_budgets_in_bytes_have_a_line_of_their_own(measured: Measured) -> None:
    table = headline(measured)
    assert cells_of(table, "CNN by layer on MNIST")[5] == "–"
    assert cells_of(table, "CNN by layer on MNIST, budget in bytes")[5] == "−70 % [−70, −70]"


def test_baselines_of_others_have_a_column_where_they_were_run(measured: Measured) -> None:
    assert "`mfu` 1/8" not in costs(measured)
    table = costs(Measured([], planted("mlr-mnist", 0.4, "mfu-1-8-partial")))
    assert table.splitlines()[0].endswith("| `random` 1/8 | `mfu` 1/8 |")
    full_cost, mfu_cost = (cells_of(table, "MLR on MNIST")[i].split()[0] for i in (1, -1))
    assert float(mfu_cost) == pytest.approx(0.4 * float(full_cost), abs=0.01)


def test_panels_that_were_not_run_are_left_out(measured: Measured) -> None:
    for table in (headline(measured), short(measured), costs(measured)):
        assert "Jester" not in table
    assert cells_of(short(measured), "MLR on MNIST")[2:] == [
        "−50 % [−50, −50]",
        "−90 % [−90, −90]",
        "−98 % [−98, −98]",
    ]


def test_pages_get_the_tables_that_they_have_room_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "results" / "figure-8-priority-checkpoints" / "mlr-mnist" / "lost-1-2"
    rows = planted("mlr-mnist", 0.1, "priority-1-8-partial")
    for some in (rows[:N], rows[N:]):
        write_rows(folder / f"{some[0].strategy}.lag-0.csv.gz", some)
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- headline-short: begin -->\nold\n<!-- headline-short: end -->\nb\n")
    assert main(["--results", str(tmp_path / "results"), "--page", str(page)]) == 0
    assert "−90 % [−90, −90]" in capsys.readouterr().out
    assert "old" not in page.read_text()
    assert short(read(tmp_path / "results")) in page.read_text()


def test_late_failures_have_a_table_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "figure-8-priority-checkpoints" / "mlr-mnist" / "lost-1-2"
    rows = [replace(r, failed_at_iter=5.0) for r in planted("mlr-mnist", 0.1, "priority-1-8-partial")]
    late = [replace(r, trial=r.trial + N, failed_at_iter=20.0, cost=2 * r.cost) for r in rows[:N]]
    late += [replace(r, trial=r.trial + N, failed_at_iter=20.0, cost=1.2 * r.cost) for r in rows[N:]]
    for strategy in ("full-full", "priority-1-8-partial"):
        write_rows(folder / f"{strategy}.csv", [r for r in rows + late if r.strategy == strategy])
    assert cells_of(headline(read(tmp_path, from_iter=16)), "MLR on MNIST")[1:6:4] == ["20", "−94 % [−94, −94]"]
    assert cells_of(tables(tmp_path)["headline"], "MLR on MNIST")[1] == "40"


def test_a_few_trials_are_no_result() -> None:
    rows = planted("mlr-mnist", 0.1, "priority-1-8-partial")
    few = Measured([], [r for r in rows if r.trial < 9])
    assert cells_of(headline(few), "MLR on MNIST")[1:6] == ["9", "–", "–", "–", "–"]
    assert "MLR on MNIST" not in short(few)


def test_no_results_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="scarml figure"):
        read(tmp_path)
    assert main(["--results", str(tmp_path)]) == 2

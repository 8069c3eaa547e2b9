"""Sweeps keep what is finished, make anew what is not the same, and write tidy rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.experiments.samples import trainer_of

from scarml.core.sequential import digest
from scarml.errors import DataError, ModelError, UsageError
from scarml.experiments import sweep as module
from scarml.experiments.failure import FailurePlan
from scarml.experiments.problem import Panel, trainer_for
from scarml.experiments.processes import Processes
from scarml.experiments.results import read_folder, read_rows, write_rows
from scarml.experiments.strategy import FLOOR, full, partial, repair
from scarml.experiments.sweep import Cell, Sweep
from scarml.experiments.trial import train_to_criterion
from scarml.theory.iteration_cost import full_recovery_cost

PANEL = Panel("tiny-mlr")
CELLS = [
    Cell(full(), 0),
    Cell(full(), 1),
    Cell(partial("full", Fraction(1)), 0),
    Cell(partial("priority", Fraction(1, 8)), 1),
    Cell(FLOOR, 0),
]


def tiny_sweep(n_trials: int = 6, seed: int = 1) -> Sweep:
    return Sweep(PANEL, FailurePlan(seed=seed, n_trials=n_trials), trainer=trainer_of("mlr", 20))


def test_rows_say_everything(tmp_path: Path) -> None:
    rows = tiny_sweep().run(CELLS, tmp_path)
    assert len(rows) == 6 * len(CELLS)
    assert sorted(read_folder(tmp_path), key=str) == sorted(rows, key=str)
    for row in rows:
        assert row.panel == "tiny-mlr"
        if row.strategy == "full-full":
            assert row.cost == row.cost_whole == full_recovery_cost(int(row.failed_at_iter), 8, row.lag_commits)
        if row.strategy == "floor":
            assert row.cost == row.cost_whole == row.perturbation == 0
    for name in ("failed_at_iter", "n_lost_blocks"):  # common random numbers
        assert len({tuple(getattr(r, name) for r in rows[i : i + 6]) for i in range(0, len(rows), 6)}) == 1


def test_finished_cells_are_kept_and_missing_ones_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tiny_sweep().run(CELLS, tmp_path)
    (tmp_path / CELLS[3].file_name).unlink()
    ran: list[object] = []
    train = module.train_to_criterion

    def counted(*given: Any) -> module.Crossing:
        ran.append(given)
        return train(*given)

    monkeypatch.setattr(module, "train_to_criterion", counted)
    told: list[str] = []
    assert tiny_sweep().run(CELLS, tmp_path, told.append) == first
    assert 0 < len(ran) <= 6
    assert len(told) == len(CELLS)


def test_more_trials_are_added_to_those_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_sweep(n_trials=6).run(CELLS, tmp_path, compressed=True)
    trained: list[int] = []
    rows_of = Sweep._rows

    def counted(self: Sweep, cell: Cell, trials: Sequence[int]) -> Iterator[module.TrialRow]:
        trained.extend(trials)
        return rows_of(self, cell, trials)

    monkeypatch.setattr(Sweep, "_rows", counted)
    more = tiny_sweep(n_trials=8).run(CELLS, tmp_path, compressed=True)
    assert trained == [6, 7] * len(CELLS)
    monkeypatch.undo()
    at_once = [row for cell in CELLS for row in tiny_sweep(n_trials=8).run_cell(cell)]
    assert [replace(row, n_trials=8) for row in more] == at_once
    assert sorted(read_folder(tmp_path), key=str) == sorted(more, key=str)
    assert tiny_sweep(n_trials=4).run(CELLS[:1], tmp_path, compressed=True) == more[:4]  # and nothing is thrown away
    assert len(tiny_sweep(n_trials=8).run(CELLS[:1], tmp_path, compressed=True)) == 8


def test_cells_of_other_settings_are_made_anew(tmp_path: Path) -> None:
    before = tiny_sweep().run(CELLS[:1], tmp_path)
    after = tiny_sweep(seed=2).run(CELLS[:1], tmp_path)
    assert before != after
    assert read_rows(tmp_path / CELLS[0].file_name) == after


def test_an_interrupt_leaves_finished_cells_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "train_to_criterion", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tiny_sweep().run(CELLS, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix == ".csv") == sorted(c.file_name for c in CELLS[:2])


def test_the_same_state_is_trained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(PANEL, FailurePlan(n_trials=6), trainer=trainer_of("mlr", 20))
    cell = Cell(partial("full", Fraction(1)), 0)
    first = sweep.run_cell(cell)
    monkeypatch.setattr(module, "train_to_criterion", None)
    assert sweep.run_cell(cell) == first


def test_fractions_may_be_text_or_numbers() -> None:
    assert partial("priority", "1/8") == partial("priority", 0.125) == partial("priority", Fraction(1, 8))
    assert repair("priority", "1/4").name == "priority-1-4-repair"


def test_strategies_of_one_name_are_refused(tmp_path: Path) -> None:
    other = replace(full(), checkpoint=full(4).checkpoint)
    with pytest.raises(UsageError, match="two strategies are called 'full-full', and differ"):
        tiny_sweep().run([Cell(full(), 0), Cell(other, 0)], tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_lag_is_a_whole_number() -> None:
    with pytest.raises(UsageError, match=r"the lag is 1\.5 commits; expected a whole number"):
        tiny_sweep().run_cell(Cell(full(), 1.5))  # type: ignore[arg-type]


def test_data_that_a_model_does_not_take_is_refused() -> None:
    with pytest.raises(ModelError, match="MLR takes a Classification; got dict"):
        trainer_for(Panel("mlr", "builtins:dict", criterion=1.0))


def test_wrong_files_are_named(tmp_path: Path) -> None:
    rows = tiny_sweep().run(CELLS[:1], tmp_path)
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="columns"):
        read_rows(path)
    write_rows(path, rows)
    path.write_text(path.read_text().replace("full-full,full,1,8", "full-full,full,1,eight", 1))
    with pytest.raises(DataError, match="line 2"):
        read_rows(path)


@pytest.mark.parametrize("elsewhere", [Processes(2), Processes(1, "ray")])
def test_other_processes_need_a_panel_with_a_name(elsewhere: Processes) -> None:
    with pytest.raises(UsageError, match="without a name"):
        Sweep(PANEL, FailurePlan(), processes=elsewhere, trainer=trainer_of("mlr", 5))


NOISY = Panel("tiny-lda", noisy=True)


def noisy_sweep(n_trials: int, n_iters: int = 10) -> Sweep:
    return Sweep(NOISY, FailurePlan(n_trials=n_trials), trainer=trainer_of("lda", n_iters))


def test_a_noisy_algorithm_is_held_against_controls_of_each_trial() -> None:
    sweep = noisy_sweep(4)
    rows = sweep.run_cell(Cell(partial("full", Fraction(1)), 0))
    assert len({row.control for row in rows}) > 1  # their own
    again = sweep.run_cell(Cell(partial("priority", Fraction(1, 8)), 0))
    assert [row.control for row in again] == [row.control for row in rows]


def test_controls_of_rows_that_are_there_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Cell(full(), 0), Cell(full(), 1)
    noisy_sweep(3).run([first], tmp_path)
    at_once = noisy_sweep(3).run_cell(second)
    monkeypatch.setattr(module, "train_to_criterion", None)
    assert noisy_sweep(3).run([first, second], tmp_path)[3:] == at_once


def test_random_values_of_a_trial_are_no_cost() -> None:
    sweep = noisy_sweep(30, n_iters=6)
    zero = [c.interpolated for c in sweep._controls(sweep.failures)]
    runs = [
        (sweep.trajectory.states[f.commit], f.commit, sweep.trajectory.crossing.interpolated, sweep._how(f, f.commit))
        for f in sweep.failures
    ]
    costs = np.array([train_to_criterion(sweep.trainer, *run).interpolated for run in runs]) - zero
    assert costs.std() > 0  # of one run against the mean of several
    assert abs(costs.mean()) < 4 * costs.std() / len(costs) ** 0.5


@pytest.mark.parametrize("lag", [0, 1])
def test_what_is_done_again_is_done_with_the_same_random_values(lag: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full recovery leads to the state that the failure hit, bit for bit. So it costs its rework, and no run."""
    sweep = noisy_sweep(6)
    assert max(f.commit for f in sweep.failures) > 8
    trainer, states = sweep.trainer, sweep.trajectory.states
    for failure in sweep.failures:
        saved = max(failure.commit - lag, 0) // 8 * 8
        trainer.start(states[saved], saved)
        while trainer.commit < failure.commit:
            trainer.next_commit()
        assert digest(trainer.state()) == digest(states[failure.commit])
    sweep._controls(sweep.failures)
    monkeypatch.setattr(module, "train_to_criterion", None)
    for row in sweep.run_cell(Cell(full(), lag)):
        rework = full_recovery_cost(int(row.failed_at_iter), 8, lag)
        assert row.cost == row.cost_whole == row.rework_iters == rework
    assert all(row.cost == 0 for row in sweep.run_cell(Cell(FLOOR, 0)))


def test_other_losses_along_the_same_trajectory() -> None:
    sweep = noisy_sweep(3)
    all_lost = sweep.losing(Fraction(1))
    assert all_lost.trajectory is sweep.trajectory
    halves, wholes = (s.run_cell(Cell(full(), 0)) for s in (sweep, all_lost))
    assert [r.cost for r in halves] == [r.cost for r in wholes]  # what is lost is no matter to a full recovery
    assert all(a.n_lost_blocks < b.n_lost_blocks for a, b in zip(halves, wholes, strict=True))

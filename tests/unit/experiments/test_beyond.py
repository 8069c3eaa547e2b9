"""Beyond the paper: strategies write the same bytes, and the tables say what was planted."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.unit.experiments.samples import trainer_of

from scarml.checkpoint.encoding import encodings_for, narrow, stored_block_bytes
from scarml.checkpoint.selection import SaveSelector
from scarml.experiments import beyond, beyond_table
from scarml.experiments.failure import FailurePlan
from scarml.experiments.panels import PaperPanel
from scarml.experiments.problem import Panel, Trainer
from scarml.experiments.results import TrialRow
from scarml.experiments.strategy import Strategy, full
from scarml.experiments.summary import LEAST_TRIALS
from scarml.experiments.sweep import Cell, Sweep

TINY = ("mlr", "mf", "lda", "adam")


def compared(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Trainer, dict[str, Strategy]]:
    trainer = trainer_of(name, 3)
    monkeypatch.setattr(beyond, "trainer_for", lambda _: trainer)
    return trainer, {s.name: s for s in beyond.strategies(PaperPanel(name, Panel(name)))}


@pytest.mark.parametrize("name", TINY)
def test_every_strategy_writes_an_eighth_of_the_states_bytes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, strategies = compared(name, monkeypatch)
    plain = {t.name: t.block_bytes for t in trainer.tables}
    n_saves, whole = 16, sum(int(size.sum()) for size in plain.values())
    assert len(strategies) >= 3
    for strategy in strategies.values():
        checkpoint = strategy.checkpoint
        if checkpoint.budget_in == "blocks":
            assert (checkpoint.fraction, checkpoint.encode) == (Fraction(1, 8), "plain")
            continue
        encodings = checkpoint.encodings(trainer.tables)
        stored = {t.name: stored_block_bytes(t, encodings.get(t.name, {})) for t in trainer.tables}
        selector, written = SaveSelector(checkpoint, trainer.tables, 0), 0
        for _ in range(n_saves):
            selector.earn()
            moved = {t.name: np.ones(t.n_blocks) for t in trainer.tables}
            written += sum(int(stored[t][ids].sum()) for t, ids in selector.select(moved).items())
        allowed, everything = n_saves * whole / 8, n_saves * sum(int(size.sum()) for size in stored.values())
        largest = max(int(size.max()) for size in stored.values())
        assert min(allowed, everything) - largest <= written <= allowed


def test_additions_are_run_where_they_make_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {name: set(compared(name, monkeypatch)[1]) for name in TINY}
    everywhere = {"general", "priority-1-8-partial"}
    mended = {"priority-1-8-repair", "general-repair"}
    assert names == {
        "mlr": everywhere | {"bfloat16"},
        "mf": everywhere | mended | {"bfloat16", "narrow", "per-byte", "phase-aware"},
        "lda": everywhere | mended | {"narrow", "per-byte", "priority-1-8-of-bytes-partial"},
        "adam": everywhere | {"bfloat16"},
    }


@pytest.mark.parametrize("name", TINY)
def test_the_narrowest_forms_are_those_of_their_fields(name: str) -> None:
    trainer = trainer_of(name, 3)
    chosen = narrow(trainer.tables)
    for t in trainer.tables:
        encodings_for(t, chosen[t.name])  # takes them
        for f in t.fields:
            if f.name != "value" and f.dtype.startswith("float"):
                assert chosen[t.name][f.name] == "mxfp8"
    (value,) = {fields["value"] for fields in chosen.values()}
    assert value == ("packed-2" if name == "lda" else "mxint8")


def planted(panel: str, **parts: float) -> list[TrialRow]:
    sweep = Sweep(Panel("tiny-mlr"), FailurePlan(n_trials=LEAST_TRIALS), trainer=trainer_of("mlr", 20))
    rows = []
    for lag in (0, 1):
        whole = [replace(r, panel=panel, lag_commits=lag) for r in sweep.run_cell(Cell(full(), 0))]
        rows += whole + [
            replace(r, strategy=name.replace("_", "-"), cost=(part + 0.1 * lag) * r.cost)
            for name, part in parts.items()
            for r in whole
        ]
    return rows


def test_tables_have_a_line_a_panel_and_a_column_an_addition() -> None:
    rows = planted("mlr-mnist", general=0.02, bfloat16=0.2) + planted("mine", general=0.05)
    lag_0, lag_1 = beyond_table.tables(rows).split("\n\n")
    assert lag_0.splitlines()[2:] == [
        f"| MLR on MNIST | {LEAST_TRIALS} | – | – | −80 % [−80, −80] | – | – | – | – | −98 % [−98, −98] | – |",
        f"| mine | {LEAST_TRIALS} | – | – | – | – | – | – | – | −95 % [−95, −95] | – |",
    ]
    assert "−88 % [−88, −88]" in lag_1
    assert lag_1.splitlines()[0].endswith("| floor |")

"""Panels that differ in how they are saved only, lose the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from scarml.core.rng import stream
from scarml.data.classification import Classification
from scarml.errors import UsageError
from scarml.experiments import beyond, partial_recovery, priority_checkpoints
from scarml.experiments.failure import FailurePlan
from scarml.experiments.panels import PANELS, SLICED, panel_named
from scarml.experiments.problem import Panel, Problem, Trainer
from scarml.experiments.results import TrialRow
from scarml.experiments.strategy import full, partial
from scarml.experiments.sweep import Cell, Sweep


def test_saving_in_slices_is_of_the_figure_beyond_the_paper_only() -> None:
    name = SLICED.panel.name
    assert name == "cnn-slices-by-layer-mnist"
    assert beyond.FIGURE.panels == (*PANELS, name)
    for figure in (partial_recovery.FIGURE, priority_checkpoints.FIGURE):
        assert figure.panels == tuple(PANELS)
    with pytest.raises(UsageError, match=f"no panel '{name}'"):
        panel_named(name)


def test_slices_are_saved_of_what_is_trained_by_layer() -> None:
    layers, slices = PANELS["cnn-by-layer-mnist"].panel, SLICED.panel
    settings = {**dict(layers.hyper_parameters), "blocks": "slices-by-layer"}
    assert dict(slices.hyper_parameters) == settings
    assert replace(slices, hyper_parameters=layers.hyper_parameters, label=layers.label) == layers


PLAN = FailurePlan(seed=11, n_trials=3)


def tiny(blocks: str) -> Sweep:
    """The CNN on a few images of noise."""
    from scarml.models.cnn import CNN

    rng = stream(0, "images")
    images = Classification(rng.integers(0, 256, (30, 256)).astype(np.uint8), rng.integers(0, 3, 30), n_classes=3)
    model = CNN(batch_size=10, batches_per_iteration=1, side=16, n_classes=3, blocks=blocks)  # type: ignore[arg-type]
    trainer = Trainer(Problem(model, images, criterion=0.0, n_shards=1))
    losses = []
    for _ in range(10):
        trainer.next_iteration()
        losses.append(trainer.loss_sum())
    return Sweep(Panel(blocks), PLAN, trainer=trainer.with_criterion((losses[-2] + losses[-1]) / 2))


def lost_numbers(sweep: Sweep) -> list[list[int]]:
    """Of each failure, the positions of the lost numbers among all."""
    (table,) = sweep.trainer.tables
    ends = np.cumsum(table.lengths)
    starts = ends - table.lengths
    return [[i for block in f.lost[table.name] for i in range(starts[block], ends[block])] for f in sweep.failures]


def test_layers_are_lost_as_a_whole_however_they_are_saved() -> None:
    pytest.importorskip("torch")
    layers, slices = tiny("by-layer"), tiny("slices-by-layer")
    assert len(layers.trainer.tables[0].all_ids) < len(slices.trainer.tables[0].all_ids)
    for lost_fraction in (Fraction(1, 4), Fraction(1, 2)):
        assert lost_numbers(layers.losing(lost_fraction)) == lost_numbers(slices.losing(lost_fraction))

    def costs(cell: Cell) -> list[list[float]]:
        def of(rows: Sequence[TrialRow]) -> list[float]:
            return [r.cost for r in rows]

        return [of(sweep.run_cell(cell)) for sweep in (layers, slices)]

    for cell in (Cell(full(), 0), Cell(full(), 1), Cell(partial("full", Fraction(1)), 1)):
        of_layers, of_slices = costs(cell)
        assert of_layers == of_slices
        assert any(of_layers)

"""Repairs as `Sequential` does them: which phases, for which blocks, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import scarml as scar
from scarml.core.block import Ids
from scarml.core.model import ALL, Computed, Context, Shard, Update
from scarml.core.repair import repair_phases
from scarml.core.sequential import Sequential, State
from scarml.errors import ModelError
from scarml.testing import tiny_problem


def trained(name: str, iterations: int = 6) -> Sequential:
    run = Sequential(*tiny_problem(name), seed=3, n_shards=4)
    for _ in range(iterations):
        run.step()
    return run


def copies(run: Sequential) -> State:
    return {name: blocks.copy() for name, blocks in run.state.items()}


def lose(run: Sequential, every: int = 2) -> dict[str, Ids]:
    """Set some blocks of every saved table back to x(0)."""
    start = Sequential(*tiny_problem(run.model.name), seed=3, n_shards=4)  # type: ignore[attr-defined]
    lost = {t.name: t.all_ids[::every] for t in run.tables.values() if not t.derived}
    for name, ids in lost.items():
        run.state[name].put(start.state[name].take(ids))
    run.rebuild()
    return lost


def test_the_last_phases_are_done_again() -> None:
    def of(n_repair_phases: int, n_phases: int, iteration: int, phase: int) -> list[tuple[int, int, int]]:
        upcoming = Context(5, iteration, phase)
        return [(c.iteration, c.phase, c.repair) for c in repair_phases(n_repair_phases, n_phases, upcoming)]

    assert of(2, 2, 8, 0) == [(7, 0, 1), (7, 1, 2)]
    assert of(1, 2, 8, 0) == [(7, 1, 1)]
    assert of(3, 1, 8, 0) == [(5, 0, 1), (6, 0, 2), (7, 0, 3)]
    assert of(3, 1, 2, 0) == [(1, 0, 1), (1, 0, 2), (1, 0, 3)], "there are none before x(0)"
    assert of(0, 2, 8, 0) == []


def test_random_numbers_are_not_those_of_the_phase_itself() -> None:
    ctx = Context(0, 3)
    draws = {c.rng(1).random() for c in (ctx, replace(ctx, repair=1), replace(ctx, repair=2))}
    assert len(draws) == 3
    assert replace(ctx, repair=1).rng(1).random() in draws


@pytest.mark.parametrize("name", ["mf", "lda"])
def test_lost_blocks_are_mended_and_no_others(name: str) -> None:
    run = trained(name)
    before = copies(run)
    lost = lose(run)
    restored = copies(run)
    work = run.repair(lost)
    for table, ids in lost.items():
        changed = np.flatnonzero(run.state[table].differs_from(restored[table]))
        assert len(changed)
        assert np.isin(changed, ids).all()
        moved = [run.model.distance(state[table], before[table]).sum() for state in (restored, run.state)]
        assert moved[1] < moved[0]
    assert 0.3 < work < 0.7


@pytest.mark.parametrize("name", ["mf", "lda"])
def test_mending_nothing_is_no_work_and_all_of_it_that_of_its_phases(name: str) -> None:
    run = trained(name)
    before = copies(run)
    nothing = {t.name: t.all_ids[:0] for t in run.tables.values() if not t.derived}
    assert run.repair(nothing) == 0
    assert all(not run.state[t].differs_from(blocks).any() for t, blocks in before.items())
    everything = {t.name: t.all_ids for t in run.tables.values() if not t.derived}
    assert run.repair(everything) == pytest.approx(run.model.n_repair_phases / run.model.n_phases)


@pytest.mark.parametrize("name", ["mlr", "adam", "qp"])
def test_a_model_may_decline(name: str) -> None:
    run = trained(name)
    before = copies(run)
    assert run.repair({t.name: t.all_ids for t in run.tables.values()}) == 0
    assert all(not run.state[t].differs_from(blocks).any() for t, blocks in before.items())


@dataclass(frozen=True)
class Faulty(scar.MF):
    """Whose `lost_part` and `compute` in a repair can be told what to do wrong."""

    part: Any = None
    updates: Any = None

    def lost_part(self, ctx: Context, shard: Shard, lost: Mapping[str, Ids]) -> Shard:
        return super().lost_part(ctx, shard, lost) if self.part is None else self.part(shard)

    def compute(self, ctx: Context, *args: Any) -> Computed:
        return Computed(self.updates) if ctx.repair and self.updates else super().compute(ctx, *args)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"part": lambda _: None}, "lost_part of shard 0: must return a Shard, got a NoneType"),
        ({"part": lambda s: replace(s, index=7)}, "lost_part of shard 0: has index 7"),
        ({"part": lambda s: replace(s, n_examples=-1)}, "lost_part of shard 0: has -1 examples"),
        (
            {"part": lambda s: replace(s, blocks={"L": np.array([0])})},
            "lost_part of shard 0: has blocks of 'L' that are not lost, or not its own",
        ),
        ({"part": lambda s: s}, "compute of the lost part of shard 0: updates blocks of 'L' that are not lost"),
        (
            {"updates": [Update("L", ALL, np.zeros((17, 3), np.float32))]},
            "compute of the lost part of shard 0: updates blocks of 'L' that are not lost",
        ),
    ],
)
def test_what_a_model_may_not_return_is_refused(fault: dict[str, Any], message: str) -> None:
    _, data = tiny_problem("mf")
    run = Sequential(Faulty(factors=3, **fault), data, n_shards=4)
    with pytest.raises(ModelError) as error:
        run.repair({"L": np.array([2, 9]), "R": np.array([4])})
    assert str(error.value) == message


def test_a_model_without_lost_part_may_not_say_that_it_repairs() -> None:
    class Says(scar.QP):
        n_repair_phases = 1

    with pytest.raises(ModelError, match="Says has n_repair_phases, but no lost_part"):
        Sequential(Says(), None, n_shards=1).repair({"x": np.array([0])})

"""Distances that are kept, and the thread that measures them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import scarml as scar
from scarml.checkpoint.block_cache import BlockCache
from scarml.checkpoint.version_index import Version, Versions
from scarml.core.block import Blocks
from scarml.running_checkpoint import scores as scores_module
from scarml.running_checkpoint.distance import distance
from scarml.running_checkpoint.scores import BackgroundScoring, TableScores
from scarml.running_checkpoint.tables import blocks_over


@pytest.fixture(params=["rows", "ragged"])
def blocks(request: pytest.FixtureRequest) -> Blocks:
    if request.param == "rows":
        return blocks_over("W", np.zeros((100, 3)))
    return blocks_over("W", scar.ragged(np.zeros(200), np.arange(100) % 5))


def moved(blocks: Blocks, *ids: int) -> np.ndarray:
    """Move some blocks; the ids of those that have elements."""
    for i in ids:
        part = blocks.take(np.array([i]))
        part.value[...] += i
        blocks.put(part)
    return np.array([i for i in ids if blocks.take(np.array([i])).value.size])


def scores_of(blocks: Blocks) -> tuple[TableScores, BlockCache]:
    cache = BlockCache(blocks, Versions.initial(len(blocks)), distance)
    return TableScores(blocks, cache), cache


@pytest.mark.parametrize("piece_bytes", [1, 100, 1 << 20])
def test_only_what_was_touched_is_measured(blocks: Blocks, piece_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores_module, "_PIECE_BYTES", piece_bytes)
    scores, cache = scores_of(blocks)
    moved(blocks, 3, 14, 78, 79)
    scores.touch(np.array([79, 3, 50, 3]))
    found = np.flatnonzero(scores.measured())
    assert found.tolist() == [3, 79]
    assert scores.measured()[found] == pytest.approx(cache.score(blocks)[found])
    scores.touch(None)
    assert scores.measured().tolist() == cache.score(blocks).tolist()


def test_what_was_staged_has_not_moved(blocks: Blocks) -> None:
    scores, cache = scores_of(blocks)
    ids = moved(blocks, 3, 14, 78)
    blocks.value[...] = np.where(np.arange(blocks.value.size).reshape(blocks.value.shape) == 0, np.nan, blocks.value)
    scores.touch(None)
    assert set(ids) <= set(np.flatnonzero(scores.measured()))
    version = Version(1, 1, 1)
    nan = np.flatnonzero(np.isnan(scores.measured()))
    assert len(nan) == 1
    cache.stage(blocks, np.union1d(ids, nan), version, save_id=1)
    scores.staged(np.union1d(ids, nan), version)
    assert np.flatnonzero(scores.kept()).tolist() == nan.tolist(), "a block that is not finite was left out"


def test_the_thread_measures_and_can_be_paused(blocks: Blocks) -> None:
    scores, cache = scores_of(blocks)
    scoring = BackgroundScoring({"W": scores})
    try:
        with scoring.paused():
            ids = moved(blocks, 3, 14, 78)
            scores.touch(None)
            scoring.wake()
            assert not scores.kept().any()
        scoring.wait_until_done()
        assert np.flatnonzero(scores.kept()).tolist() == ids.tolist()
        assert scores.kept().tolist() == cache.score(blocks).tolist()
    finally:
        scoring.close()
    assert not any(t.name == "scar-scoring" for t in threading.enumerate())


def test_pausing_waits_for_the_piece_in_work() -> None:
    entered, leave = threading.Event(), threading.Event()

    class Slow(TableScores):
        def measure(self, piece: Any) -> None:
            entered.set()
            assert leave.wait(20)
            super().measure(piece)

    table = blocks_over("W", np.zeros((10, 3)))
    scores = Slow(table, BlockCache(table, Versions.initial(10), distance))
    scoring = BackgroundScoring({"W": scores})
    table.value[4] = 1
    scores.touch(None)
    scoring.wake()
    assert entered.wait(20)
    threading.Timer(0.01, leave.set).start()
    with scoring.paused():
        assert leave.is_set()
        assert scores.kept()[4] > 0
    scoring.close()

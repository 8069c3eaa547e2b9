"""Arrays out of a folder, without the program that made it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import scarml as scar
from scarml.data.classification import Classification
from scarml.errors import UsageError
from scarml.storage.memory import MemoryStore
from scarml.storage.run_folder import RunFolder
from scarml.testing import tiny_problem


def test_tables_fields_and_lengths(tmp_path: Path) -> None:
    W, m = np.arange(12.0).reshape(4, 3), np.arange(4, dtype=np.int8)
    topics, lengths = np.arange(5, dtype=np.uint16), [0, 3, 2]
    tables = {"W": scar.rows(W, m=m), "docs": scar.ragged(topics, lengths)}
    with scar.RunningCheckpoint(tmp_path / "run", tables) as ckpt:
        ckpt.restore()
        live = scar.load(tmp_path / "run")
    loaded = scar.load(str(tmp_path / "run"))
    for found in (live, loaded):
        assert {name: sorted(fields) for name, fields in found.items()} == {
            "W": ["m", "value"],
            "docs": ["lengths", "value"],
        }
        assert (found["W"]["value"] == W).all()
        assert (found["W"]["m"] == m).all()
        assert (found["docs"]["value"] == topics).all()
        assert found["docs"]["lengths"].tolist() == lengths


def test_a_run_of_the_runtime_is_loaded_too() -> None:
    model, data = tiny_problem("mlr")
    store = MemoryStore()
    scar.Job(model, data, stop=scar.Stop(max_iters=3), store=store, checkpoint=scar.Checkpoint("full", 1, 1)).run()
    (table,) = model.tables(data)
    assert scar.load(store)[table.name]["value"].shape[0] == table.n_blocks


def test_blocks_that_never_moved_come_from_the_model() -> None:
    features = np.eye(6, dtype=np.float32)[[0, 2, 5]]  # nothing is learned of features 1, 3 and 4
    data = Classification(features, np.array([0, 1, 1]), n_classes=2)
    model = scar.MLR(learning_rate=0.5, batch_size=3)
    store = MemoryStore()
    scar.Job(model, data, stop=scar.Stop(max_iters=4), store=store).run()
    with pytest.raises(UsageError, match=r"3 of 6 blocks .* not been saved: .* scar\.load\(run, model="):
        scar.load(store)
    weights = scar.load(store, model=model)["W"]["value"]
    assert np.flatnonzero(weights.any(axis=1)).tolist() == [0, 2, 5]


def test_another_model_than_the_runs_is_refused() -> None:
    class Mine(scar.MLR):
        pass

    store = MemoryStore()
    data = Classification(np.eye(3, dtype=np.float32)[[0, 2]], np.array([0, 1]), n_classes=2)
    scar.Job(scar.MLR(0.5, batch_size=2), data, stop=scar.Stop(max_iters=1), store=store).run()
    with pytest.raises(UsageError, match=r"made by scarml\.models\.mlr:MLR; the model is a MF"):
        scar.load(store, model=scar.MF(factors=2))  # whose rows have the same form, but start at random
    assert not scar.load(store, model=Mine())["W"]["value"][1].any()


def test_random_starts_are_those_of_the_runs_seed() -> None:
    store = MemoryStore()
    model, data = tiny_problem("mf")
    scar.Job(model, data, stop=scar.Stop(max_iters=1), store=store, seed=3).run()
    loaded = scar.load(store, model=model)  # the last user and the last item have no ratings, and keep their start
    (_, right) = model.tables(data)
    assert np.array_equal(loaded["R"]["value"][-1:], model.init(right, np.array([12]), seed=3)["value"])


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no run in"):
        scar.load(tmp_path / "nowhere")
    store = MemoryStore()
    RunFolder.create(store, {})
    with pytest.raises(UsageError, match="has not saved anything yet"):
        scar.load(store)
    model, data = tiny_problem("mlr")
    store = MemoryStore()
    scar.Job(model, data, stop=scar.Stop(max_iters=1), store=store, checkpoint=scar.Checkpoint("round", "1/8", 8)).run()
    if len(store.list("segments/")) == 1:
        with pytest.raises(UsageError, match="have not been saved"):
            scar.load(store)

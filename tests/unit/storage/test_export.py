"""Taking the newest state out of a run."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from tests.unit.storage.samples import RAGGED, WIDE, filled, same
from tests.unit.storage.samples import segment as sample
from tests.unit.storage.test_rollback import a_run
from tests.unit.storage.test_run_folder import new_run, write
from tests.unit.storage.test_segment_reader import T, blocks, flip

from scarml.core.block import Field, Table
from scarml.errors import StoreError, UsageError
from scarml.storage.export import Origin, read_newest_state, write_safetensors
from scarml.storage.file_port import OsFiles, store_error
from scarml.storage.memory import MemoryStore
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment import Segment
from scarml.storage.simulated_disk import SimulatedCrash, SimulatedDisk


def minus_one() -> Origin:
    """x(0) is −1 everywhere."""

    def make(table, ids):
        made = table.empty(ids)
        made.value[...] = 9 if table is RAGGED else -1
        return made

    return Origin({"W": T, "docs": RAGGED}, make)


# ------------------------------------------------------------------------------------------------------------ the state
def test_the_newest_copy_of_every_block_with_its_span_of_iterations():
    run = a_run()
    state = read_newest_state(run)
    assert state.tables["W"].value[:, 0].tolist() == [19, 18, 18, 18, 18, 18, 16, 16, 16, 16]
    assert (state.oldest, state.newest, state.n_initial, state.damaged) == (160, 190, {"W": 0}, ())
    assert list(state.tensors()) == ["W.value"]


def test_encoded_and_ragged_tables_are_decoded():
    run = new_run()
    run.claim_term("new")
    w, docs = filled(WIDE, range(40)), filled(RAGGED, range(12))
    run.write_segment(
        Segment(1, 1, 10, "server-0", 1, False, {"W": w, "docs": docs}, encodings={"docs": {"weight": "float32"}})
    )
    state = read_newest_state(run)
    assert same(state.tables["W"], w)
    assert same(state.tables["docs"], docs)
    tensors = state.tensors()
    assert tensors["docs.weight"].dtype == np.float64
    assert tensors["docs/lengths"].tolist() == list(RAGGED.block_lengths)
    assert list(read_newest_state(run, ["docs"]).tables) == ["docs"]


def test_blocks_that_were_never_saved_stand_at_x0_if_the_model_is_there():
    run = new_run()
    run.claim_term("new")
    write(run, 1, 1, ids=[0, 1, 2, 5])
    with pytest.raises(UsageError, match=r"^6 blocks of table 'W' were never saved: 3, 4, 6, 7, 8 …; .* the model can"):
        read_newest_state(run)
    state = read_newest_state(run, make_origin=minus_one)
    assert state.tables["W"].value[:, 0].tolist() == [1, 1, 1, -1, -1, 1, -1, -1, -1, -1]
    assert (state.oldest, state.newest, state.n_initial) == (0, 10, {"W": 6})


def test_ragged_tables_get_the_lengths_of_blocks_never_saved_from_the_model():
    run = new_run()
    run.claim_term("new")
    docs = filled(RAGGED, [0, 3, 11])
    run.write_segment(sample(docs))
    state = read_newest_state(run, make_origin=minus_one)
    assert same(state.tables["docs"].take(docs.ids), docs)
    assert state.n_initial == {"docs": 9}
    with pytest.raises(UsageError, match="9 blocks of table 'docs' were never saved: 1, 2, 4, 5, 6 …"):
        read_newest_state(run)


def test_a_table_that_was_never_saved_at_all_is_not_forgotten():
    tables = [{"name": n, "n_blocks": 10, "derived": n == "D"} for n in ("W", "V", "D")]
    run = RunFolder.create(MemoryStore(), {"tables": tables})
    run.claim_term("new")
    write(run, 1, 1)
    with pytest.raises(UsageError, match="10 blocks of table 'V' were never saved: 0, 1, 2, 3, 4 …"):
        read_newest_state(run)
    with pytest.raises(UsageError, match="the model has no such table"):
        read_newest_state(run, make_origin=minus_one)
    assert read_newest_state(run, ["W"]).newest == 10


def test_why_the_model_cannot_be_made_is_said():
    def fail() -> Origin:
        raise UsageError("MLR needs a data set")

    run = new_run()
    run.claim_term("new")
    write(run, 1, 1, ids=[0])
    with pytest.raises(UsageError, match=r"9 blocks of table 'W' were never saved: .*: MLR needs a data set"):
        read_newest_state(run, make_origin=fail)


def test_a_damaged_block_gives_way_to_an_older_copy_and_is_reported():
    run = a_run()
    flip(run.store, sample(blocks([0], 19), commit=19), 0)
    state = read_newest_state(run)
    assert state.tables["W"].value[0, 0] == 18
    assert [d.block for d in state.damaged] == [0]


def test_a_damaged_block_without_an_older_copy_is_named():
    run = new_run()
    flip(run.store, write(run, run.claim_term("new"), 1), 4)
    with pytest.raises(UsageError, match="1 blocks of table 'W' have no copy that can be read: 4; "):
        read_newest_state(run)
    assert read_newest_state(run, make_origin=minus_one).tables["W"].value[4, 0] == -1


def test_a_table_that_claims_to_be_huge_is_refused_before_memory_is_asked_for():
    run = new_run()
    run.claim_term("new")
    huge = Table("W", 1 << 60, (Field("value", "int64"),))
    run.write_segment(Segment(1, 1, 1, "server-0", 1, False, {"W": huge.empty(np.array([1, 7]))}))
    with pytest.raises(
        UsageError, match=r"1,152,921,504,606,846,974 blocks of table 'W' were never saved: 0, 2, 3, 4, 5"
    ):
        read_newest_state(run)


def test_what_cannot_be_exported_is_said():
    run = new_run()
    with pytest.raises(UsageError, match="nothing was saved in this run yet"):
        read_newest_state(run)
    run.claim_term("new")
    with pytest.raises(UsageError, match="nothing was saved in this run yet"):
        read_newest_state(run)
    write(run, 1, 1)
    with pytest.raises(UsageError, match="there is no table 'V' in this run; there are W"):
        read_newest_state(run, ["V"])


# ------------------------------------------------------------------------------------------------------------ the file
ARRAYS = {"a/b": np.arange(6, dtype=np.float32).reshape(2, 3), "mask": np.array([True, False]), "n": np.arange(3)}


def test_plain_safetensors_opens_the_file(tmp_path: Path):
    path = tmp_path / "out.safetensors"
    n = write_safetensors(path, {**ARRAYS, "empty": np.zeros((0, 4), np.int8)}, {"key": "value"})
    assert path.stat().st_size == n
    loaded = load_file(path)
    assert {k: v.tolist() for k, v in loaded.items() if k != "empty"} == {k: v.tolist() for k, v in ARRAYS.items()}
    assert loaded["empty"].shape == (0, 4)
    with safe_open(path, "numpy") as f:
        assert f.metadata() == {"key": "value"}
    assert [p.name for p in tmp_path.iterdir()] == ["out.safetensors"]


def test_a_file_is_replaced_only_on_demand(tmp_path: Path):
    path = tmp_path / "out.safetensors"
    path.write_text("mine")
    with pytest.raises(UsageError, match=r"out\.safetensors is there already; .* --force"):
        write_safetensors(path, ARRAYS, {})
    assert path.read_text() == "mine"
    write_safetensors(path, ARRAYS, {}, replace=True)
    assert len(load_file(path)) == 3
    assert len(list(tmp_path.iterdir())) == 1


def test_a_disk_that_is_full_leaves_nothing(tmp_path: Path):
    class Full(OsFiles):
        def sync_folder(self, path: str) -> None:
            raise store_error("sync the folder", path, errno.ENOSPC)

        def link(self, old: str, new: str) -> None:
            raise store_error("create", new, errno.ENOSPC)

    with pytest.raises(StoreError, match="the disk is full"):
        write_safetensors(tmp_path / "out", ARRAYS, {}, files=Full())
    assert list(tmp_path.iterdir()) == []


def test_a_power_loss_at_any_operation_leaves_the_old_file_or_the_new_one(base_seed: int):
    counted = SimulatedDisk(np.random.default_rng(0))
    counted.make_folder("d")
    write_safetensors("d/out", {"n": np.zeros(1)}, {}, files=counted)
    before, old = len(counted.log), counted.size("d/out")
    write_safetensors("d/out", ARRAYS, {}, replace=True, files=counted)
    sizes = set()
    for n in range(1, len(counted.log) - before + 2):
        disk = SimulatedDisk(np.random.default_rng([base_seed, n]))
        disk.make_folder("d")
        disk.sync_folder(".")
        write_safetensors("d/out", {"n": np.zeros(1)}, {}, files=disk)
        disk.crash_at_op(n)
        with suppress(SimulatedCrash):
            write_safetensors("d/out", ARRAYS, {}, replace=True, files=disk)
        disk.crash()
        sizes.add(disk.size("d/out"))
    assert sizes == {old, counted.size("d/out")}

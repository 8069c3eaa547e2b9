"""The user's arrays as tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import scarml as scar
from scarml.core.norm import l2_distance_reference
from scarml.errors import UsageError
from scarml.running_checkpoint.distance import distance
from scarml.running_checkpoint.tables import blocks_over, check_ids
from scarml.storage.memory import MemoryStore

DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]


def test_a_table_is_the_memory_of_the_arrays() -> None:
    W, m, step = np.zeros((4, 2, 3)), np.zeros((4, 2), np.float32), np.zeros(4, np.int64)
    blocks = blocks_over("W", scar.rows(W, m=m, step=step))
    assert blocks.value is W
    assert [(f.name, f.dtype, f.shape) for f in blocks.table.fields] == [
        ("value", "float64", (2, 3)),
        ("m", "float32", (2,)),
        ("step", "int64", ()),
    ]
    assert blocks_over("W", W).value is W


def test_a_ragged_table_may_have_fields_of_both_kinds() -> None:
    values, ages, names = np.arange(6), np.zeros(6, np.float32), np.zeros((3, 2))
    table = blocks_over("docs", scar.ragged(values, [3, 0, 3], ages=ages, names=names)).table
    assert [(f.name, f.ragged, f.shape) for f in table.fields] == [
        ("value", True, ()),
        ("ages", True, ()),
        ("names", False, (2,)),
    ]
    assert table.block_lengths.tolist() == [3, 0, 3]


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (lambda: [1.0], "table 'W' is list; expected scar.rows"),
        (lambda: scar.rows([1.0]), "field 'value' of table 'W' is list; expected a NumPy array"),  # type: ignore[arg-type]
        (lambda: scar.rows(np.float64(3)), "is float64; expected a NumPy array"),  # type: ignore[arg-type]
        (lambda: np.array(3.0), "is a single number"),
        (lambda: np.zeros((4, 4)).T[:, ::2], "is not C-contiguous"),
        (lambda: np.zeros((0, 4)), "has 0 blocks; expected at least 1"),
        (lambda: np.zeros(3, complex), "has dtype '<c16'; expected floats, integers or booleans"),
        (lambda: np.zeros(3, ">f4"), "has dtype '>f4'"),
        (lambda: np.zeros(3, "O"), "has dtype '|O'"),
        (lambda: np.broadcast_to(1.0, (3,)), "is not C-contiguous"),
        (lambda: np.frombuffer(b"12345678"), "is read-only"),
        (lambda: scar.rows(np.zeros(3), m=np.zeros(4)), "field 'm' of table 'W' has 4 rows; expected 3"),
        (lambda: scar.rows(np.zeros(3), value=np.zeros(3)), "the first array is the field 'value'"),
        (lambda: scar.ragged(np.zeros(5), [3, 1]), r"has values of shape \(5,\); expected \(4,\)"),
        (lambda: scar.ragged(np.zeros((4, 1)), [3, 1]), r"has values of shape \(4, 1\); expected \(4,\)"),
        (lambda: scar.ragged(np.zeros(4), [3, 1], m=np.zeros(3)), r"field 'm' .* has shape \(3,\); expected \(4,\)"),
        (lambda: scar.ragged(np.zeros(2), [3, -1]), "lengths must be 2 numbers that are not negative"),
    ],
)
def test_arrays_that_cannot_be_saved_are_refused(table: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence.replace("|", r"\|")):
        scar.RunningCheckpoint(MemoryStore(), {"W": table()})


def test_a_table_needs_a_name_that_is_one() -> None:
    with pytest.raises(UsageError, match="table name 'my table' is not an identifier"):
        scar.RunningCheckpoint(MemoryStore(), {"my table": np.zeros(3)})


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_numeric_dtype_is_measured(dtype: str) -> None:
    a = blocks_over("W", (np.arange(30) % 7).reshape(10, 3).astype(dtype))
    b = blocks_over("W", (np.arange(30) % 5).reshape(10, 3).astype(dtype))
    widened = [blocks_over("W", x.value.astype(np.float64)) for x in (a, b)]
    assert distance(a, b) == pytest.approx(l2_distance_reference(*widened))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_numeric_dtype_goes_there_and_back(dtype: str) -> None:
    rows, values = np.zeros((5, 2), dtype), np.zeros(6, dtype)
    store = MemoryStore()
    with scar.RunningCheckpoint(store, {"W": rows, "docs": scar.ragged(values, [0, 4, 2])}, resume="auto") as ckpt:
        ckpt.restore()
        rows[...] = (np.arange(10) % 3).reshape(5, 2)
        values[...] = np.arange(6) % 2
        assert ckpt.save(1).n_blocks > 0
    loaded = scar.load(store)
    assert loaded["W"]["value"].dtype == rows.dtype
    assert (loaded["W"]["value"] == rows).all()
    assert (loaded["docs"]["value"] == values).all()
    assert loaded["docs"]["lengths"].tolist() == [0, 4, 2]


def test_ids_may_be_flags_or_numbers_of_any_kind() -> None:
    table = blocks_over("W", np.zeros(5)).table
    assert check_ids(table, [3, 1], unique=True).tolist() == [1, 3]
    assert check_ids(table, np.array([3, 1, 3], np.uint8), unique=False).tolist() == [3, 1, 3]
    assert check_ids(table, np.array([True, False, False, True, False]), unique=True).tolist() == [0, 3]
    assert check_ids(table, [], unique=True).tolist() == []
    for bad in ([[1, 2]], [True, False], ["a"], 3):
        with pytest.raises(UsageError, match="the ids of table 'W'"):
            check_ids(table, bad, unique=False)

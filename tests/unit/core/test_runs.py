from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.core.block import Blocks, Field, Table
from scarml.core.runs import copy_runs, copy_runs_reference


@pytest.mark.parametrize("dtype", ["bool", "int16", "float32", "float64", "longdouble"])
@given(lengths=st.lists(st.integers(0, 5), max_size=8), seed=st.integers(0, 100))
def test_runs_are_copied_as_by_the_reference(dtype: str, lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = np.array(lengths, np.int64)
    source = rng.integers(0, 2, 10 + sizes.sum()).astype(dtype)
    source.flags.writeable = False
    starts = rng.integers(0, 5, len(sizes))
    target_starts = np.cumsum(sizes) - sizes + 3
    copied, expected = np.zeros(len(source), dtype), np.zeros(len(source), dtype)
    copy_runs(source, starts, sizes, copied, target_starts)
    copy_runs_reference(source, starts, sizes, expected, target_starts)
    np.testing.assert_array_equal(copied, expected)


@given(
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    bad=st.sampled_from([np.nan, np.inf, -np.inf, np.finfo(np.float32).max]),
    data=st.data(),
)
def test_flags_of_ragged_blocks_are_of_the_right_blocks(lengths: list[int], bad: float, data: st.DataObject) -> None:
    sizes = np.array(lengths, np.int64)
    table = Table("t", len(lengths), (Field("value", "float32", ragged=True),), lengths=sizes)
    before = table.empty(table.all_ids)
    at = sorted(data.draw(st.sets(st.integers(0, max(0, int(sizes.sum()) - 1)), max_size=int(sizes.sum()))))
    values = before.value.copy()
    values[at] = bad
    now = Blocks(table, table.all_ids, {"value": values})
    touched = np.isin(np.arange(len(sizes)), np.repeat(np.arange(len(sizes)), sizes)[at])
    np.testing.assert_array_equal(now.differs_from(before), touched)
    np.testing.assert_array_equal(now.is_nonfinite(), touched & (not np.isfinite(bad)))

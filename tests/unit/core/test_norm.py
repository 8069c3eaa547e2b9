from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from scarml.core.block import Blocks, Field, Table
from scarml.core.norm import l2_distance, l2_distance_reference

finite = st.floats(-1e6, 1e6, width=32)


@given(
    data=st.data(),
    width=st.integers(0, 11),
    n=st.integers(1, 5),
    dtype=st.sampled_from(["float32", "float64", "uint8"]),
)
def test_dense_is_that_of_the_reference(data: st.DataObject, width: int, n: int, dtype: str) -> None:
    table = Table("t", n, (Field("value", dtype, (width,)),))
    elements = st.integers(0, 255) if dtype == "uint8" else finite
    a, b = (
        Blocks(table, table.all_ids, {"value": data.draw(arrays(dtype, (n, width), elements=elements))}) for _ in "ab"
    )
    np.testing.assert_allclose(l2_distance(a, b), l2_distance_reference(a, b), rtol=1e-12)


@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=6), data=st.data())
def test_ragged_is_that_of_the_reference(lengths: list[int], data: st.DataObject) -> None:
    table = Table("t", len(lengths), (Field("value", "uint8", ragged=True),), lengths=np.array(lengths))
    a, b = (Blocks(table, table.all_ids, {"value": data.draw(arrays("uint8", sum(lengths)))}) for _ in "ab")
    np.testing.assert_allclose(l2_distance(a, b), l2_distance_reference(a, b), rtol=1e-12)


@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
def test_shapes(shape: tuple[int, ...]) -> None:
    table = Table("t", 4, (Field("value", "float64", shape), Field("m")))
    a, b = table.empty(table.all_ids), table.empty(table.all_ids)
    b.value[2] = 2.0
    b.fields["m"][...] = 7  # not part of the norm
    assert l2_distance(a, b) == pytest.approx([0, 0, 2 * np.prod(shape) ** 0.5, 0])


def test_overflow_of_float32_is_none_in_float64() -> None:
    table = Table("t", 1, (Field("value", "float32", (4,)),))
    a, b = table.empty(table.all_ids), table.empty(table.all_ids)
    a.value[...] = 3e38
    assert np.isfinite(l2_distance(a, b)).all()


def test_values_that_are_not_finite_show() -> None:
    table = Table("t", 3, (Field("value", "float32", (5,)),))
    a, b = table.empty(table.all_ids), table.empty(table.all_ids)
    a.value[0, 4], a.value[1, 0] = np.nan, np.inf
    distance = l2_distance(a, b)
    assert np.isnan(distance[0])
    assert np.isinf(distance[1])
    assert distance[2] == 0


def test_no_blocks_have_no_distances() -> None:
    table = Table("t", 3, (Field("value", "float32", (5,)),))
    none = table.empty(np.zeros(0, np.int64))
    assert l2_distance(none, none).shape == (0,)

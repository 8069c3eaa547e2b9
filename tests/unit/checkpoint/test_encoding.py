"""Encodings: sizes, rounding errors, that rounding twice is rounding once, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from scarml.checkpoint.encoding import (
    Encoding,
    encoding_named,
    encodings_for,
    packed_for,
    stored_block_bytes,
)
from scarml.core.block import Field, Table
from scarml.errors import ModelError, UsageError

LOSSY = ["float32", "bfloat16", "int8", "mxint8", "mxfp8"]


def counts(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def bits(a: np.ndarray) -> list[Any]:
    return a.view(f"u{a.dtype.itemsize}").tolist()


def there_and_back(encoding: Encoding, values: np.ndarray, n: np.ndarray) -> np.ndarray:
    stored = encoding.encode(values, n)
    assert stored.values.dtype.name == encoding.stored_dtype(values.dtype.name)
    assert (None if stored.scales is None else stored.scales.dtype.name) == encoding.scale_dtype
    n_bytes = stored.values.nbytes + (0 if stored.scales is None else stored.scales.nbytes)
    assert n_bytes == encoding.size_bytes(n, values.dtype.name).sum()
    back = encoding.decode(stored, n, values.dtype.name)
    assert back.dtype == values.dtype
    return back


def float_blocks(dtype: Any) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(dtype, st.integers(0, 40), elements=st.floats(width=np.dtype(dtype).itemsize * 8))


@st.composite
def cut_up(draw: Any, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    values = draw(float_blocks(dtype))
    cuts = sorted(draw(st.lists(st.integers(0, len(values)), max_size=5)))
    return values, np.diff([0, *cuts, len(values)]).astype(np.int64)


def encoded_blocks(name: str, data: st.DataObject) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """Some blocks, drawn: each with what is restored, and its scale as it is stored."""
    values, n = data.draw(cut_up(data.draw(st.sampled_from([np.float32, np.float64]))))
    encoding = encoding_named(name)
    encoded = encoding.encode(values, n)
    restored = encoding.decode(encoded, n, values.dtype.name)
    assert encoded.scales is not None
    cuts = np.cumsum(n)[:-1] if len(n) else []
    return list(zip(np.split(values, cuts), np.split(restored, cuts), encoded.scales.tolist(), strict=True))


@pytest.mark.parametrize("name", LOSSY)
@given(st.data())
def test_rounding_twice_is_rounding_once_to_the_bit(name, data):
    dtype = np.float64 if name == "float32" else data.draw(st.sampled_from([np.float32, np.float64]))
    values, n = data.draw(cut_up(dtype))
    encoding = encoding_named(name)
    once = there_and_back(encoding, values, n)
    again = there_and_back(encoding, once, n)
    same = np.isnan(once) & np.isnan(again) | (once.view(f"u{once.itemsize}") == again.view(f"u{once.itemsize}"))
    assert same.all()


@given(st.data())
def test_int8_is_within_half_a_scale_and_not_finite_where_the_block_is_not(data):
    for block, restored, scale in encoded_blocks("int8", data):
        largest = np.abs(block.astype(float)).max(initial=0)
        if np.isfinite(block).all() and largest < 4e40:
            smallest = 127 * np.finfo(np.float32).smallest_normal
            limit = 0.500001 * scale if scale else 1.001 * smallest
            with np.errstate(over="ignore"):
                assert (np.abs(restored.astype(float) - block.astype(float)) <= limit).all()
            assert scale <= largest / 127 * (1 + 2.0**-23)
        elif len(block):
            assert np.isnan(restored).all()


def test_int8_by_hand():
    encoding = encoding_named("int8")
    values = np.array([127, -3.4, 0.5, 0, 0, 254, 2.9], np.float32)
    encoded = encoding.encode(values, counts(3, 2, 0, 2))
    assert encoded.scales is not None
    assert encoded.scales.tolist() == [1, 0, 0, 2]
    assert encoded.values.tolist() == [127, -3, 0, 0, 0, 127, 1]
    assert encoding.decode(encoded, counts(3, 2, 0, 2), "float32").tolist() == [127, -3, 0, 0, 0, 254, 2]


@given(st.data())
def test_mxint8_is_within_half_a_power_of_two_that_is_no_larger_than_needed(data):
    for block, restored, scale in encoded_blocks("mxint8", data):
        exponent, largest = int(scale) - 127, np.abs(block.astype(float)).max(initial=0)
        if not np.isfinite(block).all() or largest > 127 * 2.0**121:
            assert exponent == 128
            assert np.isnan(restored).all()
        else:
            assert largest <= 127 * 2.0**exponent or not largest
            assert exponent in (-127, -126) or largest > 127 * 2.0 ** (exponent - 1)
            assert (np.abs(restored.astype(float) - block.astype(float)) <= 2.0**exponent / 2).all()


def test_mxint8_by_hand():
    encoding = encoding_named("mxint8")
    values = np.array([127, -3.4, 0.5, 0, 0, 128, 2.9, 1e-3], np.float32)
    encoded = encoding.encode(values, counts(3, 2, 0, 2, 1))
    assert encoded.scales is not None
    assert encoded.scales.tolist() == [127, 0, 0, 128, 111]
    assert encoded.values.tolist() == [127, -3, 0, 0, 0, 64, 1, 66]
    restored = encoding.decode(encoded, counts(3, 2, 0, 2, 1), "float32")
    assert restored.tolist() == [127, -3, 0, 0, 0, 128, 2, 66 / 65536]


@given(st.data())
def test_mxfp8_is_within_an_eighth_and_lets_nothing_become_zero(data):
    for block, restored, scale in encoded_blocks("mxfp8", data):
        largest = np.abs(block.astype(float)).max(initial=0)
        if not np.isfinite(block).all() or largest >= 1.875 * 2.0**127:
            assert np.isnan(restored).all()
            continue
        assert ((restored == 0) == (block == 0)).all()
        assert (np.sign(restored) == np.sign(block)).all()
        smallest = 2.0 ** (int(scale) - 127 - 16)
        error = np.abs(restored.astype(float) - block.astype(float))
        assert (error <= np.maximum(np.abs(block.astype(float)) / 8, smallest)).all()


def test_mxfp8_by_hand():
    encoding = encoding_named("mxfp8")
    values = np.array([8, -1.1, 1e-12, 0, 0, 1.25, 15.5], np.float32)
    encoded = encoding.encode(values, counts(4, 1, 0, 2))
    assert encoded.scales is not None
    assert encoded.scales.tolist() == [127 - 12, 0, 0, 127 - 11]
    restored = encoding.decode(encoded, counts(4, 1, 0, 2), "float32")
    assert restored.tolist() == [8, -1, 2.0 ** (-16 - 12), 0, 0, 1.25, 16]


def test_bfloat16_rounds_to_nearest_even():
    encoding = encoding_named("bfloat16")
    exact = np.array([1, -2.5, 0, np.inf, -np.inf], np.float32)
    assert bits(there_and_back(encoding, exact, counts(5))) == bits(exact)
    one = 0x3F800000
    for add, expected in [(0x7FFF, one), (0x8000, one), (0x8001, one + 0x10000), (0x18000, one + 0x20000)]:
        x = np.array([one + add], np.uint32).view(np.float32)
        assert bits(there_and_back(encoding, x, counts(1))) == [expected]
    nans = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(there_and_back(encoding, nans, counts(2))).all()


@given(st.integers(1, 63), st.data())
def test_packed_loses_nothing(n_bits, data):
    dtype = data.draw(st.sampled_from([t for t in ("uint8", "int16", "uint32", "int64") if np.iinfo(t).bits > n_bits]))
    n = np.array(data.draw(st.lists(st.integers(0, 9), max_size=5)), np.int64)
    values = data.draw(hnp.arrays(dtype, int(n.sum()), elements=st.integers(0, 2**n_bits - 1)))
    encoding = encoding_named(f"packed-{n_bits}")
    assert there_and_back(encoding, values, n).tolist() == values.tolist()
    assert encoding.rounded(values, n) is values


def test_packed_by_hand():
    stored = encoding_named("packed-3").encode(np.array([1, 2, 7, 5], np.int32), counts(3, 1)).values
    assert stored.tolist() == [0b11010001, 0b1, 0b101]
    assert [packed_for(k) for k in (1, 2, 3, 256, 257, 1000)] == [f"packed-{b}" for b in (1, 1, 2, 8, 9, 10)]


@pytest.mark.parametrize("value", [-1, 8])
def test_what_does_not_fit_is_not_packed(value):
    with pytest.raises(ModelError, match="expected 0 to 7"):
        encoding_named("packed-3").encode(np.array([0, value]), counts(2))


ADAM = Table("W", 4, (Field("value", "float32", (3,)), Field("v", "float32", (3,)), Field("step", "int64")))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"value": "int4"}, "encoding 'int4' is unknown; choose one of plain"),
        ({"value": "packed-64"}, "unknown"),
        ({"v": "int8"}, "only for 'value': .* bfloat16"),
        ({"step": "int8"}, "float32 and float64"),
        ({"step": "bfloat16"}, "float32 and float64"),
        ({"value": "float32"}, "for float64"),
        ({"value": "packed-3"}, "for integers"),
        ({"step": "packed-63", "m": "int8"}, "no field 'm'"),
    ],
)
def test_what_makes_no_sense_is_refused(names, words):
    with pytest.raises(UsageError, match=words):
        encodings_for(ADAM, names)
    with pytest.raises(UsageError, match="only 31 bits"):
        encodings_for(Table("d", 1, (Field("value", "int32"),)), {"value": "packed-32"})


def test_stored_sizes_of_blocks():
    assert stored_block_bytes(ADAM, {}).tolist() == ADAM.block_bytes.tolist() == [32] * 4
    assert stored_block_bytes(ADAM, {"value": "int8", "v": "bfloat16", "step": "packed-20"}).tolist() == [16] * 4
    assert stored_block_bytes(ADAM, {"value": "mxint8", "v": "bfloat16", "step": "packed-20"}).tolist() == [13] * 4
    assert stored_block_bytes(ADAM, {"value": "mxint8", "v": "mxfp8", "step": "packed-20"}).tolist() == [11] * 4
    docs = Table("docs", 3, (Field("value", "int32", ragged=True), Field("weight", "float64")), lengths=counts(0, 4, 9))
    assert stored_block_bytes(docs, {"value": "packed-10", "weight": "float32"}).tolist() == [4, 9, 16]

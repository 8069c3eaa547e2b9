"""Hostile segments: whatever the bytes, reading ends with what was written, or with DamagedError."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.storage.samples import RAGGED, WIDE, filled, segment
from tests.unit.storage.test_segment import with_checksum

from scarml.errors import DamagedError, ModelError, NotFoundError
from scarml.storage.memory import MemoryStore
from scarml.storage.segment import encode_segment
from scarml.storage.segment_header import parse_header
from scarml.storage.segment_rows import read_blocks

W, DOCS = filled(WIDE, [1, 5, 30]), filled(RAGGED, [0, 1, 3, 11])
SEGMENT = segment(W, DOCS)


@cache
def whole() -> bytes:
    """The segment as it is stored. Made when a test asks: collecting tests must not wait for kernels to be compiled."""
    return b"".join(encode_segment(SEGMENT))


def after_header(data: bytes) -> int:
    return 8 + int.from_bytes(data[:8], "little")


def flips_in(data: Callable[[], bytes]) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Places in these bytes, and what to flip there."""
    return st.deferred(
        lambda: st.lists(st.tuples(st.integers(0, len(data()) - 1), st.integers(1, 255)), min_size=1, max_size=4)
    )


def read_everything(data: bytes) -> None:
    """Raises DamagedError, or gives each block as it was written or marked as bad."""
    store = MemoryStore()
    store.put(SEGMENT.name, [data])
    for blocks in (W, DOCS):
        got, is_bad = read_blocks(store, SEGMENT.name, blocks.table, blocks.ids)
        assert (is_bad | ~got.differs_from(blocks)).all()


def check(data: bytes) -> None:
    try:
        read_everything(data)
    except DamagedError:
        return


@given(st.binary(max_size=300))
def test_random_bytes(data):
    check(data)


@given(st.binary(max_size=300))
def test_random_bytes_after_a_right_length(data):
    check(len(data).to_bytes(8, "little") + data)


@given(flips_in(whole))
def test_flipped_bytes(flips):
    data = bytearray(whole())
    for at, mask in flips:
        data[at] ^= mask
    check(bytes(data))


PLACES = st.deferred(lambda: st.integers(0, len(whole())))


@given(PLACES, PLACES, st.binary(max_size=40))
def test_cut_out_and_pasted_bytes(a, b, new):
    check(whole()[: min(a, b)] + new + whole()[max(a, b) :])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_forged_headers_with_a_right_checksum(data):
    """Any one value of the header is replaced by any other: only errors with words, and no tensor outside the file."""
    header = json.loads(whole()[8 : after_header(whole())])
    for key in ("segment", "tables"):
        header["__metadata__"][key] = json.loads(header["__metadata__"][key])
    places = list(_places(header))
    container, key = data.draw(st.sampled_from(places))
    container[key] = data.draw(JSON)
    if not isinstance(header.get("__metadata__"), dict):
        return
    for key in ("segment", "tables"):
        if key in header["__metadata__"]:
            header["__metadata__"][key] = json.dumps(header["__metadata__"][key])
    text = with_checksum(json.dumps(header, separators=(",", ":")).encode())
    try:
        parsed = parse_header(SEGMENT.name, text, 8 + len(text) + len(whole()) - after_header(whole()))
    except DamagedError:
        return
    with suppress(DamagedError, ModelError, NotFoundError):  # a right checksum over another table: it says which
        read_everything(len(text).to_bytes(8, "little") + text + whole()[after_header(whole()) :])
    for table in parsed.tables.values():
        for f in table.fields:
            assert f.tensor.size_bytes == np.dtype(f.tensor.dtype).itemsize * int(np.prod(f.tensor.shape))
            assert 0 <= f.tensor.start <= f.tensor.start + f.tensor.size_bytes <= parsed.size_bytes


def _places(value):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)

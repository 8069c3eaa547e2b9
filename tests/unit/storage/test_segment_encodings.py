"""Segments with encoded fields and with extra state: written, opened by plain safetensors, read back, damaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from tests.unit.storage.samples import filled, same, segment
from tests.unit.storage.test_segment_reader import put, reader_of

from scarml.checkpoint.encoding import element_counts, encodings_for, stored_block_bytes
from scarml.core.block import Blocks, Field, Table
from scarml.errors import DamagedError, ModelError, UsageError
from scarml.storage.memory import MemoryStore
from scarml.storage.segment import Segment, encode_segment
from scarml.storage.segment_header import read_header
from scarml.storage.segment_rows import read_blocks, read_extra

DENSE = Table(
    "W",
    40,
    (
        Field("value", "float32", (3, 2)),
        Field("m", "float32", (3, 2)),
        Field("sum", "float64"),
        Field("step", "int64"),
        Field("counts", "uint16", (5,)),
    ),
)
DENSE_NAMES = {"value": "int8", "m": "bfloat16", "sum": "float32", "counts": "packed-9"}
RAGGED = Table(
    "docs",
    12,
    (Field("value", "float64", ragged=True), Field("topics", "int32", ragged=True), Field("weight", "float64")),
    lengths=np.array([3, 0, 1, 7, 2, 0, 0, 5, 1, 4, 9, 2]),
)
RAGGED_NAMES = {"value": "int8", "topics": "packed-8"}
BOTH = [(DENSE, DENSE_NAMES), (RAGGED, RAGGED_NAMES)]


def rounded(blocks: Blocks, names: dict[str, str]) -> Blocks:
    encodings = encodings_for(blocks.table, names)
    fields = {
        f.name: encodings[f.name]
        .rounded(blocks.fields[f.name].reshape(-1), element_counts(blocks.table, f, blocks.ids))
        .reshape(blocks.fields[f.name].shape)
        for f in blocks.table.fields
    }
    return Blocks(blocks.table, blocks.ids, fields)


def noisy(table: Table, ids: Any, seed: int = 0) -> Blocks:
    blocks = filled(table, ids, seed)
    for a in blocks.fields.values():
        if a.dtype.kind == "f":
            a += np.random.default_rng(seed).normal(size=a.shape).astype(a.dtype)
    return blocks


def encoded(blocks: Blocks, names: dict[str, str], commit: int = 1, **more: Any) -> Segment:
    return Segment(
        1, commit, commit, "server-0", commit, False, {blocks.table.name: blocks}, {blocks.table.name: names}, **more
    )


@pytest.mark.parametrize(("table", "names"), BOTH)
@pytest.mark.parametrize("ids", [[], [0], [3, 4, 5, 9], [0, 11], list(range(12))])
@pytest.mark.parametrize("step", [1, 2])
def test_encoded_blocks_are_read_back_rounded(table, names, ids, step):
    blocks, store = noisy(table, ids), MemoryStore()
    s = encoded(blocks, names)
    put(store, s)
    wanted = blocks.ids[::step]
    got, is_bad = read_blocks(store, s.name, table, wanted)
    assert not is_bad.any()
    assert same(got, rounded(blocks.take(wanted), names))
    again = encoded(got, names)
    put(store, again)
    assert same(read_blocks(store, again.name, table, wanted)[0], got)


@pytest.mark.parametrize(("table", "names"), BOTH)
def test_what_a_budget_counts_is_what_is_stored(table, names):
    sizes = []
    for ids in ([0, 2, 3], [0, 2, 3, 7, 8, 9, 10]):
        s = encoded(noisy(table, ids), names)
        tensors = safetensors.numpy.load(b"".join(encode_segment(s)))
        values = sum(a.nbytes for name, a in tensors.items() if "." in name)
        assert values == stored_block_bytes(table, names)[ids].sum()
        sizes.append(values)
    assert sizes[0] < sizes[1]


def test_encoded_tensors_as_plain_safetensors_shows_them():
    tensors = safetensors.numpy.load(b"".join(encode_segment(encoded(noisy(DENSE, [1, 5, 6]), DENSE_NAMES))))
    assert {name: (a.dtype.name, a.shape) for name, a in tensors.items()} == {
        "W/ids": ("uint32", (3,)),
        "W/crc32": ("uint32", (3,)),
        "W.value": ("int8", (3, 3, 2)),
        "W/value.scale": ("float32", (3,)),
        "W.m": ("uint16", (3, 3, 2)),
        "W.sum": ("float32", (3,)),
        "W.step": ("int64", (3,)),
        "W.counts": ("uint8", (3, 6)),
    }


@pytest.mark.parametrize(("table", "names"), BOTH)
def test_every_stored_byte_is_covered_by_a_checksum(table, names):
    blocks = noisy(table, [0, 3, 7])
    s = encoded(blocks, names)
    data = b"".join(encode_segment(s))
    n_header = 8 + int.from_bytes(data[:8], "little")
    store = MemoryStore()
    for at in range(n_header, len(data)):
        store.put(s.name, [data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]])
        try:
            got, is_bad = read_blocks(store, s.name, table, blocks.ids)
        except DamagedError:
            continue
        assert is_bad.sum() == 1
        good = blocks.ids[~is_bad]
        assert same(got.take(good), rounded(blocks.take(good), names))


def test_an_encoding_that_is_none_for_a_field_is_refused():
    with pytest.raises(UsageError, match="float64"):
        encode_segment(encoded(noisy(DENSE, [1]), {"value": "float32"}))
    with pytest.raises(ModelError, match="expected 0 to 7"):
        encode_segment(encoded(noisy(DENSE, [1]), {"counts": "packed-3"}))


# --------------------------------------------------------------------------------------------------------------- extra
EXTRA = {
    "position": 7,
    "user": {"a": [1.5, None, "é"], "big": 2**100},
    "key": np.arange(5, dtype=np.uint64),
    "loss": np.float32(0.5),
    "none": np.zeros((0, 3)),
}


def is_extra(got: Any, commit: int) -> bool:
    version, extra = got
    assert (version.term, version.commit, version.iteration) == (1, commit, commit)
    assert set(extra) == set(EXTRA)
    assert (extra["position"], extra["user"]) == (7, EXTRA["user"])
    for name in ("key", "loss", "none"):
        assert extra[name].dtype == EXTRA[name].dtype
        assert extra[name].shape == EXTRA[name].shape
        assert extra[name].tolist() == EXTRA[name].tolist()
    return True


def test_extra_state_comes_back_from_the_newest_segment_that_has_it():
    store = MemoryStore()
    assert reader_of(store).newest_extra() is None
    put(store, segment(filled(RAGGED, [3])))
    assert reader_of(store).newest_extra() is None
    put(store, Segment(1, 2, 2, "driver-0", 2, False, {}, extra={"position": 0}))
    put(store, encoded(noisy(DENSE, [1]), {}, commit=3, extra=EXTRA))
    put(store, encoded(noisy(DENSE, [2]), {}, commit=4))
    reader = reader_of(store)
    assert is_extra(reader.newest_extra(), 3)
    assert reader.read_newest(DENSE, DENSE.all_ids).found.sum() == 2
    put(store, Segment(1, 5, 5, "driver-0", 5, False, {}, extra=EXTRA))
    assert is_extra(reader.newest_extra(), 3)
    reader.refresh()
    assert is_extra(reader.newest_extra(), 5)


def test_damaged_extra_state_gives_way_to_older(caplog):
    store = MemoryStore()
    old, new = (Segment(1, c, c, "driver-0", c, False, {}, extra=EXTRA) for c in (1, 2))
    put(store, old)
    put(store, new)
    tensor = read_header(store, new.name).extra.arrays["key"]
    data = bytearray(store.get(new.name))
    data[tensor.start] ^= 1
    store.put(new.name, [bytes(data)])
    assert is_extra(reader_of(store).newest_extra(), 1)
    assert "extra state has checksum" in caplog.text


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"": 1}, "cannot be called ''"),
        ({"x" * 129: 1}, "cannot be called"),
        ({7: 1}, "cannot be called '7'"),
        ({"a": object()}, "must be arrays, or what can be written as JSON"),
        ({"a": float("nan")}, "without NaN"),
        ({"a": "x" * (1 << 20)}, "put large state into arrays"),
        ({"a": np.array(["x"])}, "dtype '<U1', which cannot be stored"),
        ({"a": np.zeros(1, ">f4")}, "little-endian"),
    ],
)
def test_extra_state_that_cannot_be_stored_is_said(extra, words):
    with pytest.raises(ModelError, match=words):
        encode_segment(Segment(1, 1, 1, "driver-0", 1, False, {}, extra=extra))


def test_names_that_clash_are_refused():
    table = Table("extra", 3, (Field("value"),))
    clash = Segment(1, 1, 1, "driver-0", 1, False, {"extra": table.empty(np.array([1]))}, extra={"ids": np.zeros(1)})
    with pytest.raises(ModelError, match="two tensors"):
        encode_segment(clash)


def test_extra_state_is_none_where_there_is_none():
    store, s = MemoryStore(), segment(filled(RAGGED, [3]))
    put(store, s)
    assert read_extra(store, read_header(store, s.name)) is None

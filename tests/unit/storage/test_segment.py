"""Segments: written, opened by plain safetensors, read back, and every damage found."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest
import safetensors.numpy
from tests.unit.storage.samples import RAGGED, WIDE, filled, same, segment

from scarml.core.block import Blocks, Field, Table
from scarml.errors import DamagedError, ModelError, NotFoundError
from scarml.storage.memory import MemoryStore
from scarml.storage.segment import Segment, SegmentId, encode_segment
from scarml.storage.segment_header import parse_header, read_header
from scarml.storage.segment_rows import read_blocks


def stored(s: Segment) -> MemoryStore:
    store = MemoryStore()
    store.put(s.name, encode_segment(s))
    return store


def test_plain_safetensors_opens_a_segment():
    w, docs = filled(WIDE, [1, 5, 30]), filled(RAGGED, [0, 1, 3, 11])
    s = segment(w, docs, commit=8, unit=True)
    tensors = safetensors.numpy.load(b"".join(encode_segment(s)))
    assert set(tensors) == {
        "W/ids", "W.value", "W.step", "W.mask", "W/crc32",
        "docs/ids", "docs/lengths", "docs.value", "docs.weight", "docs/crc32",
    }  # fmt: skip
    assert tensors["W/ids"].tolist() == [1, 5, 30]
    assert tensors["W/ids"].dtype == np.uint32
    assert tensors["docs/lengths"].tolist() == [3, 0, 7, 2]
    for name, a in w.fields.items():
        assert np.array_equal(tensors[f"W.{name}"], a)
    expected = zlib.crc32((5).to_bytes(8, "little") + b"".join(a[1].tobytes() for a in w.fields.values()))
    assert tensors["W/crc32"][1] == expected


def test_a_reader_in_another_language_needs_only_the_header():
    data = b"".join(encode_segment(segment(filled(WIDE, [2, 3]), term=3, commit=4, node="server-7", save_id=9)))
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    metadata = header["__metadata__"]
    assert (metadata["format"], metadata["format_version"]) == ("scar-segment", "1")
    assert json.loads(metadata["segment"]) == {
        "term": 3, "commit": 4, "iteration": 40, "node": "server-7", "save_id": 9, "unit": False,
    }  # fmt: skip
    table = json.loads(metadata["tables"])[0]
    assert table["fields"][0] == {
        "name": "value", "dtype": "float32", "shape": [3, 2], "ragged": False, "encoding": "plain", "scales": None,
    }  # fmt: skip


def test_tensors_are_aligned_to_their_elements():
    data = b"".join(encode_segment(segment(filled(WIDE, [1, 5, 30]), filled(RAGGED, [0, 3]))))
    for tensor in read_header_of(data).values():
        assert tensor.start % np.dtype(tensor.dtype).itemsize == 0


def read_header_of(data: bytes):
    store = MemoryStore()
    name = segment(filled(WIDE, [1])).name
    store.put(name, [data])
    tables = read_header(store, name).tables
    return {f"{t.name}.{f.field.name}": f.tensor for t in tables.values() for f in t.fields} | {
        f"{t.name}/ids": t.ids for t in tables.values()
    }


@pytest.mark.parametrize("table", [WIDE, RAGGED])
@pytest.mark.parametrize("ids", [[], [0], [3, 4, 5, 9], [0, 11], list(range(12))])
@pytest.mark.parametrize("step", [1, 2])
def test_any_blocks_are_read_back_to_the_bit(table, ids, step):
    blocks = filled(table, ids)
    s = segment(blocks)
    wanted = blocks.ids[::step]
    got, is_bad = read_blocks(stored(s), s.name, table, wanted)
    assert same(got, blocks.take(wanted))
    assert not is_bad.any()


def test_blocks_larger_than_a_piece_and_many_small_ones(monkeypatch):
    from scarml.storage import segment_rows

    monkeypatch.setattr(segment_rows, "_PIECE_BYTES", 64)
    table = Table("W", 500, (Field("value", "float32", (40,)), Field("small", "int8")))
    blocks = filled(table, np.arange(0, 500, 2))
    s = segment(blocks)
    for wanted in (blocks.ids, blocks.ids[::7], blocks.ids[100:120]):
        got, is_bad = read_blocks(stored(s), s.name, table, wanted)
        assert same(got, blocks.take(wanted))
        assert not is_bad.any()


def test_ids_beyond_32_bits_are_kept():
    table = Table("W", 2**33 + 5, (Field("value", "int8"),))
    blocks = Blocks(table, np.array([7, 2**33]), {"value": np.array([1, 2], np.int8)})
    s = segment(blocks)
    got, is_bad = read_blocks(stored(s), s.name, table, blocks.ids)
    assert same(got, blocks)
    assert not is_bad.any()
    assert safetensors.numpy.load(b"".join(encode_segment(s)))["W/ids"].dtype == np.uint64


def test_nothing_is_copied_but_ids_and_checksums():
    blocks = filled(WIDE, WIDE.all_ids)
    chunks = list(encode_segment(segment(blocks)))
    shared = [c for c in chunks if any(np.shares_memory(np.frombuffer(c, np.uint8), a) for a in blocks.fields.values())]
    assert len(shared) == len(blocks.fields)


def test_a_damaged_block_is_told_by_its_checksum_and_comes_as_zeros():
    blocks = filled(WIDE, [1, 5, 30])
    s = segment(blocks)
    data = bytearray(b"".join(encode_segment(s)))
    data[read_header_of(bytes(data))["W.mask"].start + 5] ^= 1  # the first byte of block 5's mask
    store = MemoryStore()
    store.put(s.name, [bytes(data)])
    got, is_bad = read_blocks(store, s.name, WIDE, blocks.ids)
    assert is_bad.tolist() == [False, True, False]
    expected = blocks.copy()
    expected.put(WIDE.empty(np.array([5])))
    assert same(got, expected)


def test_a_damaged_id_damages_the_table():
    s = segment(filled(WIDE, [1, 5, 30]))
    data = bytearray(b"".join(encode_segment(s)))
    data[read_header_of(bytes(data))["W/ids"].start] ^= 2
    store = MemoryStore()
    store.put(s.name, [bytes(data)])
    with pytest.raises(DamagedError, match="block ids of table 'W'"):
        read_blocks(store, s.name, WIDE, np.array([1]))


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 9, 500, -1, -4])
def test_a_torn_segment_is_damaged(cut):
    s = segment(filled(WIDE, [1, 5, 30]))
    store = MemoryStore()
    store.put(s.name, [b"".join(encode_segment(s))[:cut]])
    with pytest.raises(DamagedError):
        read_header(store, s.name)


def forged(change) -> bytes:
    """A header with a right checksum and ``change`` made to it."""
    data = b"".join(encode_segment(segment(filled(WIDE, [1, 5, 30]))))
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + n])
    change(header)
    return with_checksum(json.dumps(header, separators=(",", ":")).encode().ljust(n))


def with_checksum(header: bytes) -> bytes:
    start = len(b'{"__metadata__":{"crc32":"')
    blank = header[:start] + b"0" * 8 + header[start + 8 :]
    return header[:start] + b"%08x" % zlib.crc32(blank) + header[start + 8 :]


def set_in(*path, value):
    def change(header):
        for key in path[:-1]:
            header = header[key]
        if value is None:
            del header[path[-1]]
        else:
            header[path[-1]] = value

    return change


def set_in_metadata(key: str, *path, value):
    def change(header):
        inner = json.loads(header["__metadata__"][key])
        set_in(*path, value=value)(inner)
        header["__metadata__"][key] = json.dumps(inner)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_in("__metadata__", "format_version", value="2"), "use a newer SCAR"),
        (set_in("__metadata__", "format", value="other"), "not marked"),
        (set_in("W.value", "dtype", value="F99"), "unknown dtype"),
        (set_in("W.value", "dtype", value=["F32"]), "unknown dtype"),
        (set_in("W.value", "shape", value=[3, 3]), "expected 36 for its shape"),
        (set_in("W.value", "shape", value=[-3, 3, 2]), "unknown dtype or a shape"),
        (set_in("W.value", "shape", value=[2**61, 2**61]), "expected"),
        (set_in("W.value", "shape", value=[1] * 99), "wrong number"),
        (set_in("W.value", "data_offsets", value=[0]), "wrong number"),
        (set_in("W.value", "data_offsets", value=[0, 72]), "gap or an overlap"),
        (set_in("W.value", "data_offsets", value=[2**40, 2**40 + 72]), "gap or an overlap"),
        (set_in("W.value", "data_offsets", value=[0.5, 72.5]), "no numbers"),
        (set_in("W.value", "data_offsets", value=[True, 73]), "no numbers"),
        (set_in("W/ids", value=None), "gap or an overlap"),
        (set_in_metadata("segment", "term", value=2), "says that it is"),
        (set_in_metadata("segment", "iteration", value="1"), "iteration is '1'"),
        (set_in_metadata("tables", 0, "name", value="V"), "missing"),
        (set_in_metadata("tables", 0, "name", value=7), "no name"),
        (set_in_metadata("tables", 0, "n_blocks", value=-1), "n_blocks is"),
        (set_in_metadata("tables", 0, "fields", value=[]), "has fields"),
        (set_in_metadata("tables", 0, "fields", 0, "encoding", value="int4"), "cannot read"),
        (set_in_metadata("tables", 0, "fields", 0, "encoding", value=7), "no encoding"),
        (set_in_metadata("tables", 0, "fields", 0, "encoding", value="int8"), "says that its scales are None"),
        (set_in_metadata("tables", 0, "fields", 0, "encoding", value="bfloat16"), "missing, or is not uint16"),
        (set_in_metadata("tables", 0, "fields", 0, "encoding", value="packed-3"), "cannot be stored as packed-3"),
        (set_in_metadata("tables", 0, "fields", 0, "scales", value="W.m"), "says that its scales are 'W.m'"),
        (set_in_metadata("tables", 0, "fields", 0, "dtype", value="float64"), "missing, or is not float64"),
        (set_in_metadata("tables", 0, "fields", 0, "shape", value=[6]), "has shape"),
        (set_in_metadata("tables", 0, "fields", 0, "ragged", value=True), "ragged and has a shape"),
        (set_in_metadata("tables", 0, value=None), "belong to no table"),
        (set_in("__metadata__", "segment", value="[" * 20_000), "no JSON"),
        (set_in("__metadata__", "segment", value="1" * 10_000), "no JSON"),
        (set_in("__metadata__", "segment", value=None), "is missing"),
        (set_in("__metadata__", "tables", value='{"a":1,"a":2}'), "twice"),
    ],
)
def test_nothing_in_a_header_is_believed(change, words):
    s = segment(filled(WIDE, [1, 5, 30]))
    header = forged(change)
    data = b"".join(encode_segment(s))
    n = int.from_bytes(data[:8], "little")
    size = len(data) - n + len(header)
    with pytest.raises(DamagedError, match=words):
        parse_header(s.name, header, size)


def test_a_segment_under_another_name_is_damaged():
    s, other = segment(filled(WIDE, [1])), segment(filled(WIDE, [1]), commit=2)
    store = MemoryStore()
    store.put(other.name, encode_segment(s))
    with pytest.raises(DamagedError, match="says that it is"):
        read_header(store, other.name)


@pytest.mark.parametrize(
    "table",
    [
        Table("W", 41, WIDE.fields),
        Table("W", 40, (Field("value", "float32", (6,)), *WIDE.fields[1:])),
        Table("W", 40, (Field("value", "float64", (3, 2)), *WIDE.fields[1:])),
        Table("W", 40, (WIDE.fields[1], WIDE.fields[0], WIDE.fields[2])),
        Table("W", 40, WIDE.fields[:2]),
    ],
)
def test_a_table_of_another_form_is_the_callers_error(table):
    s = segment(filled(WIDE, [1]))
    with pytest.raises(ModelError, match="saved by another model"):
        read_blocks(stored(s), s.name, table, np.array([1]))


def test_ragged_blocks_of_other_lengths_are_the_callers_error():
    s = segment(filled(RAGGED, [3]))
    assert RAGGED.lengths is not None
    table = Table("docs", 12, RAGGED.fields, lengths=RAGGED.lengths + 1)
    with pytest.raises(ModelError, match="other lengths"):
        read_blocks(stored(s), s.name, table, np.array([3]))


def test_blocks_that_are_not_in_the_segment_are_not_found():
    s = segment(filled(WIDE, [1, 5]))
    for ids in ([2], [1, 39]):
        with pytest.raises(NotFoundError, match="are not in"):
            read_blocks(stored(s), s.name, WIDE, np.array(ids))


def test_what_cannot_be_stored_is_said():
    table = Table("W", 2, (Field("value", ">f4"),))
    with pytest.raises(ModelError, match="cannot be stored"):
        encode_segment(segment(table.empty(table.all_ids)))


def test_names_sort_and_parse():
    s = SegmentId(term=2, commit=34, save_id=5, node="server-12")
    assert s.name == "segments/00000002-000000000034-server-12-00000005.safetensors"
    assert SegmentId.parse(s.name) == s
    for name in ("segments/x", s.name + "x", "units/1", s.name.replace("-12-", "-012-")):
        assert SegmentId.parse(name) is None
    assert sorted([SegmentId(2, 1, 1, 0), SegmentId(1, 9, 9, 9)])[0].term == 1

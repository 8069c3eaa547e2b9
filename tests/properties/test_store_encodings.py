"""Hostile segments with encodings, extra state and versions a block: only DamagedError, and nothing believed."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.test_store_segments import JSON, _places, after_header, flips_in
from tests.unit.storage.test_segment import with_checksum
from tests.unit.storage.test_segment_encodings import (
    DENSE,
    DENSE_NAMES,
    EXTRA,
    RAGGED,
    RAGGED_NAMES,
    noisy,
    rounded,
)

from scarml.core.block import Blocks, Field, Table
from scarml.errors import DamagedError, ModelError, NotFoundError
from scarml.storage.compaction import Compactor, Limits
from scarml.storage.memory import MemoryStore
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment import Segment, SegmentId, encode_segment
from scarml.storage.segment_header import read_header
from scarml.storage.segment_reader import SegmentReader
from scarml.storage.segment_rows import read_blocks, read_extra, read_stored_index

W, DOCS = noisy(DENSE, [1, 5, 30]), noisy(RAGGED, [0, 1, 3, 11])
NAMES = {"W": DENSE_NAMES, "docs": RAGGED_NAMES}
SEGMENT = Segment(1, 1, 1, "server-0", 1, False, {"W": W, "docs": DOCS}, NAMES, EXTRA)
INNER = ("segment", "tables", "extra")


@cache
def whole() -> bytes:
    """The segment as it is stored. Made when a test asks: collecting tests must not wait for kernels to be compiled."""
    return b"".join(encode_segment(SEGMENT))


def read_everything(data: bytes) -> None:
    """Raises DamagedError, or gives each block as it was written or marked as bad."""
    store = MemoryStore()
    store.put(SEGMENT.name, [data])
    header = read_header(store, SEGMENT.name)
    for stored in header.tables.values():
        read_stored_index(store, header, stored)
    extra = read_extra(store, header)
    assert extra is None or all(len(a) <= len(data) for a in extra.arrays.values() if a.shape)
    for blocks in (W, DOCS):
        got, is_bad = read_blocks(store, SEGMENT.name, blocks.table, blocks.ids)
        same = ~got.differs_from(rounded(blocks, NAMES[blocks.table.name]))
        assert (is_bad | same).all()


@given(flips_in(whole))
def test_flipped_bytes(flips):
    data = bytearray(whole())
    for at, mask in flips:
        data[at] ^= mask
    with suppress(DamagedError):
        read_everything(bytes(data))


NUMBERS = st.sampled_from([0, 1, 2, 7, 2**31, 2**40, 2**61, 2**62 - 1, -1, 10**30])
NAMES_OF = st.sampled_from(["plain", "float32", "bfloat16", "int8", "packed-1", "packed-63", "packed-64", "W/ids"])


@given(st.data())
def test_forged_headers_with_a_right_checksum(data):
    """Any one value of the header is replaced by any other: only errors with words, in memory that fits the file."""
    header = json.loads(whole()[8 : after_header(whole())])
    for key in INNER:
        header["__metadata__"][key] = json.loads(header["__metadata__"][key])
    container, key = data.draw(st.sampled_from(list(_places(header))))
    container[key] = data.draw(JSON | NUMBERS | NAMES_OF)
    if not isinstance(header.get("__metadata__"), dict):
        return
    for key in INNER:
        if key in header["__metadata__"]:
            header["__metadata__"][key] = json.dumps(header["__metadata__"][key])
    text = with_checksum(json.dumps(header, separators=(",", ":")).encode())
    forged = len(text).to_bytes(8, "little") + text + whole()[after_header(whole()) :]
    assert peak_bytes(forged_reading, forged) < 4 << 20


def peak_bytes(reading: Callable[[bytes], None], data: bytes) -> int:
    """Memory that reading takes, the second time: the first one may compile a kernel."""
    for _ in range(2):
        tracemalloc.start()
        try:
            with suppress(DamagedError, ModelError, NotFoundError):  # a checksum over another table: it says which
                reading(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    return peak


def forged_reading(data: bytes) -> None:
    """As `read_everything`; a forged encoding may give other values."""
    store = MemoryStore()
    store.put(SEGMENT.name, [data])
    header = read_header(store, SEGMENT.name)
    for stored in header.tables.values():
        read_stored_index(store, header, stored)
    read_extra(store, header)
    for blocks in (W, DOCS):
        read_blocks(store, SEGMENT.name, blocks.table, blocks.ids)


@cache
def compacted() -> tuple[str, bytes]:
    """Name and bytes of a segment that was merged from others."""
    run = RunFolder.create(MemoryStore(), {})
    term = run.claim_term("new")
    for commit in (1, 2):
        tables = {"W": W, "docs": noisy(RAGGED, [3], seed=9)} if commit == 2 else {"W": W, "docs": DOCS}
        run.write_segment(Segment(term, commit, commit, "server-0", commit, False, tables, NAMES, EXTRA))
    step = Compactor(run, term, Limits(slack_bytes=-(1 << 30))).step()
    assert step is not None
    assert step.written is not None
    return step.written, run.store.get(step.written)


def read_compacted(data: bytes) -> None:
    name, _ = compacted()
    store = MemoryStore()
    store.put(name, [data])
    reader = SegmentReader(store, lambda: [SegmentId.parse(name)])
    reader.newest_version()
    reader.newest_extra()
    for table in (DENSE, RAGGED):
        got = reader.read_newest(table, table.all_ids)
        assert (got.versions.commit[got.found] <= 2).all()
        assert got.found.sum() <= 4
    run = RunFolder.create(store, {})
    compactor = Compactor(run, run.claim_term("new"), Limits(slack_bytes=-(1 << 30)))
    assert store.get(name) == data
    assert compactor.step() is None or name not in store.list()


@given(flips_in(lambda: compacted()[1]))
def test_flipped_bytes_of_a_compacted_segment(flips):
    data = bytearray(compacted()[1])
    for at, mask in flips:
        data[at] ^= mask
    read_compacted(bytes(data))


@given(st.data())
def test_forged_headers_of_a_compacted_segment(data):
    _, unforged = compacted()
    header = json.loads(unforged[8 : after_header(unforged)])
    for key in INNER:
        header["__metadata__"][key] = json.loads(header["__metadata__"][key])
    container, key = data.draw(st.sampled_from(list(_places(header))))
    container[key] = data.draw(JSON | NUMBERS | NAMES_OF)
    if not isinstance(header.get("__metadata__"), dict):
        return
    for key in INNER:
        if key in header["__metadata__"]:
            header["__metadata__"][key] = json.dumps(header["__metadata__"][key])
    text = with_checksum(json.dumps(header, separators=(",", ":")).encode())
    forged = len(text).to_bytes(8, "little") + text + unforged[after_header(unforged) :]
    assert peak_bytes(read_compacted, forged) < 8 << 20


def test_a_number_of_blocks_that_no_memory_holds_is_not_believed_by_the_compactor():
    store = MemoryStore()
    run = RunFolder.create(store, {})
    term = run.claim_term("new")
    table = Table("W", 2**60, (Field("value"),))
    for commit in (1, 2):
        blocks = Blocks(table, np.array([3, 2**59]), {"value": np.full(2, commit, np.float32)})
        run.write_segment(Segment(term, commit, commit, "server-0", commit, False, {"W": blocks}))
    assert Compactor(run, term, Limits(slack_bytes=-(1 << 30))).step() is not None
    assert len(store.list("segments/")) == 1


def test_a_dense_packed_shape_that_no_number_holds_is_refused():
    header = json.loads(whole()[8 : after_header(whole())])
    tables = json.loads(header["__metadata__"]["tables"])
    tables[0]["fields"][4]["shape"] = [2**61, 2**61, 2**61]
    header["__metadata__"]["tables"] = json.dumps(tables)
    text = with_checksum(json.dumps(header, separators=(",", ":")).encode())
    store = MemoryStore()
    store.put(SEGMENT.name, [len(text).to_bytes(8, "little") + text + whole()[after_header(whole()) :]])
    with pytest.raises(DamagedError, match="has shape"):
        read_header(store, SEGMENT.name)

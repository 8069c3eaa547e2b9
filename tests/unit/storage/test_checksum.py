"""Checksums: both kernels against zlib."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.storage.carryless import CAN_FOLD
from scarml.storage.checksum import (
    begin_checksums,
    extend_checksums,
    extend_checksums_and_copy,
    finish_checksums,
)
from scarml.storage.crc32 import extend_by_folding, extend_by_table

KERNELS = [extend_by_table, *([extend_by_folding] if CAN_FOLD else [])]
ALL_ONES = np.uint32(0xFFFFFFFF)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_kernels_give_what_zlib_gives(kernel):
    data = np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8)
    for size in [*range(150), 255, 256, 1000, 1024, 4099]:
        for start in range(3):  # aligned or not
            got = np.uint32(kernel(ALL_ONES, data, start, size)) ^ ALL_ONES
            assert got == zlib.crc32(data[start : start + size].tobytes()), (start, size)


@pytest.mark.parametrize("kernel", KERNELS)
@given(first=st.binary(max_size=200), second=st.binary(max_size=200))
def test_a_checksum_may_be_taken_piece_by_piece(kernel, first, second):
    crc = ALL_ONES
    for part in (first, second):
        crc = np.uint32(kernel(crc, np.array(bytearray(part), np.uint8), 0, len(part)))
    assert crc ^ ALL_ONES == zlib.crc32(first + second)


def test_the_checksum_of_a_block_is_over_its_id_and_its_fields():
    ids = np.array([0, 7, 2**40], np.int64)
    rng = np.random.default_rng(0)
    value, step = rng.integers(0, 256, (3, 100), dtype=np.uint8), rng.integers(0, 256, (3, 8), dtype=np.uint8)
    crc = begin_checksums(ids)
    extend_checksums(crc, value.reshape(-1), np.arange(3) * 100, np.full(3, 100))
    out = np.zeros(30, np.uint8)
    extend_checksums_and_copy(crc, step.reshape(-1), np.arange(3) * 8, np.full(3, 8), out, np.array([0, 10, 20]))
    expected = [
        zlib.crc32(int(i).to_bytes(8, "little") + v.tobytes() + s.tobytes())
        for i, v, s in zip(ids, value, step, strict=True)
    ]
    assert finish_checksums(crc).tolist() == expected
    assert (out.reshape(3, 10)[:, :8] == step).all()
    assert (out.reshape(3, 10)[:, 8:] == 0).all()


def test_no_blocks_have_no_checksums():
    assert finish_checksums(begin_checksums(np.zeros(0, np.int64))).tolist() == []

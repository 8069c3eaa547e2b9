"""Checksums of blocks: CRC-32 (the polynomial of zlib, PNG and Ethernet) over a block's id and its bytes.

The id is part of it, so that a value under the wrong id does not pass. The kernels release the GIL and take many blocks
a call; zlib itself would cost a Python call a block.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Array, Ids

__all__ = ["begin_checksums", "extend_checksums", "extend_checksums_and_copy", "finish_checksums"]

Checksums = NDArray[np.uint32]

_POLYNOMIAL = 0xEDB88320  # reflected
_ALL_ONES = np.uint32(0xFFFFFFFF)


def _make_tables() -> NDArray[np.uint32]:
    """``tables[k, b]``: what the byte ``b`` does to the checksum after ``k`` further bytes (slicing-by-8)."""
    tables = np.zeros((8, 256), np.uint32)
    for b in range(256):
        crc = b
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        tables[0, b] = crc
    for k in range(1, 8):
        tables[k] = (tables[k - 1] >> 8) ^ tables[0, tables[k - 1] & 0xFF]
    return tables


_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7 = (np.ascontiguousarray(t) for t in _make_tables())


def begin_checksums(ids: Ids) -> Checksums:
    """Running checksums of the blocks ``ids``, with the ids as little-endian uint64 taken in."""
    crc = np.full(len(ids), _ALL_ONES)
    id_bytes = np.ascontiguousarray(ids, "<u8").view(np.uint8)
    starts = np.arange(0, 8 * len(ids), 8, dtype=np.int64)
    extend_checksums(crc, id_bytes, starts, np.full(len(ids), 8, np.int64))
    return crc


def finish_checksums(crc: Checksums) -> Checksums:
    """The checksums, from running ones."""
    return crc ^ _ALL_ONES


# Indices are unsigned: with signed ones numba tests each for being negative, and the eight loads do not become one.
@numba.njit(nogil=True, cache=True, inline="always")
def _load_word(data: Array, p: Any) -> Any:
    return (
        np.uint64(data[p])
        | (np.uint64(data[p + np.uint64(1)]) << np.uint64(8))
        | (np.uint64(data[p + np.uint64(2)]) << np.uint64(16))
        | (np.uint64(data[p + np.uint64(3)]) << np.uint64(24))
        | (np.uint64(data[p + np.uint64(4)]) << np.uint64(32))
        | (np.uint64(data[p + np.uint64(5)]) << np.uint64(40))
        | (np.uint64(data[p + np.uint64(6)]) << np.uint64(48))
        | (np.uint64(data[p + np.uint64(7)]) << np.uint64(56))
    )


@numba.njit(nogil=True, cache=True)
def _extend(crc: Any, data: Array, start: int, size: int) -> Any:
    p = np.uint64(start)
    end_of_words = p + np.uint64(size & ~7)
    end = p + np.uint64(size)
    byte = np.uint64(0xFF)
    while p < end_of_words:
        w = _load_word(data, p) ^ np.uint64(crc)
        crc = (
            _T7[w & byte]
            ^ _T6[(w >> np.uint64(8)) & byte]
            ^ _T5[(w >> np.uint64(16)) & byte]
            ^ _T4[(w >> np.uint64(24)) & byte]
            ^ _T3[(w >> np.uint64(32)) & byte]
            ^ _T2[(w >> np.uint64(40)) & byte]
            ^ _T1[(w >> np.uint64(48)) & byte]
            ^ _T0[w >> np.uint64(56)]
        )
        p += np.uint64(8)
    while p < end:
        crc = _T0[(crc ^ data[p]) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        p += np.uint64(1)
    return crc


@numba.njit(nogil=True, cache=True)
def extend_checksums(crc: Checksums, data: Array, starts: Ids, sizes: Ids) -> None:
    """Take ``data[starts[i] : starts[i] + sizes[i]]`` into ``crc[i]``, in place, for every i. ``data`` is bytes."""
    for i in range(len(starts)):
        crc[i] = _extend(crc[i], data, starts[i], sizes[i])


@numba.njit(nogil=True, cache=True)
def extend_checksums_and_copy(
    crc: Checksums, data: Array, starts: Ids, sizes: Ids, out: Array, out_starts: Ids
) -> None:
    """The same, and copy those bytes to ``out[out_starts[i] : …]`` while they are in the processor's cache."""
    for i in range(len(starts)):
        begin, size, to = starts[i], sizes[i], out_starts[i]
        crc[i] = _extend(crc[i], data, begin, size)
        out[to : to + size] = data[begin : begin + size]

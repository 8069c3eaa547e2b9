"""Checksums of blocks: CRC-32 over a block's id and its bytes.

The id is part of it, so that a value under the wrong id does not pass. The kernels release the GIL and take many blocks
a call; zlib itself would cost a Python call a block.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Array, Ids
from scarml.storage.carryless import CAN_FOLD
from scarml.storage.crc32 import extend_by_folding, extend_by_table

__all__ = ["begin_checksums", "extend_checksums", "extend_checksums_and_copy", "finish_checksums"]

Checksums = NDArray[np.uint32]

_ALL_ONES = np.uint32(0xFFFFFFFF)
_extend = extend_by_folding if CAN_FOLD else extend_by_table


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
        source, target = data[begin : begin + size], out[to : to + size]
        for j in range(size):  # for short rows several times as fast as an assignment of slices
            target[j] = source[j]

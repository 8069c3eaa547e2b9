"""The loops of `encoding`: blocks of a flat array, each block by itself. They release the GIL.

Block ``i`` has the elements ``values[offsets[i] : offsets[i + 1]]``. A plain reference stands in the tests.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Array, Ids

__all__ = [
    "from_bfloat16",
    "from_fp8",
    "from_int8",
    "from_packed",
    "largest_of_blocks",
    "to_bfloat16",
    "to_fp8",
    "to_int8",
    "to_packed",
]


@numba.njit(nogil=True, cache=True)
def largest_of_blocks(bits: Array, offsets: Ids, without_sign: Any, out: Array) -> None:
    """The largest of each block's ``bits & without_sign``: of floats, the bits of the largest absolute value.

    So seen, NaNs are larger than infinities, and those larger than all else. Integers, because the compiler makes
    vector instructions of their maximum, and not of that of floats.
    """
    for i in range(len(out)):
        largest = without_sign ^ without_sign  # zero, of that dtype
        block = bits[offsets[i] : offsets[i + 1]]
        for j in range(len(block)):
            largest = max(largest, block[j] & without_sign)
        out[i] = largest


@numba.njit(nogil=True, cache=True)
def to_int8(values: Array, offsets: Ids, scales: Array, out: NDArray[np.int8]) -> None:
    """The nearest multiples of each block's scale, which has the dtype of the values; zeros where it is 0 or a NaN."""
    for i in range(len(scales)):
        scale = scales[i]
        block, stored = values[offsets[i] : offsets[i + 1]], out[offsets[i] : offsets[i + 1]]
        if scale > 0:
            for j in range(len(block)):  # by way of int32, for which there are vector instructions
                stored[j] = np.int8(np.int32(np.rint(block[j] / scale)))
        else:
            stored[:] = 0


@numba.njit(nogil=True, cache=True)
def from_int8(stored: NDArray[np.int8], offsets: Ids, scales: Array, out: Array) -> None:
    """Each value times the scale of its block, which has the dtype of ``out``; exact for scales from `encoding`."""
    for i in range(len(scales)):
        scale = scales[i]
        block, values = stored[offsets[i] : offsets[i + 1]], out[offsets[i] : offsets[i + 1]]
        for j in range(len(block)):
            values[j] = np.int32(block[j]) * scale


@numba.njit(nogil=True, cache=True)
def to_fp8(values: Array, offsets: Ids, scales: NDArray[np.float64], out: NDArray[np.uint8]) -> None:
    """Each value over the scale of its block, as the nearest E5M2 number (1 bit of sign, 5 of exponent, 2 of mantissa).

    Below 2^-14 they are multiples of 2^-16, and only zero becomes zero. A block with scale 0 or NaN becomes zeros.
    """
    for i in range(len(scales)):
        scale = scales[i]
        for j in range(offsets[i], offsets[i + 1]):
            value = np.float64(values[j])
            if value == 0 or not scale > 0:
                out[j] = 0
                continue
            scaled = max(abs(value) / scale, 2.0**-16)
            if scaled < 2.0**-14:
                code = int(np.rint(scaled * 65536))
            else:
                fraction, exponent = math.frexp(scaled)  # scaled = fraction * 2**exponent, 1/2 <= fraction < 1
                code = ((exponent + 14) << 2) + int(np.rint(fraction * 8)) - 4  # 8 of them carry into the exponent
            out[j] = code + (128 if value < 0 else 0)


@numba.njit(nogil=True, cache=True)
def from_fp8(stored: NDArray[np.uint8], offsets: Ids, scales: Array, meanings: Array, out: Array) -> None:
    """What each byte means, times the scale of its block; both have the dtype of ``out``."""
    for i in range(len(scales)):
        for j in range(offsets[i], offsets[i + 1]):
            out[j] = meanings[stored[j]] * scales[i]


@numba.njit(nogil=True, cache=True)
def to_bfloat16(bits: NDArray[np.uint32], out: NDArray[np.uint16]) -> None:
    """The upper halves of float32s, rounded to the nearest, ties to even. A NaN stays one."""
    for j in range(len(bits)):
        b = bits[j]
        is_nan = (b & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
        rounded = (b + np.uint32(0x7FFF) + ((b >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        out[j] = np.uint16((b >> np.uint32(16)) | np.uint32(0x40)) if is_nan else np.uint16(rounded)


@numba.njit(nogil=True, cache=True)
def from_bfloat16(stored: NDArray[np.uint16], bits: NDArray[np.uint32]) -> None:
    """The float32s with these upper halves."""
    for j in range(len(stored)):
        bits[j] = np.uint32(stored[j]) << np.uint32(16)


@numba.njit(nogil=True, cache=True)
def to_packed(values: NDArray[np.uint64], offsets: Ids, n_bits: int, starts: Ids, out: NDArray[np.uint8]) -> None:
    """The lowest ``n_bits`` of each value, the first value in the lowest bits; each block starts at a byte."""
    for i in range(len(starts)):
        at, shift, byte = starts[i], 0, np.uint64(0)
        for j in range(offsets[i], offsets[i + 1]):
            rest, left = values[j], n_bits
            while left > 0:
                taken = min(left, 8 - shift)
                byte |= (rest & ((np.uint64(1) << np.uint64(taken)) - np.uint64(1))) << np.uint64(shift)
                rest >>= np.uint64(taken)
                left -= taken
                shift += taken
                if shift == 8:
                    out[at] = np.uint8(byte)
                    at, shift, byte = at + 1, 0, np.uint64(0)
        if shift:
            out[at] = np.uint8(byte)


@numba.njit(nogil=True, cache=True)
def from_packed(stored: NDArray[np.uint8], starts: Ids, n_bits: int, offsets: Ids, out: NDArray[np.uint64]) -> None:
    """What `to_packed` was given."""
    for i in range(len(starts)):
        at, shift = starts[i], 0
        for j in range(offsets[i], offsets[i + 1]):
            value, got = np.uint64(0), 0
            while got < n_bits:
                taken = min(n_bits - got, 8 - shift)
                part = (np.uint64(stored[at]) >> np.uint64(shift)) & ((np.uint64(1) << np.uint64(taken)) - np.uint64(1))
                value |= part << np.uint64(got)
                got += taken
                shift += taken
                if shift == 8:
                    at, shift = at + 1, 0
            out[j] = value

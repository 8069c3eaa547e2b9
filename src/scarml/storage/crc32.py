"""CRC-32 (the polynomial of zlib, PNG and Ethernet) as numba kernels, which may be called for many short pieces.

Two ways to the same number. `extend_by_table` works everywhere: eight bytes a step (slicing-by-8). `extend_by_folding`
needs the carry-less multiplication of x86 processors and is four times as fast on blocks of 1 KB: it holds four times
128 bits, folds 64 bytes a step into them, and leaves the last 16 to the table (Gopal et al., "Fast CRC Computation for
Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Array
from scarml.storage.carryless import fold

__all__ = ["extend_by_folding", "extend_by_table"]

_POLYNOMIAL = 0xEDB88320  # reflected


def _make_tables() -> NDArray[np.uint32]:
    """``tables[k, b]``: what the byte ``b`` does to the checksum after ``k`` further bytes."""
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
_U = np.uint64
_BYTE = np.uint64(0xFF)
_WHOLE_WORDS = np.uint64(0xFFFF_FFFF_FFFF_FFF8)


# Indices are unsigned: with signed ones numba tests each for being negative, and the eight loads do not become one.
@numba.njit(nogil=True, cache=True, inline="always")
def _load(data: Array, p: Any) -> Any:
    return (
        _U(data[p])
        | (_U(data[p + _U(1)]) << _U(8))
        | (_U(data[p + _U(2)]) << _U(16))
        | (_U(data[p + _U(3)]) << _U(24))
        | (_U(data[p + _U(4)]) << _U(32))
        | (_U(data[p + _U(5)]) << _U(40))
        | (_U(data[p + _U(6)]) << _U(48))
        | (_U(data[p + _U(7)]) << _U(56))
    )


@numba.njit(nogil=True, cache=True, inline="always")
def _step(word: Any) -> Any:
    """The checksum after eight bytes, given those xor the checksum before."""
    return (
        _T7[word & _BYTE]
        ^ _T6[(word >> _U(8)) & _BYTE]
        ^ _T5[(word >> _U(16)) & _BYTE]
        ^ _T4[(word >> _U(24)) & _BYTE]
        ^ _T3[(word >> _U(32)) & _BYTE]
        ^ _T2[(word >> _U(40)) & _BYTE]
        ^ _T1[(word >> _U(48)) & _BYTE]
        ^ _T0[word >> _U(56)]
    )


@numba.njit(nogil=True, cache=True)
def extend_by_table(crc: Any, data: Array, start: Any, size: Any) -> Any:
    """The running checksum ``crc`` (uint32) after the bytes ``data[start : start + size]``."""
    p = _U(start)
    end = p + _U(size)
    end_of_words = p + (_U(size) & _WHOLE_WORDS)
    while p < end_of_words:
        crc = _step(_load(data, p) ^ _U(crc))
        p += _U(8)
    while p < end:
        crc = _T0[(crc ^ data[p]) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        p += _U(1)
    return crc


# x^(512 ± 32) and x^(128 ± 32) modulo the polynomial, reflected.
_BY_64 = (np.uint64(0x1_5444_2BD4), np.uint64(0x1_C6E4_1596))
_BY_16 = (np.uint64(0x1_7519_97D0), np.uint64(0x0_CCAA_009E))


@numba.njit(nogil=True, cache=True)
def extend_by_folding(crc: Any, data: Array, start: int, size: int) -> Any:
    """The same as `extend_by_table`, on processors where `carryless.CAN_FOLD`."""
    if size < 64:
        return extend_by_table(crc, data, start, size)
    p = _U(start)
    end = p + _U(size)
    a, b = _load(data, p) ^ _U(crc), _load(data, p + _U(8))
    c, d = _load(data, p + _U(16)), _load(data, p + _U(24))
    e, f = _load(data, p + _U(32)), _load(data, p + _U(40))
    g, h = _load(data, p + _U(48)), _load(data, p + _U(56))
    p += _U(64)
    while p + _U(64) <= end:
        a, b = fold(a, b, _BY_64, _load(data, p), _load(data, p + _U(8)))
        c, d = fold(c, d, _BY_64, _load(data, p + _U(16)), _load(data, p + _U(24)))
        e, f = fold(e, f, _BY_64, _load(data, p + _U(32)), _load(data, p + _U(40)))
        g, h = fold(g, h, _BY_64, _load(data, p + _U(48)), _load(data, p + _U(56)))
        p += _U(64)
    a, b = fold(a, b, _BY_16, c, d)
    a, b = fold(a, b, _BY_16, e, f)
    a, b = fold(a, b, _BY_16, g, h)
    while p + _U(16) <= end:
        a, b = fold(a, b, _BY_16, _load(data, p), _load(data, p + _U(8)))
        p += _U(16)
    crc = _step(b ^ _U(_step(a)))
    return extend_by_table(crc, data, np.int64(p), np.int64(end - p))

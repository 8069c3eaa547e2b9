"""The encodings one by one: what each stores of a block, and what comes back. `encoding` names and explains them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.encoding_kernels import (
    from_bfloat16,
    from_fp8,
    from_int8,
    from_packed,
    largest_of_blocks,
    to_bfloat16,
    to_fp8,
    to_int8,
    to_packed,
)
from scarml.core.block import Array, Field, Ids
from scarml.errors import ModelError

__all__ = ["ENCODINGS", "PACKED", "Encoded", "Encoding"]

_N = TypeVar("_N", int, Ids)
_SIGNIFICANT = np.uint32(0xFFFFFF80)
_SMALLEST_NORMAL = np.finfo(np.float32).smallest_normal
_BIAS, _NAN_SCALE = 127, 255
_LEAST_EXPONENT, _LARGEST_EXPONENT = -126, 121
"""Of scales that are powers of two: products with −127 … 127 are float32s, and none is subnormal."""
_POWERS = np.ldexp(1.0, np.arange(_NAN_SCALE + 1) - _BIAS)
_POWERS[[0, _NAN_SCALE]] = 0, np.nan
_FP8_EXPONENT, _FLOAT32_EXPONENT = 15, 127
"""Of the largest E5M2 numbers, and of the largest float32s."""
_E5M2 = (np.arange(256, dtype=np.uint16) << 8).view(np.float16).astype(np.float64)
_E5M2[~np.isfinite(_E5M2)] = np.nan  # are never stored
"""What the bytes mean: the upper halves of float16s."""


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Some blocks as they are stored: flat, in the order of the blocks; ``scales`` has one a block, or is None."""

    values: Array
    scales: Array | None = None


class Encoding(ABC):
    """One way of storing a field. ``counts`` are always the elements of each block, shape (n,); arrays are flat."""

    name: str
    is_lossy = True
    scale_dtype: str | None = None
    """NumPy's name of what the scale of a block is stored as; None: there is none."""
    keeps_elements = True
    """Whether an element of the field is an element of what is stored; else bytes are."""

    @abstractmethod
    def problem_with(self, field: Field) -> str | None:
        """Why a field cannot be stored this way, as the end of a sentence; None if it can."""

    def problem_with_values(self, values: Array) -> str | None:
        """Why values of such a field cannot be stored this way, in a sentence; None if they can. Rounding is none."""
        return None

    @abstractmethod
    def stored_dtype(self, dtype: str) -> str:
        """NumPy's name of what the elements of such a field are stored as."""

    def value_bytes(self, counts: _N, dtype: str) -> _N:
        """Stored bytes of each block, or of one, without its scale."""
        return counts * np.dtype(self.stored_dtype(dtype)).itemsize

    def size_bytes(self, counts: Ids, dtype: str) -> Ids:
        """Stored bytes of each block, its scale included."""
        return self.value_bytes(counts, dtype) + self.scale_bytes

    @property
    def scale_bytes(self) -> int:
        """Stored bytes of the scale of one block."""
        return np.dtype(self.scale_dtype).itemsize if self.scale_dtype else 0

    @abstractmethod
    def encode(self, values: Array, counts: Ids) -> Encoded:
        """Blocks as they are stored. ModelError if a value is none that can be stored this way."""

    @abstractmethod
    def decode(self, encoded: Encoded, counts: Ids, dtype: str) -> Array:
        """The values that were stored, rounded."""

    def rounded(self, values: Array, counts: Ids) -> Array:
        """What would be restored."""
        return self.decode(self.encode(values, counts), counts, values.dtype.name) if self.is_lossy else values


class _Plain(Encoding):
    name = "plain"
    is_lossy = False

    def problem_with(self, field: Field) -> str | None:
        return None

    def stored_dtype(self, dtype: str) -> str:
        return dtype

    def encode(self, values: Array, counts: Ids) -> Encoded:
        return Encoded(values)

    def decode(self, encoded: Encoded, counts: Ids, dtype: str) -> Array:
        return encoded.values


class _Float32(Encoding):
    name = "float32"

    def problem_with(self, field: Field) -> str | None:
        return None if np.dtype(field.dtype) == np.float64 else "it is for float64"

    def stored_dtype(self, dtype: str) -> str:
        return "float32"

    def encode(self, values: Array, counts: Ids) -> Encoded:
        with np.errstate(over="ignore"):
            return Encoded(values.astype(np.float32))

    def decode(self, encoded: Encoded, counts: Ids, dtype: str) -> Array:
        return encoded.values.astype(dtype)


class _Bfloat16(Encoding):
    name = "bfloat16"

    def problem_with(self, field: Field) -> str | None:
        return _unless_float(field)

    def stored_dtype(self, dtype: str) -> str:
        return "uint16"

    def encode(self, values: Array, counts: Ids) -> Encoded:
        stored = np.empty(len(values), np.uint16)
        with np.errstate(over="ignore"):
            to_bfloat16(values.astype(np.float32, copy=False).view(np.uint32), stored)
        return Encoded(stored)

    def decode(self, encoded: Encoded, counts: Ids, dtype: str) -> Array:
        bits = np.empty(len(encoded.values), np.uint32)
        from_bfloat16(encoded.values, bits)
        return bits.view(np.float32).astype(dtype, copy=False)


class _Int8(Encoding):
    name = "int8"
    scale_dtype = "float32"

    def problem_with(self, field: Field) -> str | None:
        if field.name == "value":
            return _unless_float(field)
        return _unless_float(field) or (
            "it is only for 'value': on a linear scale the small entries of an optimizer's moments become zero, "
            "and steps are divided by them. Take mxfp8 or bfloat16"
        )

    def stored_dtype(self, dtype: str) -> str:
        return "int8"

    def encode(self, values: Array, counts: Ids) -> Encoded:
        """A block that is not finite gets the scale NaN, and is restored as NaNs."""
        offsets = _offsets(counts)
        scales = self.scales_for(_largest(values, offsets) / 127)
        stored = np.empty(len(values), np.int8)
        to_int8(values, offsets, self.multipliers(scales, values.dtype.name), stored)
        return Encoded(stored, scales)

    def decode(self, encoded: Encoded, counts: Ids, dtype: str) -> Array:
        assert encoded.scales is not None
        out = np.empty(len(encoded.values), dtype)
        from_int8(encoded.values, _offsets(counts), self.multipliers(encoded.scales, dtype), out)
        return out

    def scales_for(self, wanted: NDArray[np.float64]) -> Array:
        """As they are stored: the best multipliers, 1/127 of the largest absolute values, rounded."""
        with np.errstate(over="ignore"):
            scales = wanted.astype(np.float32)
        scales = (scales.view(np.uint32) & _SIGNIFICANT).view(np.float32)
        scales[scales < _SMALLEST_NORMAL] = 0  # subnormal ones would not be exact
        scales[~np.isfinite(scales)] = np.nan
        return scales

    def multipliers(self, scales: Array, dtype: str) -> Array:
        """What stored numbers are multiplied with."""
        return scales.astype(dtype)


class _MxInt8(_Int8):
    """A scale is a power of two, at least the best multiplier: its exponent, biased by 127; 0 for none, 255 for NaN."""

    name = "mxint8"
    scale_dtype = "uint8"

    def scales_for(self, wanted: NDArray[np.float64]) -> Array:
        fraction, exponent = np.frexp(wanted)  # wanted = fraction · 2^exponent, 1/2 <= fraction < 1
        exponent = np.maximum(exponent - (fraction == 0.5), _LEAST_EXPONENT)
        scales = np.where(wanted > 0, exponent + _BIAS, 0)
        beyond = ~np.isfinite(wanted) | (exponent > _LARGEST_EXPONENT)
        return np.where(beyond, _NAN_SCALE, scales).astype(np.uint8)

    def multipliers(self, scales: Array, dtype: str) -> Array:
        return _POWERS[scales].astype(dtype)


class _MxFp8(Encoding):
    """A scale brings the largest absolute value of a block, rounded, to 2^15 or a little more; stored as in mxint8."""

    name = "mxfp8"
    scale_dtype = "uint8"

    def problem_with(self, field: Field) -> str | None:
        return _unless_float(field)

    def stored_dtype(self, dtype: str) -> str:
        return "uint8"

    def encode(self, values: Array, counts: Ids) -> Encoded:
        """A block that is not finite gets the scale NaN, and is restored as NaNs."""
        largest = _largest(values, _offsets(counts))
        fraction, exponent = np.frexp(largest)  # largest = fraction · 2^exponent, 1/2 <= fraction < 1
        exponent = exponent + (np.rint(fraction * 8) == 8) - 1  # of the largest, rounded to two bits of mantissa
        beyond = ~np.isfinite(largest) | (exponent > _FLOAT32_EXPONENT)
        scales = np.where(largest > 0, np.maximum(exponent - _FP8_EXPONENT, _LEAST_EXPONENT) + _BIAS, 0)
        scales = np.where(beyond, _NAN_SCALE, scales).astype(np.uint8)
        stored = np.empty(len(values), np.uint8)
        to_fp8(values, _offsets(counts), _POWERS[scales], stored)
        return Encoded(stored, scales)

    def decode(self, encoded: Encoded, counts: Ids, dtype: str) -> Array:
        assert encoded.scales is not None
        out = np.empty(len(encoded.values), dtype)
        from_fp8(encoded.values, _offsets(counts), _POWERS[encoded.scales].astype(dtype), _E5M2.astype(dtype), out)
        return out


class _Packed(Encoding):
    is_lossy = False
    keeps_elements = False

    def __init__(self, n_bits: int) -> None:
        self.name = f"packed-{n_bits}"
        self._n_bits = n_bits

    def problem_with(self, field: Field) -> str | None:
        dtype = np.dtype(field.dtype)
        if dtype.kind not in "iu":
            return "it is for integers"
        n_usable = 8 * dtype.itemsize - (dtype.kind == "i")
        return None if self._n_bits <= n_usable else f"{field.dtype} has only {n_usable} bits for a value"

    def stored_dtype(self, dtype: str) -> str:
        return "uint8"

    def value_bytes(self, counts: _N, dtype: str) -> _N:
        return (counts * self._n_bits + 7) // 8

    def problem_with_values(self, values: Array) -> str | None:
        if len(values) == 0 or 0 <= int(values.min()) <= int(values.max()) < 1 << self._n_bits:
            return None
        return (
            f"values from {values.min()} to {values.max()} cannot be stored as {self.name}; expected 0 to "
            f"{(1 << self._n_bits) - 1}"
        )

    def encode(self, values: Array, counts: Ids) -> Encoded:
        if problem := self.problem_with_values(values):
            raise ModelError(problem)
        starts = _offsets(self.value_bytes(counts, "uint8"))
        stored = np.zeros(int(starts[-1]), np.uint8)
        to_packed(values.astype(np.uint64), _offsets(counts), self._n_bits, starts[:-1], stored)
        return Encoded(stored)

    def decode(self, encoded: Encoded, counts: Ids, dtype: str) -> Array:
        offsets = _offsets(counts)
        out = np.empty(int(offsets[-1]), np.uint64)
        starts = _offsets(self.value_bytes(counts, dtype))[:-1]
        from_packed(encoded.values, starts, self._n_bits, offsets, out)
        return out.astype(dtype)


PACKED = {f"packed-{n_bits}": _Packed(n_bits) for n_bits in range(1, 64)}
ENCODINGS: dict[str, Encoding] = {
    **{e.name: e for e in (_Plain(), _Float32(), _Bfloat16(), _Int8(), _MxInt8(), _MxFp8())},
    **PACKED,
}
"""All there are, by name."""


def _unless_float(field: Field) -> str | None:
    return None if np.dtype(field.dtype).name in ("float32", "float64") else "it is for float32 and float64"


def _largest(values: Array, offsets: Ids) -> NDArray[np.float64]:
    """The largest absolute value of each block; NaN where one is."""
    bits = values.view(f"u{values.itemsize}")
    largest = np.zeros(len(offsets) - 1, bits.dtype)
    largest_of_blocks(bits, offsets, bits.dtype.type(np.iinfo(f"i{values.itemsize}").max), largest)
    return largest.view(values.dtype).astype(np.float64)


def _offsets(counts: Ids) -> Ids:
    """Where each block starts, and where the last one ends, shape (n + 1,)."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets

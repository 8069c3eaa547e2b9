"""Distances between two values of the same blocks: what priority checkpoints rank by.

The kernels make one pass, allocate nothing but the result, and release the GIL.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Array, Blocks

__all__ = ["l2_distance", "l2_distance_reference"]


def l2_distance(a: Blocks, b: Blocks) -> NDArray[np.float64]:
    """Euclidean distance of each block's ``value`` from the same block in ``b``, shape (n,), in float64.

    Raises nothing for NaN or infinities: the distance is then NaN or infinite.
    """
    out = np.empty(len(a), np.float64)
    x, y = a.value, b.value
    field = next(f for f in a.table.fields if f.name == "value")
    if field.ragged:
        _l2_ragged(x, y, a.lengths, out)
    else:
        _l2_dense(x.reshape(len(a), field.n_per_block), y.reshape(len(a), field.n_per_block), out)
    return out


def l2_distance_reference(a: Blocks, b: Blocks) -> NDArray[np.float64]:
    """The same as `l2_distance`, block by block in plain NumPy."""
    ids = a.ids[:, None]
    pairs = ((a.take(i).value, b.take(i).value) for i in ids)
    return np.array([np.linalg.norm(np.subtract(x, y, dtype=np.float64)) for x, y in pairs])


# Four accumulators: enough for the compiler to use vector adds without being allowed to reorder sums.
@numba.njit(nogil=True, cache=True, inline="always")
def _squared_distance(x: Array, y: Array) -> float:
    s0 = s1 = s2 = s3 = 0.0
    n = x.shape[0]
    whole = n - n % 4
    for j in range(0, whole, 4):
        d0 = np.float64(x[j]) - np.float64(y[j])
        d1 = np.float64(x[j + 1]) - np.float64(y[j + 1])
        d2 = np.float64(x[j + 2]) - np.float64(y[j + 2])
        d3 = np.float64(x[j + 3]) - np.float64(y[j + 3])
        s0 += d0 * d0
        s1 += d1 * d1
        s2 += d2 * d2
        s3 += d3 * d3
    for j in range(whole, n):
        d0 = np.float64(x[j]) - np.float64(y[j])
        s0 += d0 * d0
    return (s0 + s1) + (s2 + s3)


@numba.njit(nogil=True, cache=True)
def _l2_dense(x: Array, y: Array, out: Array) -> None:
    for i in range(x.shape[0]):
        out[i] = np.sqrt(_squared_distance(x[i], y[i]))


@numba.njit(nogil=True, cache=True)
def _l2_ragged(x: Array, y: Array, lengths: Array, out: Array) -> None:
    start = 0
    for i in range(lengths.shape[0]):
        end = start + lengths[i]
        out[i] = np.sqrt(_squared_distance(x[start:end], y[start:end]))
        start = end

"""Distances between two values of the same blocks: what priority checkpoints rank by.

The kernels make one pass, allocate nothing but the result, and release the GIL.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Array, Blocks
from scarml.core.lanes import squared_differences

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
        _l2_flat(x.reshape(-1), y.reshape(-1), field.n_per_block, out)
    return out


def l2_distance_reference(a: Blocks, b: Blocks) -> NDArray[np.float64]:
    """The same as `l2_distance`, block by block in plain NumPy."""
    ids = a.ids[:, None]
    pairs = ((a.take(i).value, b.take(i).value) for i in ids)
    return np.array([np.linalg.norm(np.subtract(x, y, dtype=np.float64)) for x, y in pairs])


# Four sums, one for each remainder of the index: a fixed order of additions, and work for vector units. The compiler
# does not see that by itself in four scalars, so `squared_differences` says it in vectors: twice as fast.
@numba.njit(nogil=True, cache=True, inline="always")
def _squared_distance(x: Array, y: Array, start: int, n: int) -> Any:
    whole = n - n % 4
    s0, s1, s2, s3 = squared_differences(x, y, start, start + whole)
    for j in range(start + whole, start + n):
        d = np.float64(x[j]) - np.float64(y[j])
        s0 += d * d
    return (s0 + s1) + (s2 + s3)


@numba.njit(nogil=True, cache=True)
def _l2_flat(x: Array, y: Array, n_per_block: int, out: Array) -> None:
    for i in range(out.shape[0]):
        out[i] = np.sqrt(_squared_distance(x, y, i * n_per_block, n_per_block))


@numba.njit(nogil=True, cache=True)
def _l2_ragged(x: Array, y: Array, lengths: Array, out: Array) -> None:
    start = 0
    for i in range(lengths.shape[0]):
        out[i] = np.sqrt(_squared_distance(x, y, start, lengths[i]))
        start += lengths[i]

"""The norm of the library's tables: Euclidean over ``value``, for every dtype that can be stored."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Blocks, Field, Table
from scarml.core.norm import l2_distance

__all__ = ["distance"]

_BLOCKS_AT_ONCE = 4096


def distance(a: Blocks, b: Blocks) -> NDArray[np.float64]:
    """Euclidean distance of each block's ``value`` from the same block in ``b``, shape (n,), in float64."""
    if a.value.dtype != np.float16:
        return l2_distance(a, b)
    out = np.empty(len(a))
    for first in range(0, len(a), _BLOCKS_AT_ONCE):  # the kernels have no half precision
        end = min(first + _BLOCKS_AT_ONCE, len(a))
        out[first:end] = l2_distance(_widened(a.span(first, end)), _widened(b.span(first, end)))
    return out


def _widened(blocks: Blocks) -> Blocks:
    value = next(f for f in blocks.table.fields if f.name == "value")
    lengths = blocks.lengths if value.ragged else None
    table = Table(
        blocks.table.name, len(blocks), (Field("value", "float32", value.shape, value.ragged),), lengths=lengths
    )
    return Blocks(table, table.all_ids, {"value": blocks.value.astype(np.float32)})

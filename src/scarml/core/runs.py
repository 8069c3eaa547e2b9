"""Copying many runs of elements from one flat array to another: what moving ragged blocks comes down to."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["copy_runs", "copy_runs_reference"]

Array = NDArray[Any]
Ids = NDArray[np.int64]


def copy_runs(source: Array, starts: Ids, lengths: Ids, target: Array, target_starts: Ids) -> None:
    """Copy ``source[starts[i] : starts[i] + lengths[i]]`` to ``target[target_starts[i] : …]`` for every i.

    An index of every element, as NumPy wants it, takes ten times as long to make as the elements take to copy. Both
    arrays are flat, contiguous and of one dtype, and every run lies within them; that is not checked.
    """
    if source.dtype.itemsize > 8:  # long doubles: there are no integers of their size
        copy_runs_reference(source, starts, lengths, target, target_starts)
        return
    _copy_runs(_as_integers(source, writeable=False), starts, lengths, _as_integers(target), target_starts)


def copy_runs_reference(source: Array, starts: Ids, lengths: Ids, target: Array, target_starts: Ids) -> None:
    """The same as `copy_runs`, run by run."""
    for start, n, to in zip(starts.tolist(), lengths.tolist(), target_starts.tolist(), strict=True):
        target[to : to + n] = source[start : start + n]


def _as_integers(a: Array, writeable: bool = True) -> Array:
    """A view: the kernel is compiled once for a size of elements, not for every dtype and every read-only source."""
    view: NDArray[np.unsignedinteger] = a.view(f"u{a.dtype.itemsize}")
    view.flags.writeable = writeable
    return view


@numba.njit(nogil=True, cache=True)
def _copy_runs(source: Array, starts: Ids, lengths: Ids, target: Array, target_starts: Ids) -> None:
    for i in range(len(starts)):
        begin, n, to = starts[i], lengths[i], target_starts[i]
        a, b = source[begin : begin + n], target[to : to + n]
        for j in range(n):
            b[j] = a[j]

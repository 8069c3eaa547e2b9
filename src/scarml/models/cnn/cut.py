"""How the parameters of a module become blocks: whole tensors, or slices along the first axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from scarml.core.block import Ids
from scarml.errors import UsageError

__all__ = ["Cut", "CutBy", "cut_parameters"]

CutBy = Literal["by-layer", "by-shard", "slices-by-layer"]


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The blocks, in the order of the parameters, so that all blocks one after the other are all parameters, flat.

    Args:
        lengths: elements of each block.
        parameter: the position of the parameter that each block is of, or is a slice of.
        groups: blocks of one group are placed, and lost, together.
    """

    lengths: Ids
    parameter: Ids
    groups: Ids


def cut_parameters(shapes: Sequence[tuple[int, ...]], by: CutBy, slices: int) -> Cut:
    """Cut parameters of these shapes.

    Args:
        shapes: of each parameter, in order.
        by: ``by-layer``: block = group = one parameter, weight and bias apart. ``by-shard``: a parameter becomes
            ``slices`` blocks along its first axis, as even as can be, or as many as it has rows; each is lost by
            itself. ``slices-by-layer``: the same blocks, and those of one parameter are lost together.
        slices: of one parameter, at least 1.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> cut_parameters([(5, 3), (5,)], "by-shard", slices=2).lengths.tolist()
        [9, 6, 3, 2]
    """
    if by not in get_args(CutBy):
        raise UsageError(f"blocks {by!r} are unknown; choose {', '.join(get_args(CutBy))}")
    if slices < 1:
        raise UsageError(f"slices is {slices}; expected at least 1")
    lengths, parameter = [], []
    for p, shape in enumerate(shapes):
        n_rows = shape[0] if shape else 1
        n_blocks = 1 if by == "by-layer" else min(slices, max(n_rows, 1))
        rows = [len(r) for r in np.array_split(np.arange(n_rows), n_blocks)]
        lengths += [r * int(np.prod(shape[1:], dtype=np.int64)) for r in rows]
        parameter += [p] * n_blocks
    of = np.array(parameter, np.int64)
    return Cut(np.array(lengths, np.int64), of, np.arange(len(of)) if by == "by-shard" else of)

"""Perturbations: the difference that a recovery makes to the state, δ = restored − lost (section 2 of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Blocks

__all__ = ["perturbation_norm"]


def perturbation_norm(
    pairs: Iterable[tuple[Blocks, Blocks]], distance: Callable[[Blocks, Blocks], NDArray[np.float64]]
) -> float:
    """‖δ‖ over several tables: the root of the summed squared block distances.

    Args:
        pairs: per table (restored, lost) blocks with the same ids.
        distance: the model's norm of a block.

    Example:
        >>> from scarml.core.block import Field, Table
        >>> from scarml.core.norm import l2_distance
        >>> table = Table("x", 2, (Field("value", "float64", (2,)),))
        >>> a, b = table.empty(table.all_ids), table.empty(table.all_ids)
        >>> b.value[0] = (3, 4)
        >>> perturbation_norm([(a, b)], l2_distance)
        5.0
    """
    return float(np.sqrt(sum(float(np.square(distance(restored, lost)).sum()) for restored, lost in pairs)))

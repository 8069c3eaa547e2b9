"""Splitting a data set into a part to train on and one to judge by."""

from __future__ import annotations

import numpy as np

from scarml.core.block import Ids
from scarml.core.rng import stream
from scarml.errors import UsageError

__all__ = ["hold_out"]


def hold_out(n: int, fraction: float, seed: int = 0) -> tuple[Ids, Ids]:
    """Choose a part at random, the same one for the same arguments.

    Args:
        n: examples, ratings or documents.
        fraction: of them to hold out, rounded to the nearest whole number.
        seed: of the choice.

    Returns:
        Which to train on and which to hold out, each ascending, for ``data.take``.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> train, held_out = hold_out(10, 0.2)
        >>> len(train), len(held_out)
        (8, 2)
    """
    if n < 0 or not 0 <= fraction <= 1:
        raise UsageError(f"n is {n} and fraction {fraction}; expected at least 0, and 0 to 1")
    # Sorting raw bits, since how NumPy's own permutations are drawn may change.
    order = np.argsort(stream(seed, "held out").bit_generator.random_raw(n), kind="stable")
    n_held_out = round(fraction * n)
    return np.sort(order[n_held_out:]), np.sort(order[:n_held_out])

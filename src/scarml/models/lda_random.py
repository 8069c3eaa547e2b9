"""The random numbers of LDA's samplers: a function of a key and a number, so that no state is kept.

Source: S. Vigna's splitmix64, after G. Steele, D. Lea, C. Flood, Fast splittable pseudorandom number generators, 2014.
"""

from __future__ import annotations

import numba
import numpy as np

__all__ = ["uniform"]


@numba.njit(nogil=True, cache=True, inline="always")
def uniform(key: np.uint64, i: int) -> float:
    """A number in [0, 1), with 53 random bits: the i-th of this key."""
    z = key + np.uint64(i) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) * 2.0**-53

"""Adam and AdamW at the server, for blocks of different lengths.

Sources: D. Kingma, J. Ba, Adam: A Method for Stochastic Optimization, ICLR 2015, algorithm 1; I. Loshchilov,
F. Hutter, Decoupled Weight Decay Regularization, ICLR 2019, algorithm 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Array, Ids
from scarml.errors import UsageError

__all__ = ["Adam", "adam_step", "adam_step_reference"]


@dataclass(frozen=True, slots=True)
class Adam:
    """Settings of Adam; with a weight decay, of AdamW. The defaults are the paper's.

    Args:
        learning_rate: α, above 0.
        beta_1: decay of the mean of gradients, at least 0 and below 1.
        beta_2: decay of the mean of squared gradients, likewise.
        epsilon: keeps the step finite, above 0.
        weight_decay: λ, at least 0: each step also takes α λ of the weight itself away (AdamW).

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> Adam(learning_rate=3e-4, weight_decay=0.01).beta_2
        0.999
    """

    learning_rate: float = 1e-3
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("learning_rate", self.learning_rate), ("epsilon", self.epsilon)):
            if not 0 < value < math.inf:
                raise UsageError(f"{name} is {value}; expected a finite number above 0")
        for name, value in (("beta_1", self.beta_1), ("beta_2", self.beta_2)):
            if not 0 <= value < 1:
                raise UsageError(f"{name} is {value}; expected at least 0 and below 1")
        if not 0 <= self.weight_decay < math.inf:
            raise UsageError(f"weight_decay is {self.weight_decay}; expected a number of at least 0")

    @property
    def row(self) -> tuple[float, ...]:
        """The settings in the order in which `adam_step` takes them."""
        return self.learning_rate, self.beta_1, self.beta_2, self.epsilon, self.weight_decay


@numba.njit(nogil=True, cache=True)
def adam_step(
    value: Array, m: Array, v: Array, step: Array, gradient: Array, lengths: Ids, settings: NDArray[np.float64]
) -> None:
    """One step of AdamW for each block, in place: ``value``, ``m``, ``v`` (flat, float32) and ``step`` (one a block).

    ``settings`` has a row for each block, as `Adam.row`; a block whose learning rate is 0 is frozen. Computed in
    float64 element by element, so that a block's outcome does not depend on the blocks that it is computed with.
    """
    start = 0
    for b in range(lengths.shape[0]):
        end = start + lengths[b]
        rate, beta_1, beta_2, epsilon, decay = settings[b]
        if rate > 0:
            step[b] += 1
            bias_1 = 1.0 - beta_1 ** step[b]
            bias_2 = 1.0 - beta_2 ** step[b]
            for i in range(start, end):
                g = np.float64(gradient[i])
                m[i] = beta_1 * m[i] + (1.0 - beta_1) * g
                v[i] = beta_2 * v[i] + (1.0 - beta_2) * g * g
                move = rate / bias_1 * m[i] / (np.sqrt(v[i] / bias_2) + epsilon)
                value[i] = value[i] * (1.0 - rate * decay) - move
        start = end


def adam_step_reference(
    value: Array, m: Array, v: Array, step: Array, gradient: Array, lengths: Ids, settings: NDArray[np.float64]
) -> None:
    """The same as `adam_step` in plain NumPy."""
    step += settings[:, 0] > 0
    with np.errstate(divide="ignore", invalid="ignore"):  # of frozen blocks that have made no step
        bias_1, bias_2 = 1.0 - settings[:, 1] ** step, 1.0 - settings[:, 2] ** step
        rows = np.column_stack([settings, bias_1, bias_2]).repeat(lengths, axis=0)
    rate, beta_1, beta_2, epsilon, decay, bias_1, bias_2 = rows.T
    on = rate > 0
    m[on] = (beta_1 * m + (1.0 - beta_1) * gradient)[on]
    v[on] = (beta_2 * v + (1.0 - beta_2) * gradient.astype(np.float64) ** 2)[on]
    with np.errstate(divide="ignore", invalid="ignore"):
        move = rate / bias_1 * m / (np.sqrt(v / bias_2) + epsilon)
    value[on] = (value * (1.0 - rate * decay) - move)[on]

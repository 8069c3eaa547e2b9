"""QP: gradient descent on a quadratic in four dimensions, whose rate of convergence is known exactly.

Source: section 3, figure 3 of the paper (there: "a simple 4-D quadratic program").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from scarml.core.block import Array, Blocks, Field, Ids, Table
from scarml.core.model import ALL, Computed, Context, Model, Reads, Shard, Update
from scarml.core.rng import stream
from scarml.errors import ModelError, UsageError
from scarml.models.defaults import Defaults
from scarml.theory.gradient_descent import gradient_descent_rate

__all__ = ["QP"]

_HADAMARD = 0.5 * np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], np.float64)
"""An orthogonal and symmetric matrix: it couples all four parameters."""


@dataclass(frozen=True, slots=True)
class QP(Model):
    """Minimise f(x) = ½ (x − x*)ᵀ A (x − x*) over x in R⁴ by gradient descent.

    A has the eigenvalues 1 … ``condition``, evenly spaced on a log scale, in directions that mix all parameters;
    x* = (1, 1, 1, 1), so that a parameter reset to zero is no better than another. The step size is the best constant
    one, 2 / (1 + ``condition``), with which ‖x(k+1) − x*‖ ≤ c ‖x(k) − x*‖ holds with equality in the worst direction,
    c = (``condition`` − 1) / (``condition`` + 1).

    There is one table, ``x``, of four blocks with one float64 each. The start is at distance ``start_distance`` from
    x*, as far in each eigendirection as in the others, with signs drawn from the seed: so every seed converges alike.
    One shard does the work, all others are empty; there is no data. The loss is
    f(x), whose minimum is 0.

    Args:
        condition: condition number of A, at least 1.
        start_distance: ‖x(0) − x*‖, above 0.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> round(QP(condition=20.0).rate, 4)
        0.9048
    """

    condition: float = 20.0
    start_distance: float = 10.0

    name: ClassVar[str] = "qp"
    defaults: ClassVar[Mapping[str | None, Defaults]] = {None: Defaults(stop_loss_sum=0.0017737, baseline_iters=60)}

    def __post_init__(self) -> None:
        if not 1 <= self.condition < np.inf:
            raise UsageError(f"condition is {self.condition}; expected a number of at least 1")
        if not 0 < self.start_distance < np.inf:
            raise UsageError(f"start_distance is {self.start_distance}; expected a finite number above 0")

    @property
    def rate(self) -> float:
        """The linear rate c of the unperturbed sequence."""
        return float(gradient_descent_rate(1.0, self.condition))

    @property
    def step_size(self) -> float:
        """The best constant step size."""
        return 2 / (1 + self.condition)

    @property
    def optimum(self) -> Array:
        """x*, shape (4,)."""
        return np.ones(4)

    @property
    def hessian(self) -> Array:
        """A, shape (4, 4)."""
        eigenvalues = self.condition ** (np.arange(4) / 3)
        hessian: Array = _HADAMARD @ (eigenvalues[:, None] * _HADAMARD)
        return hessian

    def tables(self, data: None) -> Sequence[Table]:
        """The table ``x``."""
        if data is not None:
            raise ModelError(f"QP takes no data; expected None, got {type(data).__name__}")
        return [Table("x", 4, (Field("value", "float64"),))]

    def shards(self, data: None, n_shards: int) -> Sequence[Shard]:
        """Shard 0 is the whole problem, the others are empty."""
        return [Shard(index=s, data=s == 0, n_examples=int(s == 0)) for s in range(n_shards)]

    def init(self, table: Table, ids: Ids, seed: int) -> Mapping[str, Array]:
        """A point at `start_distance` from x*, with the signs of its four components by chance."""
        signs = stream(seed, "block", table.name).choice([-1.0, 1.0], 4)
        start = self.optimum + self.start_distance / 2 * (_HADAMARD * signs).sum(axis=1)
        return {"value": start[ids]}

    def reads(self, ctx: Context, shard: Shard) -> Reads:
        """All of x for the shard that works."""
        return {"x": ALL} if shard.data else {}

    def compute(self, ctx: Context, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> Computed:
        """One step down the gradient A (x − x*)."""
        if not shard.data:
            return Computed()
        return Computed([Update("x", ALL, -self.step_size * self._gradient(reads["x"].value))])

    def loss(self, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> float:
        """f(x): how far the objective is above its minimum."""
        if not shard.data:
            return 0.0
        x: Any = reads["x"].value
        return float(0.5 * (x - self.optimum) @ self._gradient(x))

    def _gradient(self, x: Array) -> Array:
        # Not by BLAS: sums over four numbers in a fixed order are the same everywhere.
        gradient: Array = (self.hessian * (x - self.optimum)).sum(axis=1)
        return gradient

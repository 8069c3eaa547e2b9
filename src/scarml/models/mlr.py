"""MLR: multinomial logistic regression by stochastic gradient descent.

Source: section 5.1 and appendix C of the paper; `learning_rate` as in scikit-learn's and torch's optimisers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numba
import numpy as np

from scarml.core.block import Array, Blocks, Field, Ids, Table
from scarml.core.metric import Metric
from scarml.core.model import ALL, Computed, Context, Model, Reads, Shard, Update
from scarml.data.classification import Classification
from scarml.errors import ModelError, UsageError
from scarml.models.blas import single_threaded_blas
from scarml.models.defaults import Defaults

__all__ = ["MLR", "softmax_loss", "softmax_loss_reference", "softmax_residual", "softmax_residual_reference"]

_ROWS_AT_ONCE = 128  # of 784 float32 they fit into a 1 MB level-2 cache for both products: 1.2-1.8 x as fast
_PREDICTED_AT_ONCE = 4_096  # features of a byte each are not made four times as large all at once


@dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """One shard's piece of every batch, one after the other."""

    features: Array
    labels: Ids
    starts: Ids
    """Where the piece of each batch starts, shape (n_batches + 1,)."""
    batch_lengths: Ids
    """Examples in each whole batch, over all shards."""


@dataclass(frozen=True, slots=True)
class MLR(Model):
    """Minimise the cross-entropy Σ −log softmax(x W)[y] over W in R^(n_features × n_classes).

    Iteration k takes batch (k − 1) mod n_batches of the examples in their order and steps by
    −``learning_rate`` · Xᵀ (softmax(X W) − Y) / |batch|. The last batch is smaller where ``batch_size`` does not divide
    the examples. There is one table, ``W``, of n_features blocks: the rows, float32, all zero at the start. Shard s is
    the s-th piece of every batch. The loss is the cross-entropy summed over all examples, in float64. Held-out metrics
    are its mean, and the share of examples whose class `predict` gets right.

    Data: `Classification`. Features are used as they are, without scaling or an intercept, as in the paper.

    Args:
        learning_rate: step size for the mean gradient of a batch, above 0.
        batch_size: examples an iteration, at least 1; all of them where there are fewer.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> import numpy as np
        >>> data = Classification(np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1]), n_classes=2)
        >>> MLR(learning_rate=0.5, batch_size=4).tables(data)[0].n_blocks
        4
    """

    learning_rate: float = 1e-5
    batch_size: int = 10_000

    name: ClassVar[str] = "mlr"
    metrics: ClassVar[Sequence[Metric]] = (Metric("cross_entropy"), Metric("accuracy", higher_is_better=True))
    defaults: ClassVar[Mapping[str | None, Defaults]] = {
        "mnist": Defaults({"learning_rate": 1e-5, "batch_size": 10_000}, stop_loss_sum=2.5e4, baseline_iters=60),
        "mnist-10k": Defaults({"learning_rate": 5e-6, "batch_size": 2_500}, stop_loss_sum=4_541.7, baseline_iters=61),
        # The paper's 6.7e5 is passed in iteration 22 here; the order in which it took the examples is not known.
        "covtype": Defaults({"learning_rate": 1e-7, "batch_size": 1_000}, stop_loss_sum=662_021.1, baseline_iters=61),
    }

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < math.inf:
            raise UsageError(f"learning_rate is {self.learning_rate}; expected a finite number above 0")
        if self.batch_size < 1:
            raise UsageError(f"batch_size is {self.batch_size}; expected at least 1")

    def tables(self, data: Classification) -> Sequence[Table]:
        """The table ``W``."""
        if not isinstance(data, Classification):
            raise ModelError(f"MLR takes a Classification; got {type(data).__name__}")
        if data.n_examples == 0:
            raise ModelError("MLR needs at least one example; the data has none")
        return [Table("W", data.n_features, (Field("value", "float32", (data.n_classes,)),))]

    def shards(self, data: Classification, n_shards: int) -> Sequence[Shard]:
        """The s-th piece of every batch; sizes within a batch differ by at most one."""
        edges = np.append(np.arange(0, data.n_examples, self.batch_size), data.n_examples)
        lengths = np.diff(edges)
        shards = []
        for s in range(n_shards):
            begin = edges[:-1] + lengths * s // n_shards
            end = edges[:-1] + lengths * (s + 1) // n_shards
            rows = np.concatenate([np.arange(b, e) for b, e in zip(begin, end, strict=True)])
            pieces = _Pieces(
                features=data.features[rows].astype(np.float32),
                labels=data.labels[rows].astype(np.int64),
                starts=np.concatenate(([0], np.cumsum(end - begin))),
                batch_lengths=lengths,
            )
            shards.append(Shard(index=s, data=pieces, n_examples=len(rows)))
        return shards

    def init(self, table: Table, ids: Ids, seed: int) -> Mapping[str, Array]:
        """Zero."""
        return dict(table.empty(ids).fields)

    def reads(self, ctx: Context, shard: Shard) -> Reads:
        """All of W, unless the shard has no examples at all."""
        return {"W": ALL} if shard.n_examples else {}

    def compute(self, ctx: Context, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> Computed:
        """This shard's part of the step for the batch of this iteration."""
        pieces: _Pieces = shard.data
        batch = (ctx.iteration - 1) % len(pieces.batch_lengths)
        begin, end = pieces.starts[batch : batch + 2]
        if begin == end:
            return Computed()
        weights = reads["W"].value
        gradient = np.zeros(weights.shape[::-1], np.float32)
        with single_threaded_blas:
            for rows in _chunks(begin, end):
                features = pieces.features[rows]
                residual = features @ weights
                softmax_residual(residual, pieces.labels[rows])
                gradient += residual.T @ features
        scale = np.float32(-self.learning_rate / pieces.batch_lengths[batch])
        return Computed([Update("W", ALL, np.multiply(gradient.T, scale, order="C"))])

    def loss(self, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> float:
        """Cross-entropy, summed over the shard's examples."""
        total = 0.0
        for logits, labels in _logits(shard, reads):
            total += softmax_loss(logits, labels)
        return total

    def metric_sums(self, shard: Shard, reads: Mapping[str, Blocks]) -> Mapping[str, float]:
        """Cross-entropy, and how many examples are most probably of their class."""
        loss, n_right = 0.0, 0
        for logits, labels in _logits(shard, reads):
            loss += softmax_loss(logits, labels)
            n_right += int((logits.argmax(axis=1) == labels).sum())
        return {"cross_entropy": loss, "accuracy": float(n_right)}

    @staticmethod
    def predict(tables: Mapping[str, Mapping[str, Array]], features: Array) -> Ids:
        """The most probable class of each example; of equally probable ones the first.

        Args:
            tables: as ``scar.load`` gives them, of a run of this model.
            features: one row an example, shape (n, n_features), as in training.

        Returns:
            Classes, 0 … n_classes − 1, shape (n,). `Classification.classes` says what the source calls them.

        Raises:
            UsageError: if the tables are not this model's, or the features have another shape.

        Example:
            >>> import numpy as np
            >>> MLR.predict({"W": {"value": np.array([[0.0, 1.0], [2.0, 0.0]])}}, np.eye(2)).tolist()
            [1, 0]
        """
        weights = tables.get("W", {}).get("value")
        if weights is None or weights.ndim != 2:
            raise UsageError("the tables are not those of a run of MLR; expected W with a matrix as its value")
        features = np.asarray(features)
        if features.dtype.kind not in "fiub":
            raise UsageError(f"features are of {features.dtype}; expected numbers")
        if features.ndim != 2 or features.shape[1] != len(weights):
            raise UsageError(f"features have shape {features.shape}; expected (n, {len(weights)}), as in training")
        return _predicted(weights, features)


def _logits(shard: Shard, reads: Mapping[str, Blocks]) -> Iterator[tuple[Array, Ids]]:
    """X W and the labels of the shard's examples, some at a time."""
    pieces: _Pieces = shard.data
    for rows in _chunks(0, len(pieces.labels)):
        with single_threaded_blas:
            logits = pieces.features[rows] @ reads["W"].value
        yield logits, pieces.labels[rows]


def _predicted(weights: Array, features: Array) -> Ids:
    parts = [np.zeros(0, np.int64)]
    for begin in range(0, len(features), _PREDICTED_AT_ONCE):
        some = features[begin : begin + _PREDICTED_AT_ONCE].astype(np.float32, copy=False)
        parts.append((some @ weights).argmax(axis=1))
    return np.concatenate(parts)


def _chunks(begin: int, end: int) -> Iterator[slice]:
    return (slice(i, min(i + _ROWS_AT_ONCE, end)) for i in range(begin, end, _ROWS_AT_ONCE))


@numba.njit(nogil=True, cache=True)
def softmax_residual(logits: Array, labels: Ids) -> None:
    """Turn float32 logits, shape (n, n_classes), into softmax(logits) − one-hot(labels), in place."""
    n, n_classes = logits.shape
    for i in range(n):
        highest = logits[i, 0]
        for c in range(1, n_classes):
            highest = max(highest, logits[i, c])
        total = np.float32(0)
        for c in range(n_classes):
            logits[i, c] = math.exp(logits[i, c] - highest)
            total += logits[i, c]
        for c in range(n_classes):
            logits[i, c] /= total
        logits[i, labels[i]] -= np.float32(1)


@numba.njit(nogil=True, cache=True)
def softmax_loss(logits: Array, labels: Ids) -> float:
    """Σ −log softmax(logits)[label], in float64, of logits with shape (n, n_classes)."""
    n, n_classes = logits.shape
    loss = 0.0
    for i in range(n):
        highest = np.float64(logits[i, 0])
        for c in range(1, n_classes):
            highest = max(highest, np.float64(logits[i, c]))
        total = 0.0
        for c in range(n_classes):
            total += math.exp(np.float64(logits[i, c]) - highest)
        loss += math.log(total) + highest - np.float64(logits[i, labels[i]])
    return loss


def softmax_residual_reference(logits: Array, labels: Ids) -> None:
    """The same as `softmax_residual` in plain NumPy."""
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    logits[np.arange(len(labels)), labels] -= 1


def softmax_loss_reference(logits: Array, labels: Ids) -> float:
    """The same as `softmax_loss` in plain NumPy."""
    exact = logits.astype(np.float64)
    highest = exact.max(axis=1)
    log_total = np.log(np.exp(exact - highest[:, None]).sum(axis=1)) + highest
    return float((log_total - exact[np.arange(len(labels)), labels]).sum())

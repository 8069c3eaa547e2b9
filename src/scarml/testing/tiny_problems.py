"""Models on data so small that an iteration takes less than a millisecond: for tests of everything around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scarml.core.model import Model
from scarml.core.rng import stream
from scarml.data.classification import Classification
from scarml.data.corpus import Corpus
from scarml.data.ratings import Ratings
from scarml.errors import UsageError
from scarml.models.lda import LDA
from scarml.models.mf import MF
from scarml.models.mlr import MLR
from scarml.models.qp import QP
from scarml.testing.models.adam_regression import AdamRegression, Regression
from scarml.testing.models.sparse_regression import SparseExamples, SparseRegression

__all__ = ["TINY_PROBLEMS", "tiny_problem"]


def tiny_problem(name: str) -> tuple[Model, Any]:
    """A model and its data.

    Between them they use all of the protocol: ``qp`` (empty shards), ``mlr`` (batches), ``mf`` (two phases, sparse
    reads, assigning), ``lda`` (worker-home ragged blocks, derived tables, random numbers), ``adam`` (several fields,
    groups, an `apply` of its own), ``sparse`` (sparse updates that add up, blocks used by different frequencies).

    Args:
        name: one of `TINY_PROBLEMS`.

    Raises:
        UsageError: if there is no such problem.

    Example:
        >>> model, data = tiny_problem("mlr")
        >>> model.tables(data)[0].n_blocks
        12
    """
    if name not in _MAKERS:
        raise UsageError(f"there is no tiny problem {name!r}; there are {', '.join(_MAKERS)}")
    return _MAKERS[name]()


def _qp() -> tuple[Model, Any]:
    return QP(), None


def _mlr() -> tuple[Model, Any]:
    rng = stream(0, "tiny mlr")
    features = rng.standard_normal((50, 12)).astype(np.float32)
    labels = (features @ rng.standard_normal((12, 3))).argmax(axis=1)
    return MLR(learning_rate=0.5, batch_size=20), Classification(features, labels, n_classes=3)


def _mf() -> tuple[Model, Any]:
    """Rank 2 and a little noise; the last user and the last item have no ratings."""
    rng = stream(0, "tiny mf")
    user, item = np.nonzero(rng.random((16, 12)) < 0.4)
    rating = (rng.random((16, 2)) @ rng.random((2, 12)))[user, item] + 0.01 * rng.standard_normal(len(user))
    return MF(factors=3, regularization=0.1), Ratings(user, item, rating.astype(np.float32), n_users=17, n_items=13)


def _lda() -> tuple[Model, Any]:
    """Each document keeps mostly to a third of the words; one is empty."""
    rng = stream(0, "tiny lda")
    lengths = np.append(rng.integers(3, 12, 23), 0)
    document = np.repeat(np.arange(24), lengths)
    words = (document % 3) * 10 + rng.integers(0, 12, len(document))
    model = LDA(n_components=4, doc_topic_prior=0.1, topic_word_prior=0.1)
    return model, Corpus(words % 30, lengths, n_words=30)


def _adam() -> tuple[Model, Any]:
    rng = stream(0, "tiny adam")
    features = rng.standard_normal((40, 10))
    return AdamRegression(), Regression(features, features @ rng.standard_normal(10))


def _sparse() -> tuple[Model, Any]:
    """Row r is in an example about 1/r as often as the first; some are in none."""
    rng = stream(0, "tiny sparse")
    frequency = 1 / np.arange(1.0, 41.0)
    rows = rng.choice(40, (60, 3), p=frequency / frequency.sum())
    return SparseRegression(learning_rate=0.005), SparseExamples(
        rows, rng.standard_normal(40)[rows].sum(axis=1), n_rows=40
    )


_MAKERS: dict[str, Callable[[], tuple[Model, Any]]] = {
    "qp": _qp,
    "mlr": _mlr,
    "mf": _mf,
    "lda": _lda,
    "adam": _adam,
    "sparse": _sparse,
}

TINY_PROBLEMS = tuple(_MAKERS)
"""The names that `tiny_problem` takes."""

"""Collapsed Gibbs sampling for few topics, document by document: every token weighs all of them, a vector at a time."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from scarml.core.block import Array, Ids
from scarml.models.lda_random import uniform

__all__ = ["sweep_dense"]

_GROUP = 8  # of float64 a cache line


@numba.njit(nogil=True, cache=True)
def sweep_dense(
    topics: Array,
    word: Array,
    document_starts: Ids,
    word_topics: Array,
    totals: Array,
    alpha: float,
    beta: float,
    beta_sum: float,
    key: np.uint64,
    changes: Array,
) -> None:
    """Sample every token once. ``topics`` and ``totals`` are changed in place, ``changes`` is overwritten.

    Args:
        topics: uint16, by document, shape (n_tokens,).
        word: of each token the row in ``word_topics``.
        document_starts: where each document's tokens start, shape (n_documents + 1,).
        word_topics: counts, int32, shape (n_words, n_topics).
        totals: counts of all words together, those of other shards too, int32.
        alpha, beta, beta_sum: α, β, Vβ.
        key: of the random numbers.
        changes: what to add to ``word_topics``.
    """
    n_words, n_topics = word_topics.shape
    n_groups = (n_topics + _GROUP - 1) // _GROUP
    padded = n_groups * _GROUP
    by_word = np.zeros((n_words, padded), np.int32)  # whole groups: topics that are not there weigh nothing
    for row in range(n_words):
        for k in range(n_topics):
            by_word[row, k] = word_topics[row, k]
    by_document = np.zeros(padded, np.int64)
    r = np.zeros(padded)  # (n_dk + α) / (n_k + Vβ)
    weights = np.empty(padded)
    sums = np.empty(n_groups)
    for d in range(len(document_starts) - 1):
        begin, end = document_starts[d], document_starts[d + 1]
        for k in range(n_topics):
            by_document[k] = 0
        for t in range(begin, end):
            by_document[topics[t]] += 1
        for k in range(n_topics):
            r[k] = (by_document[k] + alpha) / (totals[k] + beta_sum)
        for t in range(begin, end):
            w: Any = np.int64(word[t])
            old: Any = np.int64(topics[t])
            by_document[old] -= 1
            by_word[w, old] -= 1
            totals[old] -= 1
            r[old] = (by_document[old] + alpha) / (totals[old] + beta_sum)
            u = uniform(key, t) * _weigh(r, by_word, w, beta, weights, sums)
            new = min(_pick(weights, sums, u), n_topics - 1)
            by_document[new] += 1
            by_word[w, new] += 1
            totals[new] += 1
            r[new] = (by_document[new] + alpha) / (totals[new] + beta_sum)
            topics[t] = new
    for row in range(n_words):
        for k in range(n_topics):
            changes[row, k] = by_word[row, k] - word_topics[row, k]


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _weigh(r: Array, by_word: Array, w: int, beta: float, weights: Array, sums: Array) -> float:
    for k in range(_GROUP * len(sums)):
        weights[k] = r[k] * (by_word[w, k] + beta)
    total = 0.0
    for g in range(len(sums)):
        x = weights[_GROUP * g : _GROUP * g + _GROUP]
        sums[g] = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]))
        total += sums[g]
    return total


@numba.njit(nogil=True, cache=True)
def _pick(weights: Array, sums: Array, u: float) -> int:
    """The topic where the running sum goes above u, without branches: they could not be predicted."""
    group = 0
    total = before = 0.0
    for g in range(len(sums) - 1):
        total += sums[g]
        is_past = total <= u
        group += is_past
        before = total if is_past else before
    k = _GROUP * group
    u -= before
    total = 0.0
    for i in range(_GROUP - 1):
        total += weights[_GROUP * group + i]
        k += total <= u
    return k

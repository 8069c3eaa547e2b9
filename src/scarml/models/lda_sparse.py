"""Collapsed Gibbs sampling for many topics, word by word: a token costs as much as its document has topics.

For a token of word w in document d the probability of topic k is, with counts that leave this token out,

    (n_dk + α) (n_wk + β) / (n_k + Vβ)  =  n_dk q_k  +  α q_k,        q_k = (n_wk + β) / (n_k + Vβ).

While one word is sampled, q changes in two places a token. So q is kept as an array, with the sums of its groups of
about √K topics for the second part; the first part goes over the topics that the document has, a list of pairs (topic,
count). Nothing is approximated. After H.-F. Yu et al., A scalable asynchronous distributed algorithm for topic
modeling, WWW 2015 (F+LDA, word by word), with groups in place of their tree: two additions keep them up to date, and
sums begin afresh with each word, so that rounding errors do not add up.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from scarml.core.block import Array, Ids
from scarml.models.lda_random import uniform

__all__ = ["MOST_IN_A_PAIR", "n_pairs", "sweep_sparse"]

MOST_IN_A_PAIR = 0xFFFF
"""Tokens that a pair counts; a topic with more in one document has several pairs there."""

_COUNT = np.uint32(16)  # a pair is a uint32: the topic in the low 16 bits, the count above
_ONE = np.uint32(1 << 16)
_TOPIC = np.uint32(0xFFFF)
_FULL = np.uint32(MOST_IN_A_PAIR << 16)


def n_pairs(lengths: Ids, n_topics: int) -> Ids:
    """How many pairs a document of so many tokens can need."""
    return np.minimum(lengths, n_topics) + lengths // MOST_IN_A_PAIR


@numba.njit(nogil=True, cache=True)
def sweep_sparse(
    topics: Array,
    word_starts: Ids,
    position: Array,
    document: Array,
    document_starts: Ids,
    pair_starts: Ids,
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
        word_starts: where each word's tokens start in ``position`` and ``document``, shape (n_words + 1,).
        position: of each token in ``topics``.
        document: of each token.
        document_starts: where each document's tokens start in ``topics``.
        pair_starts: where each document's pairs start, from `n_pairs`.
        word_topics: counts, int32, shape (n_words, n_topics).
        totals: counts of all words together, those of other shards too, int32.
        alpha, beta, beta_sum: α, β, Vβ.
        key: of the random numbers.
        changes: what to add to ``word_topics``.
    """
    n_topics = totals.shape[0]
    pairs, n_pairs_of = _pairs(topics, document_starts, pair_starts, n_topics)
    shift = 2
    while (1 << (2 * shift)) < n_topics:
        shift += 1
    n_groups = ((n_topics - 1) >> shift) + 1
    count = np.empty(n_topics, np.int32)
    q = np.zeros(n_groups << shift)
    groups = np.empty(n_groups)
    weights = np.empty(max(np.max(pair_starts[1:] - pair_starts[:-1]), 1) if len(pair_starts) > 1 else 1)
    inverse = np.empty(n_topics)
    for k in range(n_topics):
        inverse[k] = 1.0 / (totals[k] + beta_sum)
    for w in range(len(word_starts) - 1):
        q_sum = _begin_word(word_topics, w, count, q, inverse, beta, groups, shift)
        for t in range(word_starts[w], word_starts[w + 1]):
            here, d = position[t], document[t]
            old: Any = np.int64(topics[here])
            first = pair_starts[d]
            n = n_pairs_of[d]
            i = _find(pairs, first, n, old)
            pairs[first + i] -= _ONE
            if pairs[first + i] < _ONE:
                n -= 1
                pairs[first + i] = pairs[first + n]
            count[old] -= 1
            totals[old] -= 1
            inverse[old] = 1.0 / (totals[old] + beta_sum)
            q_sum += _set(q, groups, shift, old, (count[old] + beta) * inverse[old])

            of_document = _weigh(pairs, first, n, q, weights)
            u = uniform(key, t) * (of_document + alpha * q_sum)
            new: Any
            if u < of_document:
                i = _reach(weights, 0, n - 1, u)
                new = np.int64(pairs[first + i] & _TOPIC)
            else:
                new = _pick(q, groups, shift, n_topics, (u - of_document) / alpha)
                i = 0
            i += _find_with_room(pairs, first + i, n - i, new)
            if i == n:
                pairs[first + n] = np.uint32(new)
                n += 1
            pairs[first + i] += _ONE
            n_pairs_of[d] = n
            count[new] += 1
            totals[new] += 1
            inverse[new] = 1.0 / (totals[new] + beta_sum)
            q_sum += _set(q, groups, shift, new, (count[new] + beta) * inverse[new])
            topics[here] = new
        for k in range(n_topics):
            changes[w, k] = count[k] - word_topics[w, k]


@numba.njit(nogil=True, cache=True)
def _pairs(topics: Array, document_starts: Ids, pair_starts: Ids, n_topics: int) -> tuple[Array, Array]:
    """Every document's topics and their counts, and how many pairs it has."""
    n_documents = len(document_starts) - 1
    pairs = np.empty(pair_starts[n_documents], np.uint32)
    n_pairs_of = np.empty(n_documents, np.int64)
    counts = np.zeros(n_topics, np.int64)
    for d in range(n_documents):
        first = pair_starts[d]
        n = 0
        for t in range(document_starts[d], document_starts[d + 1]):
            k = topics[t]
            if counts[k] == 0:
                pairs[first + n] = k
                n += 1
            counts[k] += 1
        n_all = n
        for i in range(n):
            k = np.uint32(pairs[first + i])
            left = counts[k]
            counts[k] = 0
            while left > MOST_IN_A_PAIR:
                pairs[first + n_all] = _FULL | k
                n_all += 1
                left -= MOST_IN_A_PAIR
            pairs[first + i] = (np.uint32(left) << _COUNT) | k
        n_pairs_of[d] = n_all
    return pairs, n_pairs_of


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _begin_word(
    word_topics: Array, w: int, count: Array, q: Array, inverse: Array, beta: float, groups: Array, shift: int
) -> float:
    """Fill ``count``, ``q`` and ``groups`` for a word. Returns the sum of q."""
    for k in range(len(count)):
        count[k] = word_topics[w, k]
        q[k] = (word_topics[w, k] + beta) * inverse[k]
    total = 0.0
    for g in range(len(groups)):
        of_group = 0.0
        for k in range(g << shift, (g + 1) << shift):
            of_group += q[k]
        groups[g] = of_group
        total += of_group
    return total


@numba.njit(nogil=True, cache=True)
def _set(q: Array, groups: Array, shift: int, k: int, value: float) -> float:
    difference: float = value - q[k]
    q[k] = value
    groups[k >> shift] += difference
    return difference


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _weigh(pairs: Array, first: int, n: int, q: Array, weights: Array) -> float:
    """weights_i = count_i q_(topic_i). Returns their sum."""
    total = 0.0
    for i in range(n):
        pair = pairs[first + i]
        weight = np.float64(np.int32(pair >> _COUNT)) * q[np.int64(pair & _TOPIC)]
        weights[i] = weight
        total += weight
    return total


@numba.njit(nogil=True, cache=True)
def _find(pairs: Array, first: int, n: int, k: int) -> int:
    """The first pair of a topic that has one."""
    i = 0
    while i < n - 1 and np.int64(pairs[first + i] & _TOPIC) != k:
        i += 1
    return i


@numba.njit(nogil=True, cache=True)
def _find_with_room(pairs: Array, first: int, n: int, k: int) -> int:
    """The first pair of a topic that can count one more; n if there is none."""
    i = 0
    while i < n and (np.int64(pairs[first + i] & _TOPIC) != k or pairs[first + i] >= _FULL):
        i += 1
    return i


@numba.njit(nogil=True, cache=True)
def _reach(weights: Array, first: int, last: int, u: float) -> int:
    """Where the running sum of weights first … last goes above u; the last where rounding lets none."""
    k = first
    u -= weights[k]
    while u >= 0 and k < last:
        k += 1
        u -= weights[k]
    return k


@numba.njit(nogil=True, cache=True)
def _pick(q: Array, groups: Array, shift: int, n_topics: int, u: float) -> int:
    """The topic where the running sum of q goes above u."""
    g = 0
    while g < len(groups) - 1 and u >= groups[g]:
        u -= groups[g]
        g += 1
    return _reach(q, g << shift, min((g + 1) << shift, n_topics) - 1, u)

"""What LDA counts besides sampling: tables anew from assignments, distances of documents, and the likelihood.

Each kernel has a plain reference in NumPy beside it.
"""

from __future__ import annotations

import itertools
import math

import numba
import numpy as np
from scipy.special import gammaln

from scarml.core.block import Array, Ids

__all__ = [
    "count_topics",
    "count_topics_reference",
    "documents_log_likelihood",
    "documents_log_likelihood_reference",
    "n_moved",
    "n_moved_reference",
    "table_log_likelihood",
    "table_log_likelihood_reference",
]

_TABULATED = 256
"""Counts whose logarithms of gamma are computed once a call; nearly all counts are small."""


@numba.njit(nogil=True, cache=True)
def count_topics(word: Array, topics: Array, counts: Array) -> None:
    """Add one to ``counts[word, topic]`` for each token; topics are uint16."""
    for t in range(len(topics)):
        counts[word[t], topics[t]] += 1


def count_topics_reference(word: Array, topics: Array, counts: Array) -> None:
    """The same as `count_topics` in plain NumPy."""
    np.add.at(counts, (word, topics), 1)


@numba.njit(nogil=True, cache=True)
def n_moved(a: Array, b: Array, lengths: Ids, moved: Array) -> None:
    """Per document half of Σ_k |n_dk(a) − n_dk(b)|: total variation, scaled by the document's length.

    Args:
        a, b: topics by document, uint16.
        lengths: of the documents.
        moved: the outcome, float64, shape (n_documents,).
    """
    difference = np.zeros(1 << 16, np.int64)  # whatever the values are, they stay within it
    begin = 0
    for d in range(len(lengths)):
        end = begin + lengths[d]
        for t in range(begin, end):
            difference[a[t]] += 1
            difference[b[t]] -= 1
        total = 0
        for t in range(begin, end):
            for k in (a[t], b[t]):
                total += abs(difference[k])
                difference[k] = 0  # counted once: a topic comes more often
        moved[d] = total / 2
        begin = end


def n_moved_reference(a: Array, b: Array, lengths: Ids, moved: Array) -> None:
    """The same as `n_moved` in plain NumPy."""
    ends = np.cumsum(lengths)
    for d, (begin, end) in enumerate(zip(ends - lengths, ends, strict=True)):
        x, y = (np.bincount(topics[begin:end], minlength=1 << 16) for topics in (a, b))
        moved[d] = np.abs(x - y).sum() / 2


@numba.njit(nogil=True, cache=True)
def table_log_likelihood(counts: Array, prior: float) -> float:
    """Σ log Γ(n + prior) − log Γ(prior) over all n of an int32 table."""
    known = _log_gammas(prior)
    total = 0.0
    for i in range(counts.shape[0]):
        for k in range(counts.shape[1]):
            if counts[i, k]:
                total += _log_gamma(counts[i, k], prior, known)
    return total


def table_log_likelihood_reference(counts: Array, prior: float) -> float:
    """The same as `table_log_likelihood` in plain NumPy."""
    return float((gammaln(counts + prior) - gammaln(prior)).sum())


@numba.njit(nogil=True, cache=True)
def documents_log_likelihood(topics: Array, starts: Ids, n_topics: int, prior: float) -> float:
    """Log p(topics) of documents: Σ_d [log Γ(Kα) − log Γ(n_d + Kα) + Σ_k log Γ(n_dk + α) − log Γ(α)]; uint16 topics."""
    known = _log_gammas(prior)
    counts = np.zeros(n_topics, np.int64)
    total = 0.0
    for d in range(len(starts) - 1):
        begin, end = starts[d], starts[d + 1]
        for t in range(begin, end):
            counts[topics[t]] += 1
        for t in range(begin, end):
            n = counts[topics[t]]
            counts[topics[t]] = 0
            if n:
                total += _log_gamma(n, prior, known)
        total += math.lgamma(n_topics * prior) - math.lgamma(end - begin + n_topics * prior)
    return total


def documents_log_likelihood_reference(topics: Array, starts: Ids, n_topics: int, prior: float) -> float:
    """The same as `documents_log_likelihood` in plain NumPy."""
    total = 0.0
    for begin, end in itertools.pairwise(starts):
        counts = np.bincount(topics[begin:end], minlength=n_topics)
        total += gammaln(n_topics * prior) - gammaln(end - begin + n_topics * prior)
        total += (gammaln(counts + prior) - gammaln(prior)).sum()
    return float(total)


@numba.njit(nogil=True, cache=True)
def _log_gammas(prior: float) -> Array:
    """Log Γ(n + prior) − log Γ(prior) for small n."""
    known = np.empty(_TABULATED)
    of_none = math.lgamma(prior)
    for n in range(_TABULATED):
        known[n] = math.lgamma(n + prior) - of_none
    return known


@numba.njit(nogil=True, cache=True)
def _log_gamma(n: int, prior: float, known: Array) -> float:
    if n < len(known):
        return float(known[n])
    return math.lgamma(n + prior) - math.lgamma(prior)

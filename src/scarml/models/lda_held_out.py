"""How well topics predict documents that they were not learned from: fold in one half, predict the other.

Source: A. Asuncion et al., On smoothing and inference for topic models, UAI 2009 (the fixed point).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Array, Ids
from scarml.data.corpus import Corpus

__all__ = ["N_ITERS", "HeldOutDocuments", "fold_in", "halves", "held_out_documents", "log_probability", "minus_log_p"]

Floats = NDArray[np.float64]

N_ITERS = 50
"""Of the fixed-point iteration, by default: enough for the third digit of a perplexity."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutDocuments:
    """Some held-out documents, whose words are numbered by their place in ``vocabulary``."""

    vocabulary: Ids
    seen: Ids
    seen_starts: Ids
    hidden: Ids
    hidden_starts: Ids


def held_out_documents(corpus: Corpus, n_parts: int) -> Iterator[HeldOutDocuments]:
    """The documents in ``n_parts`` slices, about as many in each."""
    seen, hidden = halves(corpus)
    for ids in np.array_split(np.arange(corpus.n_documents), n_parts):
        a, b = seen.take(ids), hidden.take(ids)
        vocabulary, index = np.unique(np.concatenate([a.words, b.words]).astype(np.int64), return_inverse=True)
        yield HeldOutDocuments(
            vocabulary,
            np.ascontiguousarray(index[: a.n_tokens], np.int64),
            np.append(0, np.cumsum(a.lengths)),
            np.ascontiguousarray(index[a.n_tokens :], np.int64),
            np.append(0, np.cumsum(b.lengths)),
        )


def minus_log_p(documents: HeldOutDocuments, word_topics: Array, totals: Array, alpha: float, beta: Floats) -> float:
    """−log p of the hidden tokens, the others being folded in.

    Args:
        documents: see there.
        word_topics: counts of the words in ``documents.vocabulary``, shape (n, n_topics).
        totals: counts of the topics, shape (n_topics,).
        alpha: of the documents.
        beta: of the topics for one word, and for all words together, shape (2,).
    """
    by_word = (word_topics + beta[0]) / (totals + beta[1])
    n_topics = len(totals)
    theta = np.full((len(documents.seen_starts) - 1, n_topics), 1 / n_topics)
    fold_in(documents.seen, documents.seen_starts, by_word, alpha, N_ITERS, theta)
    return -float(log_probability(documents.hidden, documents.hidden_starts, by_word, theta))


def halves(corpus: Corpus) -> tuple[Corpus, Corpus]:
    """Every second token of each document, and the rest."""
    starts = np.cumsum(corpus.lengths) - corpus.lengths
    is_seen = (np.arange(corpus.n_tokens) - np.repeat(starts, corpus.lengths)) % 2 == 0
    n_seen = (corpus.lengths + 1) // 2
    seen = Corpus(corpus.words[is_seen], n_seen, corpus.n_words)
    return seen, Corpus(corpus.words[~is_seen], corpus.lengths - n_seen, corpus.n_words)


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def fold_in(words: Ids, starts: Ids, by_word: Floats, alpha: float, n_iters: int, theta: Floats) -> None:
    """Move each document's distribution over topics, ``theta``, towards the fixed point, in place.

    γ_tk ∝ (n_dk + α) p(w_t | k), n_dk = Σ_t γ_tk; ``by_word`` is p(word | topic), shape (n_words, n_topics).
    """
    n_topics = theta.shape[1]
    new = np.empty(n_topics)
    for d in range(len(starts) - 1):
        n = starts[d + 1] - starts[d]
        for _ in range(n_iters if n > 0 else 0):
            for k in range(n_topics):
                new[k] = alpha
            for t in range(starts[d], starts[d + 1]):
                total = 0.0
                for k in range(n_topics):
                    total += theta[d, k] * by_word[words[t], k]
                for k in range(n_topics):
                    new[k] += theta[d, k] * by_word[words[t], k] / total
            for k in range(n_topics):
                theta[d, k] = new[k] / (n + n_topics * alpha)


@numba.njit(nogil=True, cache=True)
def log_probability(words: Ids, starts: Ids, by_word: Floats, theta: Floats) -> float:
    """Σ log p(w_t | θ_d) over all tokens."""
    log_p = 0.0
    for d in range(len(starts) - 1):
        for t in range(starts[d], starts[d + 1]):
            p = 0.0
            for k in range(theta.shape[1]):
                p += theta[d, k] * by_word[words[t], k]
            log_p += np.log(p)
    return log_p

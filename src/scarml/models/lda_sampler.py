"""One sweep of collapsed Gibbs sampling over the documents of a shard, exact, on one core, without the GIL.

Few topics are all weighed for each token (`lda_dense`); for many, a token costs as much as its document has topics
(`lda_sparse`). Beside them stands `sweep_reference`, the formula and no more.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from scarml.core.block import Array, Ids
from scarml.models.lda_dense import sweep_dense
from scarml.models.lda_sparse import n_pairs, sweep_sparse

__all__ = ["DENSE_UP_TO", "ByWord", "Priors", "Tokens", "lay_out", "sweep", "sweep_reference"]

DENSE_UP_TO = 96
"""Topics up to which weighing all of them is the faster way."""


@dataclass(frozen=True, slots=True)
class Priors:
    """α and β of the two Dirichlet distributions, and Vβ over all words, those of other shards too."""

    alpha: float
    beta: float
    beta_sum: float


@dataclass(frozen=True, slots=True, eq=False)
class ByWord:
    """The same tokens ordered by word, then by document; for sampling many topics."""

    starts: Ids
    """Where each word's tokens start, shape (n_words + 1,)."""
    position: Array
    """Of each token by document, int32."""
    document: Array
    """Of each token, int32."""
    pair_starts: Ids
    """Where each document's pairs of topic and count start, shape (n_documents + 1,)."""


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """The tokens of some documents, one after the other."""

    vocabulary: Ids
    """The words that there are in them, ascending."""
    word: Array
    """Of each token a position in `vocabulary`, int32."""
    starts: Ids
    """Where each document starts, shape (n_documents + 1,)."""
    by_word: ByWord | None
    """None where `sweep` does without."""


def lay_out(words: Array, lengths: Ids, n_topics: int) -> Tokens:
    """Order tokens for `sweep`. Below 2³¹ of them.

    Args:
        words: of each token its word.
        lengths: of each document.
        n_topics: that will be sampled.
    """
    vocabulary, word = np.unique(words, return_inverse=True)
    starts = np.append(0, np.cumsum(lengths))
    by_word = None
    if n_topics > DENSE_UP_TO:
        order = np.argsort(word, kind="stable")
        by_word = ByWord(
            starts=np.searchsorted(word[order], np.arange(len(vocabulary) + 1)),
            position=order.astype(np.int32),
            document=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)[order],
            pair_starts=np.append(0, np.cumsum(n_pairs(lengths, n_topics))),
        )
    return Tokens(vocabulary.astype(np.int64), word.astype(np.int32), starts, by_word)


def sweep(
    topics: Array, tokens: Tokens, word_topics: Array, totals: Array, priors: Priors, key: int
) -> tuple[Array, Array, Array]:
    """Sample the topic of every token once, each from its distribution given all the others.

    Args:
        topics: of each token, below ``len(totals)``.
        tokens: from `lay_out` for so many topics.
        word_topics: how many tokens each word has in each topic, int32, shape (len(tokens.vocabulary), n_topics);
            these tokens are among them.
        totals: tokens in each topic, int32.
        priors: α and β.
        key: of the random numbers, below 2⁶⁴; the same one gives the same topics.

    Returns:
        The new topics, uint16, and the changes of ``word_topics`` and of ``totals``, int32.
    """
    new, new_totals = topics.astype(np.uint16), totals.copy()
    changes = np.empty(word_topics.shape, np.int32)
    counts = word_topics.view()
    counts.flags.writeable = False  # always, so that the kernel is compiled once
    numbers = (priors.alpha, priors.beta, priors.beta_sum, np.uint64(key), changes)
    by_word = tokens.by_word
    if by_word is None:
        sweep_dense(new, tokens.word, tokens.starts, counts, new_totals, *numbers)
    else:
        order = (by_word.starts, by_word.position, by_word.document, tokens.starts, by_word.pair_starts)
        sweep_sparse(new, *order, counts, new_totals, *numbers)
    return new, changes, new_totals - totals


def sweep_reference(
    topics: Array, tokens: Tokens, word_topics: Array, totals: Array, priors: Priors, key: int
) -> tuple[Array, Array, Array]:
    """The same as `sweep`, document by document, with other random numbers: the same in distribution."""
    rng = np.random.Generator(np.random.Philox(key))
    new, by_word, total = topics.astype(np.uint16), word_topics.copy(), totals.copy()
    for begin, end in itertools.pairwise(tokens.starts):
        by_topic = np.bincount(new[begin:end], minlength=len(total))
        for t in range(begin, end):
            w, k = tokens.word[t], new[t]
            for count in (by_topic, by_word[w], total):
                count[k] -= 1
            weight = (by_topic + priors.alpha) * (by_word[w] + priors.beta) / (total + priors.beta_sum)
            k = new[t] = min(np.searchsorted(weight.cumsum(), rng.random() * weight.sum(), "right"), len(total) - 1)
            for count in (by_topic, by_word[w], total):
                count[k] += 1
    return new, by_word - word_topics, total - totals

"""Latent Dirichlet allocation in its plainest form: worker-home ragged blocks, derived tables, sparse reads.

Source: section 5.1 and appendix C of the paper; T. Griffiths, M. Steyvers, Finding scientific topics, PNAS 2004.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Array, Blocks, Field, Ids, Table
from scarml.core.model import ALL, Computed, Context, Model, Reads, Shard, Update
from scarml.core.norm import l2_distance
from scarml.core.rng import block_integers, stream
from scarml.data.corpus import Corpus

__all__ = ["PlainLDA"]


@dataclass(frozen=True, slots=True, eq=False)
class _Tokens:
    """A shard's tokens, in the order of its documents."""

    vocabulary: Ids
    """The words in it, ascending."""
    word: Ids
    """For each token a position in `vocabulary`."""
    document: Ids
    """For each token the position of its document in the shard."""
    n_documents: int


@dataclass(frozen=True, slots=True)
class PlainLDA(Model):
    """Collapsed Gibbs sampling; each shard samples from the counts of the last commit plus its own changes.

    ``assignments`` has a block for each document: the topic of each of its tokens. ``word_topics`` counts tokens by
    word and topic, ``topic_totals`` by topic; both are derived. A shard is a random choice of documents. The loss is
    −Σ log p(word | document) under the current counts.

    Args:
        n_components: topics, at most 256.
        doc_topic_prior: α.
        topic_word_prior: β.
    """

    n_components: int = 4
    doc_topic_prior: float = 1.0
    topic_word_prior: float = 1.0

    def tables(self, data: Corpus) -> Sequence[Table]:
        """``assignments``, and the derived counts."""
        counts = (Field("value", "int32", (self.n_components,)),)
        topics = (Field("value", "uint8", ragged=True),)
        return [
            Table("assignments", len(data.lengths), topics, home="worker", lengths=data.lengths),
            Table("word_topics", data.n_words, counts, derived=True),
            Table("topic_totals", 1, counts, derived=True),
        ]

    def shards(self, data: Corpus, n_shards: int) -> Sequence[Shard]:
        """A random choice of the documents each."""
        order = stream(0, "documents to shards").permutation(len(data.lengths))
        starts = np.cumsum(data.lengths) - data.lengths
        shards = []
        for s, ids in enumerate(map(np.sort, np.array_split(order, n_shards))):
            words = [data.words[starts[d] : starts[d] + data.lengths[d]] for d in ids]
            vocabulary, word = np.unique(np.concatenate([np.zeros(0, np.int64), *words]), return_inverse=True)
            tokens = _Tokens(vocabulary, word, np.repeat(np.arange(len(ids)), data.lengths[ids]), len(ids))
            shards.append(Shard(s, tokens, n_examples=len(word), blocks={"assignments": ids}))
        return shards

    def init(self, table: Table, ids: Ids, seed: int) -> Mapping[str, Array]:
        """A random topic for each token."""
        return {"value": block_integers(seed, table, ids, self.n_components)}

    def reads(self, ctx: Context, shard: Shard) -> Reads:
        """The counts of the shard's words."""
        return {"word_topics": shard.data.vocabulary, "topic_totals": ALL}

    def compute(self, ctx: Context, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> Computed:
        """One sweep over the shard's tokens."""
        tokens: _Tokens = shard.data
        own = local["assignments"]
        topic = own.value.copy()
        by_document = self._by_document(tokens, topic)
        by_word, total = reads["word_topics"].value.copy(), reads["topic_totals"].value[0].copy()
        chance = ctx.rng(shard.index).random(len(topic))
        priors = (self.doc_topic_prior, self.topic_word_prior, self._prior_of_all_words(reads))
        _sweep(topic, (tokens.word, tokens.document), (by_document, by_word, total), chance, priors)
        changes = [
            Update("word_topics", tokens.vocabulary, by_word - reads["word_topics"].value),
            Update("topic_totals", ALL, (total - reads["topic_totals"].value[0])[None]),
        ]
        return Computed(changes, {"assignments": Blocks(own.table, own.ids, {"value": topic})})

    def rebuild(self, shard: Shard, local: Mapping[str, Blocks]) -> Sequence[Update]:
        """The counts of this shard's tokens."""
        tokens: _Tokens = shard.data
        counts = np.zeros((len(tokens.vocabulary), self.n_components), np.int32)
        np.add.at(counts, (tokens.word, local["assignments"].value), 1)
        total = counts.sum(axis=0, dtype=np.int32)[None]
        return [Update("word_topics", tokens.vocabulary, counts), Update("topic_totals", ALL, total)]

    def distance(self, a: Blocks, b: Blocks) -> NDArray[np.float64]:
        """Total variation of a document's topic distributions times its length; Euclidean for the counts."""
        if a.table.name != "assignments":
            return l2_distance(a, b)
        k = self.n_components
        row = np.repeat(np.arange(len(a)), a.lengths) * k
        count_a, count_b = (np.bincount(row + x.value, minlength=len(a) * k) for x in (a, b))
        moved: Array = np.abs(count_a - count_b).reshape(len(a), k).sum(axis=1)
        return moved / 2

    def loss(self, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> float:
        """−Σ log p(word | document) over the shard's tokens."""
        tokens: _Tokens = shard.data
        theta = self._by_document(tokens, local["assignments"].value) + self.doc_topic_prior
        theta /= theta.sum(axis=1, keepdims=True)
        phi = reads["word_topics"].value + self.topic_word_prior
        phi /= reads["topic_totals"].value + self._prior_of_all_words(reads)
        return float(-np.log((theta[tokens.document] * phi[tokens.word]).sum(axis=1)).sum())

    def _by_document(self, tokens: _Tokens, topic: Array) -> Array:
        counts = np.zeros((tokens.n_documents, self.n_components), np.int32)
        np.add.at(counts, (tokens.document, topic), 1)
        return counts

    def _prior_of_all_words(self, reads: Mapping[str, Blocks]) -> float:
        return self.topic_word_prior * reads["word_topics"].table.n_blocks


@numba.njit(nogil=True, cache=True)
def _sweep(
    topic: Array, where: tuple[Ids, Ids], counts: tuple[Array, Array, Array], chance: Array, priors: tuple[float, ...]
) -> None:
    """Sample each token's topic anew, in place, from the counts without that token."""
    word, document = where
    by_document, by_word, total = counts
    alpha, beta, beta_of_all_words = priors
    k = len(total)
    cumulative = np.empty(k)
    for t in range(len(topic)):
        d, w, old = document[t], word[t], topic[t]
        by_document[d, old] -= 1
        by_word[w, old] -= 1
        total[old] -= 1
        weight = 0.0
        for j in range(k):
            weight += (by_document[d, j] + alpha) * (by_word[w, j] + beta) / (total[j] + beta_of_all_words)
            cumulative[j] = weight
        new = 0
        while new < k - 1 and cumulative[new] <= chance[t] * weight:
            new += 1
        topic[t] = new
        by_document[d, new] += 1
        by_word[w, new] += 1
        total[new] += 1

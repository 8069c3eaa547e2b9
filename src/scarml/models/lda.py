"""LDA: latent Dirichlet allocation by collapsed Gibbs sampling.

Source: section 5.1 and appendix C of the paper; T. Griffiths, M. Steyvers, Finding scientific topics, PNAS 2004.
Hyper-parameters are named as in scikit-learn's `LatentDirichletAllocation`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Array, Blocks, Field, Ids, Table, flat_index, positions_of_common
from scarml.core.metric import Metric
from scarml.core.model import ALL, Computed, Context, Model, Reads, Shard, Update
from scarml.core.norm import l2_distance
from scarml.core.rng import block_integers, stream
from scarml.data.corpus import Corpus
from scarml.errors import ModelError, UsageError
from scarml.models.defaults import Defaults
from scarml.models.lda_counts import count_topics, documents_log_likelihood, n_moved, table_log_likelihood
from scarml.models.lda_held_out import held_out_documents, minus_log_p
from scarml.models.lda_sampler import Priors, Tokens, lay_out, sweep

__all__ = ["LDA", "Norm"]

Norm = Literal["total-variation", "tokens-changed"]

_OF_THE_PAPER = {"n_components": 20, "doc_topic_prior": 1.0, "topic_word_prior": 1.0}
_MOST_TOPICS = 1 << 16
_MOST_TOKENS = (1 << 31) - 1  # counts are int32


@dataclass(frozen=True, slots=True, eq=False)
class _Documents:
    """What a shard works on."""

    tokens: Tokens
    words_of_loss: Ids
    """The words whose counts this shard adds to the loss: a slice of all, whether it has them or not."""


@dataclass(frozen=True, slots=True)
class LDA(Model):
    """Sample a topic for every token from p(topics | words).

    Each topic has a distribution over the words, drawn from Dirichlet(β), each document one over the topics, drawn from
    Dirichlet(α); both are integrated out. An iteration samples each token once, given all the others. A shard, a random
    choice of documents, works with the counts of the last commit and its own changes to them, so one shard alone is
    exact Gibbs sampling and several are the usual approximation by delayed counts. Tables:

    * ``assignments``: a block for each document, the topics of its tokens, uint8 up to 256 topics, else uint16; at the
      workers, uniform at the start.
    * ``word_topics``, a row for each word, and ``topic_totals``, one row: int32 counts; derived, so never saved.

    The loss is −log p(words, topics) of the whole state, in float64: to each shard its documents and a slice of the
    words. The held-out metric is the perplexity, as `Topics.perplexity` has it: half of each document is folded in, and
    the other half predicted.

    Data: `Corpus`.

    Args:
        n_components: topics, 1 to 65,536.
        doc_topic_prior: α, above 0.
        topic_word_prior: β, above 0.
        norm: how far a document has moved: ``total-variation`` between its distributions over topics times its length
            (the paper's; 0 if two tokens swap their topics), or ``tokens-changed``, how many have another topic.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> data = Corpus(np.array([0, 1, 1]), np.array([2, 1]), n_words=2)
        >>> [(t.name, t.n_blocks) for t in LDA(n_components=5).tables(data)]
        [('assignments', 2), ('word_topics', 2), ('topic_totals', 1)]
    """

    n_components: int = 20
    doc_topic_prior: float = 0.1
    topic_word_prior: float = 0.01
    norm: Norm = "total-variation"

    n_repair_phases: ClassVar[int] = 1
    name: ClassVar[str] = "lda"
    metrics: ClassVar[Sequence[Metric]] = (Metric("perplexity", of_mean="exp"),)
    # The paper's topics and priors; its 9.5e6 and 8.5e5 are for corpora that it does not describe. Near the end losses
    # go up and down, so a criterion is midway between the lowest loss before an iteration and the one after it.
    defaults: ClassVar[Mapping[str | None, Defaults]] = {
        "20newsgroups": Defaults(_OF_THE_PAPER, stop_loss_sum=20_358_178.8, baseline_iters=60),
        "20newsgroups-5k": Defaults(_OF_THE_PAPER, stop_loss_sum=9_514_032.8, baseline_iters=62),
        "reuters-r52": Defaults(_OF_THE_PAPER, stop_loss_sum=4_420_924.4, baseline_iters=61),
        "reuters-r8": Defaults(_OF_THE_PAPER, stop_loss_sum=3_399_874.8, baseline_iters=57),
        "reuters-395": Defaults(_OF_THE_PAPER, stop_loss_sum=750_859.9, baseline_iters=30),
        "kos": Defaults(_OF_THE_PAPER, stop_loss_sum=4_214_555.4, baseline_iters=61),
    }

    def __post_init__(self) -> None:
        if not 1 <= self.n_components <= _MOST_TOPICS:
            raise UsageError(f"n_components is {self.n_components}; expected 1 to {_MOST_TOPICS:,}")
        for name, prior in (("doc_topic_prior", self.doc_topic_prior), ("topic_word_prior", self.topic_word_prior)):
            if not 0 < prior < math.inf:
                raise UsageError(f"{name} is {prior}; expected a finite number above 0")
        if self.norm not in ("total-variation", "tokens-changed"):
            raise UsageError(f"norm is {self.norm!r}; expected 'total-variation' or 'tokens-changed'")

    def tables(self, data: Corpus) -> Sequence[Table]:
        """``assignments``, and the derived counts."""
        if not isinstance(data, Corpus):
            raise ModelError(f"LDA takes a Corpus; got {type(data).__name__}")
        if data.n_documents == 0:
            raise ModelError("LDA needs at least one document; the corpus has none")
        if data.n_tokens > _MOST_TOKENS:
            raise ModelError(f"LDA takes corpora of up to {_MOST_TOKENS:,} tokens; this one has {data.n_tokens:,}")
        dtype = "uint8" if self.n_components <= 256 else "uint16"
        topics = (Field("value", dtype, ragged=True, below=self.n_components),)
        counts = (Field("value", "int32", (self.n_components,)),)
        return [
            Table("assignments", data.n_documents, topics, home="worker", lengths=data.lengths),
            Table("word_topics", data.n_words, counts, derived=True),
            Table("topic_totals", 1, counts, derived=True),
        ]

    def shards(self, data: Corpus, n_shards: int) -> Sequence[Shard]:
        """A random choice of the documents each."""
        order = stream(0, "documents to shards").permutation(data.n_documents)
        shards = []
        for s, ids in enumerate(map(np.sort, np.array_split(order, n_shards))):
            some = data.take(ids)
            first, end = (data.n_words * i // n_shards for i in (s, s + 1))
            documents = _Documents(lay_out(some.words, some.lengths, self.n_components), np.arange(first, end))
            shards.append(Shard(s, documents, n_examples=some.n_tokens, blocks={"assignments": ids}))
        return shards

    def init(self, table: Table, ids: Ids, seed: int) -> Mapping[str, Array]:
        """A random topic for each token."""
        return {"value": block_integers(seed, table, ids, self.n_components)}

    def reads(self, ctx: Context, shard: Shard) -> Reads:
        """The counts of the shard's words."""
        return {"word_topics": shard.data.tokens.vocabulary, "topic_totals": ALL}

    def compute(self, ctx: Context, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> Computed:
        """One sweep over the shard's tokens."""
        tokens, own = shard.data.tokens, local["assignments"]
        if not len(own.value):
            return Computed()
        key = int(ctx.rng(shard.index).integers(1 << 64, dtype=np.uint64))
        priors = self._priors(reads["word_topics"].table.n_blocks)
        topics, changes, change_of_totals = sweep(
            self._topics(own), tokens, reads["word_topics"].value, reads["topic_totals"].value[0], priors, key
        )
        new = Blocks(own.table, own.ids, {"value": topics.astype(own.value.dtype)})
        updates = [
            Update("word_topics", tokens.vocabulary, changes),
            Update("topic_totals", ALL, change_of_totals[None]),
        ]
        return Computed(updates, {"assignments": new})

    def rebuild(self, shard: Shard, local: Mapping[str, Blocks]) -> Sequence[Update]:
        """The counts of this shard's tokens."""
        tokens: Tokens = shard.data.tokens
        counts = np.zeros((len(tokens.vocabulary), self.n_components), np.int32)
        count_topics(tokens.word, self._topics(local["assignments"]), counts)
        total = counts.sum(axis=0, dtype=np.int32)[None]
        return [Update("word_topics", tokens.vocabulary, counts), Update("topic_totals", ALL, total)]

    def lost_part(self, ctx: Context, shard: Shard, lost: Mapping[str, Ids]) -> Shard:
        """The lost documents."""
        tokens, own = shard.data.tokens, shard.blocks["assignments"]
        at = positions_of_common(own, lost.get("assignments", own[:0]))
        lengths = np.diff(tokens.starts)
        words = tokens.vocabulary[tokens.word[flat_index(lengths, at)]]
        part = _Documents(lay_out(words, lengths[at], self.n_components), shard.data.words_of_loss[:0])
        return Shard(shard.index, part, n_examples=len(words), blocks={"assignments": own[at]})

    def distance(self, a: Blocks, b: Blocks) -> NDArray[np.float64]:
        """How many tokens have moved, as `norm` counts them; Euclidean for the counts."""
        if a.table.name != "assignments":
            return l2_distance(a, b)
        moved = np.zeros(len(a))
        if self.norm == "total-variation":
            n_moved(a.value.astype(np.uint16), b.value.astype(np.uint16), a.lengths, moved)
        else:
            until = np.append(0, np.cumsum(a.value != b.value))
            moved[...] = np.diff(until[np.append(0, np.cumsum(a.lengths))])
        return moved

    def loss_reads(self, shard: Shard) -> Reads:
        """The counts of a slice of the words."""
        return {"word_topics": shard.data.words_of_loss, "topic_totals": ALL}

    def loss(self, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> float:
        """−log p(topics) of the shard's documents and −log p(words | topics) of its slice of the words.

        What the latter has for each topic and not for each word goes to the first shard.
        """
        topics, k = self._topics(local["assignments"]), self.n_components
        priors = self._priors(reads["word_topics"].table.n_blocks)
        total = documents_log_likelihood(topics, shard.data.tokens.starts, k, priors.alpha)
        total += table_log_likelihood(_read_only(reads["word_topics"].value), priors.beta)
        if shard.index == 0:
            total -= table_log_likelihood(_read_only(reads["topic_totals"].value), priors.beta_sum)
        return -float(total)

    def held_out_shards(self, data: Corpus, n_shards: int) -> Sequence[Shard]:
        """A slice of the documents each; the examples are the tokens to be predicted."""
        slices = held_out_documents(data, n_shards)
        return [Shard(s, documents, n_examples=len(documents.hidden)) for s, documents in enumerate(slices)]

    def metric_reads(self, shard: Shard) -> Reads:
        """The counts of the words of these documents."""
        return {"word_topics": shard.data.vocabulary, "topic_totals": ALL}

    def metric_sums(self, shard: Shard, reads: Mapping[str, Blocks]) -> Mapping[str, float]:
        """−log p of the tokens to be predicted."""
        counts, totals = reads["word_topics"], reads["topic_totals"].value[0]
        beta = np.array([self.topic_word_prior, self.topic_word_prior * counts.table.n_blocks])
        return {"perplexity": minus_log_p(shard.data, counts.value, totals, self.doc_topic_prior, beta)}

    def _priors(self, n_words: int) -> Priors:
        return Priors(self.doc_topic_prior, self.topic_word_prior, self.topic_word_prior * n_words)

    def _topics(self, own: Blocks) -> Array:
        """As the kernels take them, which would write to wherever a topic that there is not points."""
        if own.value.max(initial=0) >= self.n_components:
            raise ModelError(f"assignments have topic {own.value.max()}; expected 0 to {self.n_components - 1}")
        return own.value.astype(np.uint16)


def _read_only(a: Array) -> Array:
    """A view: with inputs that are always read-only a kernel is compiled once."""
    view = a.view()
    view.flags.writeable = False
    return view

"""Topics for people: words, coherence, perplexity, new documents, and arrays for other libraries.

Sources: D. Mimno et al., Optimizing semantic coherence in topic models, EMNLP 2011 (UMass); G. Bouma, Normalized
(pointwise) mutual information in collocation extraction, GSCL 2009 (NPMI); A. Asuncion et al., On smoothing and
inference for topic models, UAI 2009 (the fixed point of `Topics.transform`, see `lda_held_out`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_matrix

from scarml.core.block import Array, Ids
from scarml.data.corpus import Corpus
from scarml.errors import DataError, UsageError
from scarml.models.lda import LDA
from scarml.models.lda_counts import count_topics
from scarml.models.lda_held_out import N_ITERS, fold_in, halves, log_probability

__all__ = ["Topics"]

Floats = NDArray[np.float64]
Coherence = Literal["umass", "npmi"]


@dataclass(frozen=True, slots=True, eq=False)
class Topics:
    """What a run of `LDA` has found.

    Args:
        word_topics: how many tokens each word has in each topic, shape (n_words, n_components).
        doc_topic_prior: α.
        topic_word_prior: β.
        vocabulary: the words; None if only their numbers are known.

    Example:
        >>> data = Corpus(np.array([0, 0, 1]), np.array([2, 1]), n_words=2, vocabulary=("cat", "dog"))
        >>> topics = Topics.of(LDA(n_components=2), data, np.array([1, 1, 0]))
        >>> topics.top_words(1)
        [['dog'], ['cat']]
        >>> topics.transform(data).argmax(axis=1).tolist()
        [1, 0]
    """

    word_topics: Array
    doc_topic_prior: float
    topic_word_prior: float
    vocabulary: tuple[str, ...] | None = None

    @classmethod
    def of(cls, model: LDA, corpus: Corpus, assignments: Array) -> Topics:
        """From the topics of all tokens.

        Args:
            model: that was trained.
            corpus: that it was trained on.
            assignments: the topic of each token: ``scar.load(run)["assignments"]["value"]``, or of a `Sequential`
                ``run.state["assignments"].value``. Both can be had while training goes on.

        Raises:
            UsageError: if the assignments are not of this model and corpus.
        """
        assignments = np.asarray(assignments)
        if assignments.shape != corpus.words.shape:
            raise UsageError(f"there are {assignments.shape} assignments; the corpus has {corpus.n_tokens} tokens")
        if assignments.max(initial=0) >= model.n_components:
            raise UsageError(f"a token has topic {assignments.max()}; the model has {model.n_components} topics")
        counts = np.zeros((corpus.n_words, model.n_components), np.int32)
        count_topics(corpus.words.astype(np.int32), assignments.astype(np.uint16), counts)
        return cls(counts, model.doc_topic_prior, model.topic_word_prior, corpus.vocabulary)

    @property
    def n_components(self) -> int:
        """How many topics there are."""
        return int(self.word_topics.shape[1])

    @property
    def components(self) -> Floats:
        """n_wk + β, shape (n_components, n_words): ``components_`` of scikit-learn's `LatentDirichletAllocation`."""
        return np.asarray(self.word_topics.T + np.float64(self.topic_word_prior))

    @property
    def word_probabilities(self) -> Floats:
        """p(word | topic), shape (n_components, n_words); rows add up to 1."""
        components = self.components
        components /= components.sum(axis=1, keepdims=True)
        return components

    def top_words(self, n: int = 10) -> list[list[str]]:
        """The most frequent words of every topic; their numbers where the vocabulary is not known.

        Raises:
            UsageError: if n is below 1.
        """
        if n < 1:
            raise UsageError(f"n is {n}; expected at least 1")
        names = self.vocabulary or tuple(map(str, range(len(self.word_topics))))
        return [[names[w] for w in row] for row in self._top(n)]

    def coherence(self, corpus: Corpus, n: int = 10, measure: Coherence = "umass") -> Floats:
        """How often the top words of each topic stand in the same documents; higher is better.

        Args:
            corpus: where they are looked for, with the words of this one; the training documents, or others.
            n: top words of a topic, at least 2.
            measure: ``umass``, the mean of log (D(v, w) + 1) / D(w) over the pairs in which w is the more frequent, or
                ``npmi``, the mean of log (p(v, w) / p(v) p(w)) / −log p(v, w), from −1 to 1.

        Returns:
            One number for each topic. Pairs with a word that is in no document are left out; NaN if none is left.

        Raises:
            UsageError: if n is below 2, there is no such measure, or the corpus has other words.
        """
        if n < 2:
            raise UsageError(f"n is {n}; coherence is a mean over pairs of words, so expected at least 2")
        if measure not in get_args(Coherence):
            raise UsageError(f"measure is {measure!r}; expected {' or '.join(map(repr, get_args(Coherence)))}")
        self._check(corpus)
        top = self._top(n)
        together = _documents_together(corpus, top)
        scores = _umass(together) if measure == "umass" else _npmi(together, corpus.n_documents)
        later, earlier = np.tril_indices(top.shape[1], -1)
        alone = together[:, range(top.shape[1]), range(top.shape[1])]
        known = (alone[:, later] > 0) & (alone[:, earlier] > 0)
        n_known = known.sum(axis=1)
        total = np.where(known, scores[:, later, earlier], 0).sum(axis=1)
        mean = np.full(len(top), np.nan)
        np.divide(total, n_known, out=mean, where=n_known > 0)
        return mean

    def transform(self, corpus: Corpus, n_iters: int = N_ITERS) -> Floats:
        """The distribution over topics of new documents (fold-in), the topics being held fixed.

        Iterates γ_tk ∝ (n_dk + α) p(w_t | k), n_dk = Σ_t γ_tk from an even start: no random numbers.

        Args:
            corpus: documents with the words of this one.
            n_iters: of the fixed-point iteration.

        Returns:
            p(topic | document), shape (n_documents, n_components); rows add up to 1.
        """
        self._check(corpus)
        starts = np.append(0, np.cumsum(corpus.lengths))
        theta = np.full((corpus.n_documents, self.n_components), 1 / self.n_components)
        fold_in(
            corpus.words.astype(np.int64),
            starts,
            np.ascontiguousarray(self.word_probabilities.T),
            self.doc_topic_prior,
            n_iters,
            theta,
        )
        return theta

    def perplexity(self, corpus: Corpus, n_iters: int = N_ITERS) -> float:
        """How surprising held-out documents are: exp of −log p per token; lower is better.

        Of each document every second token is folded in, and the others are predicted from that.

        Raises:
            DataError: if there is nothing to predict.
        """
        seen, hidden = halves(corpus)
        return self.perplexity_given(self.transform(seen, n_iters), hidden)

    def perplexity_given(self, theta: Floats, corpus: Corpus) -> float:
        """The same for p(topic | document) from elsewhere, for all tokens of a corpus."""
        self._check(corpus)
        if not corpus.n_tokens:
            raise DataError("perplexity of no tokens; expected documents of at least two")
        words, starts = corpus.words.astype(np.int64), np.append(0, np.cumsum(corpus.lengths))
        by_word = np.ascontiguousarray(self.word_probabilities.T)
        return float(np.exp(-log_probability(words, starts, by_word, theta) / corpus.n_tokens))

    def to_arrays(self) -> dict[str, Array]:
        """Everything as arrays, to keep with ``numpy.savez`` or to hand to scikit-learn or gensim (see the docs)."""
        return {
            "components": self.components,
            "word_topics": self.word_topics,
            "doc_topic_prior": np.array(self.doc_topic_prior),
            "topic_word_prior": np.array(self.topic_word_prior),
            "vocabulary": np.array(self.vocabulary or (), dtype=np.str_),
        }

    def _top(self, n: int) -> Ids:
        """Numbers of the n most frequent words, shape (n_components, n); of equal ones the first."""
        return np.argsort(-self.word_topics, axis=0, kind="stable")[:n].T

    def _check(self, corpus: Corpus) -> None:
        if corpus.n_words != len(self.word_topics):
            raise UsageError(f"the corpus has {corpus.n_words} words; the topics are over {len(self.word_topics)}")


def _documents_together(corpus: Corpus, top: Ids) -> Floats:
    """Per topic, in how many documents each two of its top words are together; on the diagonal, each by itself."""
    listed, at = np.unique(top, return_inverse=True)
    column = np.full(corpus.n_words, -1)
    column[listed] = np.arange(len(listed))
    of_token = column[corpus.words]
    is_listed = of_token >= 0
    document = np.repeat(np.arange(corpus.n_documents), corpus.lengths)
    at_least_once = np.unique(np.stack([document[is_listed], of_token[is_listed]]), axis=1)
    shape = (corpus.n_documents, len(listed))
    has = csc_matrix((np.ones(at_least_once.shape[1]), (at_least_once[0], at_least_once[1])), shape)
    some = (has[:, row] for row in at.reshape(top.shape))
    return np.stack([(of_topic.T @ of_topic).toarray() for of_topic in some])


def _umass(together: Floats) -> Floats:
    """Word j < i of a topic is the more frequent one."""
    alone = np.maximum(np.diagonal(together, axis1=1, axis2=2), 1)
    return np.log((together + 1) / alone[:, None, :])


def _npmi(together: Floats, n_documents: int) -> Floats:
    """−1 for words that are never together, 1 for words that always are."""
    alone = np.maximum(np.diagonal(together, axis1=1, axis2=2), 1)
    p = np.maximum(together, 1) / n_documents
    information = np.log(p * n_documents**2 / (alone[:, :, None] * alone[:, None, :]))
    scores = np.divide(information, -np.log(p), out=np.ones_like(p), where=p < 1)
    return np.where(together > 0, scores, -1.0)

"""The samplers of LDA: exact, each against the distribution it must have; the plain reference passes the same tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy import stats

from scarml.core.block import Array, Ids
from scarml.core.rng import stream
from scarml.models import lda_sampler
from scarml.models.lda_counts import documents_log_likelihood_reference, table_log_likelihood_reference
from scarml.models.lda_sampler import Priors, Tokens, lay_out, sweep, sweep_reference

Sweep = Callable[..., tuple[Array, Array, Array]]
SWEEPS = {"dense": sweep, "sparse": sweep, "reference": sweep_reference}


@pytest.fixture(params=SWEEPS)
def sampler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    monkeypatch.setattr(lda_sampler, "DENSE_UP_TO", 0 if request.param == "sparse" else 1 << 16)
    return SWEEPS[request.param]


class Chain:
    """A sampler on some documents, with the counts it needs."""

    def __init__(self, sampler: Sweep, words: Ids, lengths: Ids, n_topics: int, alpha: float, beta: float) -> None:
        self.sweep, self.n_topics, self.n_words = sampler, n_topics, int(words.max(initial=0)) + 1
        self.priors = Priors(alpha, beta, beta * self.n_words)
        self.tokens = lay_out(words, lengths, n_topics)
        self.topics = stream(0, "start", len(words)).integers(0, n_topics, len(words)).astype(np.uint16)
        self.word_topics, self.totals = self.counts()

    def counts(self) -> tuple[Array, Array]:
        counts = np.zeros((len(self.tokens.vocabulary), self.n_topics), np.int32)
        np.add.at(counts, (self.tokens.word, self.topics), 1)
        return counts, counts.sum(axis=0, dtype=np.int32)

    def step(self, key: int) -> None:
        self.topics, changes, of_totals = self.sweep(
            self.topics, self.tokens, self.word_topics, self.totals, self.priors, key
        )
        self.word_topics, self.totals = self.word_topics + changes, self.totals + of_totals

    def check(self) -> None:
        assert self.topics.max(initial=0) < self.n_topics
        assert all(np.array_equal(a, b) for a, b in zip((self.word_topics, self.totals), self.counts(), strict=True))

    def log_likelihood(self) -> float:
        return log_likelihood(self.topics, self.tokens, self.n_words, self.n_topics, self.priors)


def log_likelihood(topics: Array, tokens: Tokens, n_words: int, n_topics: int, priors: Priors) -> float:
    """log p(words, topics), from scratch."""
    counts = np.zeros((n_words, n_topics), np.int64)
    np.add.at(counts, (tokens.vocabulary[tokens.word], topics), 1)
    of_totals = table_log_likelihood_reference(counts.sum(axis=0), priors.beta_sum)
    of_documents = documents_log_likelihood_reference(topics, tokens.starts, n_topics, priors.alpha)
    return table_log_likelihood_reference(counts, priors.beta) - of_totals + of_documents


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.ci), pytest.param(3, marks=pytest.mark.ci)])
def test_states_come_as_often_as_they_should(sampler: Sweep, seed: int) -> None:
    """Four tokens and three topics have 81 states, whose probabilities are known."""
    chain = Chain(sampler, np.array([0, 1, 0, 2]), np.array([3, 1]), 3, alpha=0.8, beta=0.7)
    states = [np.array(z, np.uint16) for z in itertools.product(range(3), repeat=4)]
    expected = np.exp([log_likelihood(z, chain.tokens, chain.n_words, 3, chain.priors) for z in states])
    n = 600 if sampler is sweep_reference else 6000
    seen = np.zeros(len(states))
    for i in range(4 * n):
        chain.step(seed * 1_000_003 + i)
        if i % 4 == 3:  # those in between are not independent enough
            seen[chain.topics @ np.array([27, 9, 3, 1])] += 1
    p = stats.chisquare(seen, n * expected / expected.sum()).pvalue
    assert p > 1e-4, f"p = {p} with seed {seed}"


@pytest.mark.parametrize("n_topics", [2, 20, 300])
def test_one_token_gets_each_topic_as_often_as_it_should(sampler: Sweep, n_topics: int) -> None:
    """The first token to be sampled, from the same state again and again."""
    chain = Chain(sampler, np.zeros(24, int), np.array([20, 4]), n_topics, alpha=0.3, beta=0.2)
    first, counts, totals = int(chain.topics[0]), chain.word_topics[0].astype(float), chain.totals.astype(float)
    in_document = np.bincount(chain.topics[:20], minlength=n_topics).astype(float)
    for count in (counts, totals, in_document):
        count[first] -= 1
    expected = (in_document + 0.3) * (counts + 0.2) / (totals + chain.priors.beta_sum)
    n = 200 if sampler is sweep_reference else 10_000
    state = (chain.topics, chain.tokens, chain.word_topics, chain.totals, chain.priors)
    seen = np.bincount([sampler(*state, 7919 * i)[0][0] for i in range(n)], minlength=n_topics)
    group = np.minimum(np.arange(n_topics) // max(n_topics // 40, 1), 39)  # few enough that each is expected often
    by_group = [np.bincount(group, a) for a in (seen, n * expected / expected.sum())]
    assert stats.chisquare(*by_group).pvalue > 1e-4


@cache
def curves(way: Sweep) -> Array:
    """Log likelihood over 10 sweeps, with 5 seeds."""
    rng = stream(5, "documents")
    lengths = rng.integers(5, 25, 16)
    words = (np.repeat(np.arange(16) % 4 * 6, lengths) + rng.integers(0, 8, lengths.sum())) % 24
    rows = []
    for seed in range(5):
        chain = Chain(way, words, lengths, 5, 0.1, 0.1)
        rows.append([(chain.step(1000 * seed + i), chain.log_likelihood())[1] for i in range(10)])
    return np.array(rows)


@pytest.mark.parametrize("way", ["dense", "sparse"])
def test_likelihood_rises_as_with_the_reference(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = curves(sweep_reference)
    monkeypatch.setattr(lda_sampler, "DENSE_UP_TO", 0 if way == "sparse" else 100)
    ours = curves.__wrapped__(sweep)
    assert stats.ttest_ind(ours[:, 0], theirs[:, 0]).pvalue > 1e-4
    assert stats.ttest_ind(ours[:, -3:].mean(axis=1), theirs[:, -3:].mean(axis=1)).pvalue > 1e-4
    assert ours[:, -1].mean() > ours[:, 0].mean()


@pytest.mark.parametrize("n_topics", [1, 2, 3, 8, 9, 20, 48, 49, 1000])
def test_counts_stay_true(sampler: Sweep, n_topics: int) -> None:
    rng = stream(n_topics, "documents")
    lengths = np.concatenate([[0], rng.integers(0, 40, 10), [0, 0, 1]])
    chain = Chain(sampler, rng.integers(0, 15, lengths.sum()), lengths, n_topics, 0.1, 0.01)
    start = chain.topics
    for i in range(3):
        chain.step(i)
        chain.check()
    assert n_topics == 1 or (chain.topics != start).any()


@pytest.mark.parametrize("lengths", [[0, 0], [1], [0, 60, 0]])
def test_one_word_or_none(sampler: Sweep, lengths: list[int]) -> None:
    chain = Chain(sampler, np.zeros(sum(lengths), int), np.array(lengths), 7, 0.5, 0.5)
    chain.step(1)
    chain.check()


@pytest.mark.parametrize("way", ["dense", "sparse"])
def test_a_document_with_more_tokens_than_a_pair_counts(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lda_sampler, "DENSE_UP_TO", 0 if way == "sparse" else 100)
    n = 150_000
    words = stream(0, "long").integers(0, 5, n)
    chain = Chain(sweep, words, np.array([n - 10, 10]), 3, 0.1, 0.01)
    chain.topics = (np.arange(n) % 16 == 0).astype(np.uint16)  # two full pairs of topic 0, and a third one
    chain.word_topics, chain.totals = chain.counts()
    for i in range(3):
        chain.step(i)
        chain.check()
    assert chain.totals[0] > 2 * 0xFFFF


def test_as_many_topics_as_there_can_be() -> None:
    chain = Chain(sweep, np.array([0, 1, 1, 0]), np.array([4]), 1 << 16, 0.1, 0.1)
    for i in range(3):
        chain.step(i)
        chain.check()
    assert chain.topics.max() > 256


def test_the_same_key_gives_the_same_topics(sampler: Sweep) -> None:
    first, again, other = (Chain(sampler, np.arange(30) % 7, np.array([30]), 9, 1, 1) for _ in range(3))
    first.step(3)
    again.step(3)
    other.step(4)
    assert np.array_equal(first.topics, again.topics)
    assert not np.array_equal(first.topics, other.topics)

"""LDA: the model around its sampler."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from scarml.core.block import Blocks
from scarml.core.rng import stream
from scarml.core.sequential import Sequential
from scarml.data.corpus import Corpus
from scarml.data.registry import load
from scarml.errors import ModelError, UsageError
from scarml.models import lda_counts
from scarml.models.lda import LDA
from scarml.testing import check_model, tiny_problem


def corpus() -> Corpus:
    _, data = tiny_problem("lda")
    assert isinstance(data, Corpus)
    return data


@pytest.mark.parametrize(
    "model",
    [
        LDA(n_components=3, doc_topic_prior=0.1, topic_word_prior=0.1),
        LDA(n_components=3, norm="tokens-changed"),
        LDA(n_components=1),
        LDA(n_components=300),
    ],
)
def test_it_keeps_the_contract(model: LDA) -> None:
    check_model(model, corpus(), n_shards=5, loss_falls=1 < model.n_components < 100)


def test_one_token_is_enough() -> None:
    check_model(LDA(n_components=2), Corpus(np.array([0]), np.array([1]), n_words=1))
    check_model(LDA(n_components=60), Corpus(np.zeros(0, int), np.array([0, 0]), n_words=4))


@pytest.mark.parametrize("n_components", [4, 300])
@pytest.mark.parametrize("n_shards", [1, 7])
def test_counts_are_those_of_the_assignments_and_the_loss_is_minus_the_joint_likelihood(
    n_components: int, n_shards: int
) -> None:
    data, alpha, beta = corpus(), 0.3, 0.2
    run = Sequential(LDA(n_components, alpha, beta), data, n_shards=n_shards)
    for _ in range(3):
        run.step()
        topics = run.state["assignments"].value
        counts = np.zeros((data.n_words, n_components), np.int64)
        np.add.at(counts, (data.words, topics), 1)
        assert np.array_equal(run.state["word_topics"].value, counts)
        assert np.array_equal(run.state["topic_totals"].value[0], counts.sum(axis=0))
        starts = np.append(0, np.cumsum(data.lengths))
        expected = (
            lda_counts.table_log_likelihood_reference(counts, beta)
            - lda_counts.table_log_likelihood_reference(counts.sum(axis=0), beta * data.n_words)
            + lda_counts.documents_log_likelihood_reference(topics, starts, n_components, alpha)
        )
        assert run.loss_sum() == pytest.approx(-expected, rel=1e-12)


def test_the_counts_agree_with_their_references() -> None:
    rng = stream(0, "counts")
    lengths = np.array([0, 5, 100, 0, 6000])
    a, b = (rng.integers(0, 7, lengths.sum()).astype(np.uint16) for _ in range(2))
    word = rng.integers(0, 9, len(a)).astype(np.int32)
    starts = np.append(0, np.cumsum(lengths))
    ours, theirs = np.zeros((9, 7), np.int32), np.zeros((9, 7), np.int32)
    lda_counts.count_topics(word, a, ours)
    lda_counts.count_topics_reference(word, a, theirs)
    assert np.array_equal(ours, theirs)
    moved, expected = np.empty(5), np.empty(5)
    lda_counts.n_moved(a, b, lengths, moved)
    lda_counts.n_moved_reference(a, b, lengths, expected)
    assert np.array_equal(moved, expected)
    assert moved[-1] > 0
    big = np.array([[0, 3, 5000, 200_000]], np.int32)  # beyond what is tabulated
    big.flags.writeable = False
    assert lda_counts.table_log_likelihood(big, 0.1) == pytest.approx(
        lda_counts.table_log_likelihood_reference(big, 0.1), rel=1e-13
    )
    assert lda_counts.documents_log_likelihood(a, starts, 7, 0.1) == pytest.approx(
        lda_counts.documents_log_likelihood_reference(a, starts, 7, 0.1), rel=1e-12
    )


def test_total_variation_is_blind_to_the_order_of_topics_in_a_document_and_the_other_norm_is_not() -> None:
    model = LDA(n_components=4)
    state = Sequential(model, corpus()).state["assignments"]
    turned = state.copy()
    for begin, end in itertools.pairwise([0, *np.cumsum(state.lengths).tolist()]):
        turned.value[begin:end] = state.value[begin:end][::-1]
    assert model.distance(state, turned).max() == 0
    changed = LDA(n_components=4, norm="tokens-changed").distance(state, turned)
    assert changed.sum() == (state.value != turned.value).sum() > 0
    other = state.copy()
    other.value[0] = (state.value[0] + 1) % 4  # one token of document 0 changes its topic
    assert model.distance(state, other).tolist() == [1.0] + [0.0] * 23


@pytest.mark.parametrize(("n_components", "dtype"), [(256, "uint8"), (257, "uint16"), (65_536, "uint16")])
def test_assignments_are_as_small_as_they_can_be(n_components: int, dtype: str) -> None:
    table = LDA(n_components).tables(corpus())[0]
    assert table.fields[0].dtype == dtype
    assert LDA(n_components).init(table, table.all_ids, 0)["value"].max() > n_components * 0.9


def test_shards_are_a_function_of_the_data_and_their_number() -> None:
    shards = LDA().shards(corpus(), 3)
    assert [len(s.blocks["assignments"]) for s in shards] == [8, 8, 8]
    other = LDA(n_components=7, doc_topic_prior=3).shards(corpus(), 3)
    assert all(
        np.array_equal(a.blocks["assignments"], b.blocks["assignments"]) for a, b in zip(shards, other, strict=True)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": 0}, "n_components is 0"),
        ({"n_components": 65_537}, "expected 1 to 65,536"),
        ({"doc_topic_prior": 0.0}, "doc_topic_prior is 0.0"),
        ({"topic_word_prior": float("nan")}, "topic_word_prior is nan"),
        ({"norm": "euclidean"}, "norm is 'euclidean'"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LDA(**arguments)


def test_data_that_it_cannot_take_is_refused() -> None:
    with pytest.raises(ModelError, match="LDA takes a Corpus; got list"):
        LDA().tables([1])  # type: ignore[arg-type]  # the mistake in question
    with pytest.raises(ModelError, match="at least one document"):
        LDA().tables(Corpus(np.zeros(0, int), np.zeros(0, int), n_words=1))


def test_a_topic_that_there_is_not_is_refused_before_a_kernel_sees_it() -> None:
    model = LDA(n_components=4)
    run = Sequential(model, corpus(), n_shards=1)
    own = run.state["assignments"]
    wrong = Blocks(own.table, own.ids, {"value": np.full_like(own.value, 4)})
    with pytest.raises(ModelError, match="assignments have topic 4; expected 0 to 3"):
        model.rebuild(run.shards[0], {"assignments": wrong})


@pytest.mark.ci
@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize("name", ["reuters-395", "kos"])
def test_data_sets_converge_as_declared(name: str) -> None:
    declared = LDA.defaults[name]
    run = Sequential(LDA(**declared.hyper_parameters), load(name), n_shards=16)
    assert declared.stop_loss_sum is not None
    while run.loss_sum() >= declared.stop_loss_sum:
        run.step()
    assert run.iteration == declared.baseline_iters


@pytest.mark.parametrize("n_components", [4, 300])
def test_lost_documents_are_sampled_anew_and_counts_are_conserved(n_components: int) -> None:
    data = corpus()
    run = Sequential(LDA(n_components, 0.1, 0.1), data, n_shards=3)
    for _ in range(3):
        run.step()
    lost = {"assignments": np.arange(0, len(data.lengths), 3)}
    before = run.state["assignments"].copy()
    work = run.repair(lost)
    topics = run.state["assignments"]
    assert np.isin(np.flatnonzero(topics.differs_from(before)), lost["assignments"]).all()
    assert topics.differs_from(before).any()
    assert work == data.lengths[lost["assignments"]].sum() / data.n_tokens
    counts = np.zeros((data.n_words, n_components), np.int64)
    np.add.at(counts, (data.words, topics.value), 1)
    assert np.array_equal(run.state["word_topics"].value, counts)
    assert np.array_equal(run.state["topic_totals"].value[0], counts.sum(axis=0))


def test_a_repair_gives_lost_documents_the_topics_that_the_others_have() -> None:
    """From topics at random, one sweep over the lost documents makes the whole state likelier."""
    run = Sequential(*tiny_problem("lda"), seed=1, n_shards=2)
    start = run.state["assignments"].copy()
    for _ in range(30):
        run.step()
    lost = {"assignments": np.arange(0, len(start), 2)}
    run.state["assignments"].put(start.take(lost["assignments"]))
    run.rebuild()
    restored = run.loss_sum()
    run.repair(lost)
    assert run.loss_sum() < restored - 10

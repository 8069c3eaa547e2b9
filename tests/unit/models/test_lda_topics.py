"""Topics for people: words, coherence, perplexity, new documents, other libraries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import digamma

from scarml.core.rng import stream
from scarml.core.sequential import Sequential
from scarml.data.corpus import Corpus
from scarml.errors import DataError, UsageError
from scarml.models.lda import LDA
from scarml.models.lda_held_out import halves
from scarml.models.lda_topics import Topics

MODEL = LDA(n_components=3, doc_topic_prior=0.1, topic_word_prior=0.05)


def three_subjects(n_documents: int, seed: int) -> Corpus:
    """Documents about one of three subjects of ten words each, a few words from anywhere; one is empty."""
    rng = stream(seed, "three subjects")
    lengths = np.append(rng.integers(20, 60, n_documents - 1), 0)
    subject = np.repeat(np.arange(n_documents) % 3, lengths)
    words = subject * 10 + (10 * rng.random(len(subject)) ** 2).astype(int)
    anywhere = rng.random(len(words)) < 0.1
    words[anywhere] = rng.integers(0, 30, anywhere.sum())
    return Corpus(words, lengths, 30, tuple(f"{'abc'[w // 10]}{w % 10}" for w in range(30)))


@pytest.fixture(scope="module")
def trained() -> tuple[Corpus, Topics]:
    data = three_subjects(90, seed=1)
    run = Sequential(MODEL, data, n_shards=2)
    for _ in range(40):
        run.step()
    return data, Topics.of(MODEL, data, run.state["assignments"].value)


def test_top_words_are_those_of_a_subject(trained: tuple[Corpus, Topics]) -> None:
    _, topics = trained
    assert sorted({w[0] for w in words}.pop() for words in topics.top_words(4)) == ["a", "b", "c"]
    assert all(len({w[0] for w in words}) == 1 for words in topics.top_words(4))
    unnamed = Topics(topics.word_topics, 0.1, 0.05)
    assert all(w.isdigit() for words in unnamed.top_words(3) for w in words)


def test_wrong_arguments_are_refused(trained: tuple[Corpus, Topics]) -> None:
    data, topics = trained
    for n in (0, -1):
        with pytest.raises(UsageError, match=f"n is {n}; expected at least 1"):
            topics.top_words(n)
    with pytest.raises(UsageError, match="measure is 'c_v'; expected 'umass' or 'npmi'"):
        topics.coherence(data, measure="c_v")  # type: ignore[arg-type]


@pytest.mark.parametrize("measure", ["umass", "npmi"])
def test_trained_topics_are_more_coherent_than_random_ones(trained: tuple[Corpus, Topics], measure: str) -> None:
    data, topics = trained
    start = Topics.of(MODEL, data, Sequential(MODEL, data).state["assignments"].value)
    before, after = (t.coherence(data, 5, measure) for t in (start, topics))  # type: ignore[arg-type]
    assert after.shape == (3,)
    assert after.mean() > before.mean()


def test_coherence_of_known_documents() -> None:
    data = Corpus(np.array([0, 1, 0, 1, 0, 2]), np.array([2, 2, 1, 1]), n_words=4)  # {0,1} {0,1} {0} {2}
    topics = Topics(np.array([[9, 0], [5, 0], [0, 9], [0, 5]]), 0.1, 0.1)
    umass, npmi = topics.coherence(data, 2), topics.coherence(data, 2, "npmi")
    assert umass[0] == pytest.approx(math.log((2 + 1) / 3))
    assert npmi[0] == pytest.approx(math.log((2 / 4) / (3 / 4 * 2 / 4)) / -math.log(2 / 4))
    assert math.isnan(umass[1]), "word 3 is in no document"
    apart = Corpus(np.array([0, 1]), np.array([1, 1]), n_words=4)
    assert topics.coherence(apart, 2, "npmi")[0] == -1
    always = Corpus(np.array([0, 1]), np.array([2]), n_words=4)
    assert topics.coherence(always, 2, "npmi")[0] == 1


def test_new_documents_get_the_topic_of_their_subject(trained: tuple[Corpus, Topics]) -> None:
    _, topics = trained
    new = three_subjects(30, seed=2)
    theta = topics.transform(new)
    assert np.allclose(theta.sum(axis=1), 1)
    subject_of_topic = ["abc".index(words[0][0]) for words in topics.top_words(1)]
    found = np.array(subject_of_topic)[theta[:-1].argmax(axis=1)]
    assert (found == np.arange(29) % 3).mean() > 0.95
    assert np.allclose(theta[-1], 1 / 3), "nothing is known of a document without tokens"


def test_perplexity_is_between_that_of_the_truth_and_that_of_knowing_nothing(trained: tuple[Corpus, Topics]) -> None:
    _, topics = trained
    new = three_subjects(60, seed=3)
    nothing = Topics(np.zeros((30, 3), np.int32), 0.1, 0.05).perplexity(new)
    assert nothing == pytest.approx(30)
    assert 8 < topics.perplexity(new) < 18
    with pytest.raises(DataError, match="perplexity of no tokens"):
        topics.perplexity(Corpus(np.array([1]), np.array([1]), 30))


def test_other_corpora_and_assignments_are_refused(trained: tuple[Corpus, Topics]) -> None:
    data, topics = trained
    with pytest.raises(UsageError, match="the corpus has 4 words; the topics are over 30"):
        topics.transform(Corpus(np.array([1]), np.array([1]), 4))
    with pytest.raises(UsageError, match="assignments"):
        Topics.of(MODEL, data, np.zeros(3, np.uint8))
    with pytest.raises(UsageError, match="a token has topic 3; the model has 3 topics"):
        Topics.of(MODEL, data, np.full(data.n_tokens, 3, np.uint8))
    with pytest.raises(UsageError, match="n is 1"):
        topics.coherence(data, 1)


def counts_of(corpus: Corpus) -> np.ndarray:
    counts = np.zeros((corpus.n_documents, corpus.n_words))
    np.add.at(counts, (np.repeat(np.arange(corpus.n_documents), corpus.lengths), corpus.words), 1)
    return counts


def test_the_arrays_hold_all_that_a_prediction_needs(trained: tuple[Corpus, Topics]) -> None:
    """Held-out perplexity from the arrays alone, in plain NumPy."""
    _, topics = trained
    arrays = topics.to_arrays()
    phi = arrays["components"] / arrays["components"].sum(axis=1, keepdims=True)
    seen, hidden = map(counts_of, halves(three_subjects(60, seed=3)))
    theta = np.full((len(seen), 3), 1 / 3)
    for _ in range(50):
        theta = arrays["doc_topic_prior"] + theta * ((seen / (theta @ phi)) @ phi.T)
        theta /= theta.sum(axis=1, keepdims=True)
    perplexity = np.exp(-(hidden * np.log(theta @ phi)).sum() / hidden.sum())
    assert perplexity == pytest.approx(topics.perplexity(three_subjects(60, seed=3)), rel=1e-6)
    assert tuple(arrays["vocabulary"]) == topics.vocabulary


@pytest.mark.parametrize("n_shards", [1, 4, 90])
def test_the_metric_of_training_is_the_perplexity_of_its_topics(n_shards: int) -> None:
    data, new = three_subjects(40, seed=5), three_subjects(30, seed=6)
    run = Sequential(MODEL, data, n_shards=2)
    for _ in range(3):
        run.step()
    topics = Topics.of(MODEL, data, run.state["assignments"].value)
    found = run.metrics(MODEL.held_out_shards(new, n_shards))
    assert found == {"perplexity": pytest.approx(topics.perplexity(new), rel=1e-9)}


@pytest.mark.ci
def test_scikit_learn_takes_the_topics_and_predicts_as_well(trained: tuple[Corpus, Topics]) -> None:
    sklearn = pytest.importorskip("sklearn.decomposition", reason="pip install scikit-learn")
    data, topics = trained
    arrays = topics.to_arrays()
    theirs = sklearn.LatentDirichletAllocation(
        n_components=3,
        doc_topic_prior=float(arrays["doc_topic_prior"]),
        topic_word_prior=float(arrays["topic_word_prior"]),
    )
    theirs.partial_fit(counts_of(data.take(np.arange(2))))  # sets what it needs besides the components
    theirs.components_ = arrays["components"]
    expected = np.exp(digamma(theirs.components_) - digamma(theirs.components_.sum(axis=1))[:, None])
    theirs.exp_dirichlet_component_ = expected
    new = three_subjects(200, seed=4)
    seen, hidden = halves(new)
    perplexity = topics.perplexity_given(theirs.transform(counts_of(seen)), hidden)
    assert perplexity == pytest.approx(topics.perplexity(new), rel=0.01)


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_gensim_takes_the_topics_and_predicts_as_well(trained: tuple[Corpus, Topics]) -> None:
    gensim = pytest.importorskip("gensim.models", reason="pip install gensim")
    _, topics = trained
    arrays = topics.to_arrays()
    theirs = gensim.LdaModel(
        num_topics=3,
        id2word=dict(enumerate(topics.vocabulary or ())),
        alpha=[float(arrays["doc_topic_prior"])] * 3,
        eta=float(arrays["topic_word_prior"]),
        dtype=np.float64,
        random_state=0,
    )
    theirs.state.sstats = topics.word_topics.T.astype(np.float64)
    theirs.sync_state()
    new = three_subjects(200, seed=4)
    seen, hidden = halves(new)
    gamma, _ = theirs.inference([[(w, n) for w, n in enumerate(row) if n] for row in counts_of(seen).astype(int)])
    perplexity = topics.perplexity_given(gamma / gamma.sum(axis=1, keepdims=True), hidden)
    assert perplexity == pytest.approx(topics.perplexity(new), rel=0.01)

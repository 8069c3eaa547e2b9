"""One sweep of LDA over 20 Newsgroups against tomotopy's collapsed Gibbs sampler, both on one core.

The same tokens, topics and priors (0.1 and 0.01), both exact, both from random topics; the priors are not optimised.
A sweep gets faster as documents settle on fewer topics, so both are as many sweeps from their start, and the first ones
are not counted. Without 20 Newsgroups (set SCAR_DATA_DIR) documents are drawn with the same numbers and a long tail.
"""

from __future__ import annotations

import numpy as np
import tomotopy
from side_by_side import Row, alternate, main, speed_row

import scarml as scar
from scarml.core.rng import stream
from scarml.core.sequential import Sequential
from scarml.data.corpus import Corpus
from scarml.data.registry import load
from scarml.errors import DataError
from scarml.models.lda_sampler import Priors, lay_out, sweep

ALPHA, BETA = 0.1, 0.01
TARGETS = {20: 1.0, 1000: 1.5}


def measure(quick: bool) -> list[Row]:
    name, data = _documents()
    if quick:
        data = data.take(np.arange(300))
    return [row for n_topics, target in TARGETS.items() for row in _beside(name, data, n_topics, target, quick)]


def _beside(name: str, data: Corpus, n_topics: int, target: float, quick: bool) -> list[Row]:
    theirs = _tomotopy(data, n_topics)
    alone = Sequential(scar.LDA(n_topics, ALPHA, BETA), data)
    tasks = {
        "tomotopy": lambda: theirs.train(1, workers=1, parallel=tomotopy.ParallelScheme.NONE),
        "kernel": _Kernel(data, n_topics).sweep,
        "alone": alone.step,
    }
    seconds = alternate(tasks, 2 if quick else 7, warm_ups=2 if quick else 10)
    what = f"LDA on {name}, {n_topics} topics"
    speed = data.n_tokens / np.median(seconds["kernel"]) / 1e6
    reference = f"tomotopy {tomotopy.__version__}, one worker"
    return [
        speed_row(f"{what}: the sampler", reference, seconds["kernel"], seconds["tomotopy"], at_least=target),
        speed_row(f"{what}: an iteration, no nodes, 16 shards", reference, seconds["alone"], seconds["tomotopy"]),
        Row(f"{what}: the sampler", "", float(speed), float(speed), float(speed), unit="M tokens/s"),
    ]


class _Kernel:
    """The sampler on all documents at once, and nothing else."""

    def __init__(self, data: Corpus, n_topics: int) -> None:
        self.tokens = lay_out(data.words, data.lengths, n_topics)
        self.priors = Priors(ALPHA, BETA, BETA * data.n_words)
        self.topics = stream(0, "topics").integers(0, n_topics, data.n_tokens).astype(np.uint16)
        self.word_topics = np.zeros((len(self.tokens.vocabulary), n_topics), np.int32)
        np.add.at(self.word_topics, (self.tokens.word, self.topics), 1)
        self.totals = self.word_topics.sum(axis=0, dtype=np.int32)
        self.key = 0

    def sweep(self) -> None:
        self.key += 1
        state = (self.topics, self.tokens, self.word_topics, self.totals)
        self.topics, changes, change_of_totals = sweep(*state, self.priors, self.key * 1_000_003)
        self.word_topics += changes
        self.totals += change_of_totals


def _tomotopy(data: Corpus, n_topics: int) -> tomotopy.LDAModel:
    model = tomotopy.LDAModel(k=n_topics, alpha=ALPHA, eta=BETA, seed=1)
    model.optim_interval = 0
    names = list(map(str, range(data.n_words)))
    for words in np.split(data.words, np.cumsum(data.lengths)[:-1]):
        if len(words):
            model.add_doc([names[w] for w in words])
    return model


def _documents() -> tuple[str, Corpus]:
    try:
        return "20 Newsgroups", load("20newsgroups")
    except DataError:
        rng = np.random.default_rng(0)
        lengths = rng.geometric(1 / 116, 18_821)
        words = (17_660 * rng.random(lengths.sum()) ** 4).astype(np.int32)
        return "drawn documents", Corpus(words, lengths, 17_660)


if __name__ == "__main__":
    main(measure, __file__)

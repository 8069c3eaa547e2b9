"""LDA from end to end, with workers and servers that are lost: counts stay true, and it ends where a calm run ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scarml as scar
from scarml.data.corpus import Corpus
from scarml.data.registry import load
from scarml.errors import DataError

pytestmark = pytest.mark.ci


def corpus() -> Corpus:
    """395 news items of Reuters, or as many documents drawn, each about one of eight subjects."""
    try:
        data: Corpus = load("reuters-395")
        return data
    except DataError:
        rng = np.random.default_rng(0)
        lengths = np.append(rng.integers(36, 400, 394), 0)
        subject = np.repeat(np.arange(395) % 8, lengths)
        words = (subject * 500 + 1000 * rng.random(lengths.sum()) ** 3).astype(np.int64)
        return Corpus(words, lengths, 4500)


@pytest.mark.parametrize("n_components", [20, 150])
def test_lost_workers_perturb_a_run_and_it_recovers(n_components: int, tmp_path: Path) -> None:
    data = corpus()
    model = scar.LDA(n_components, doc_topic_prior=0.1, topic_word_prior=0.01)
    by_word = np.bincount(data.words, minlength=data.n_words)
    n_checked = 0

    def check(record: scar.Record) -> None:
        nonlocal n_checked
        if record.name != "iteration_committed":
            return
        assert job._engine is not None
        state: Any = job._engine.state()
        counts = np.zeros((data.n_words, n_components), np.int64)
        np.add.at(counts, (data.words, state["assignments"].value), 1)
        assert np.array_equal(state["word_topics"].value, counts)
        assert np.array_equal(state["topic_totals"].value[0], counts.sum(axis=0))
        assert np.array_equal(counts.sum(axis=1), by_word)
        n_checked += 1

    settings: dict[str, Any] = {"stop": scar.Stop(max_iters=20, eval_every_iters=10), "shards": 8, "seed": 3}
    calm = scar.Job(model, data, **settings).run()
    job = scar.Job(
        model,
        data,
        servers=3,
        workers=4,
        kills=[scar.Kill.parse(kill) for kill in ("workers:2@4", "servers:1@6", "workers:1@8/lag1")],
        run=tmp_path / "run",
        on_event=check,
        **settings,
    )
    result = job.run()
    assert n_checked == 20
    assert [r["lost_blocks"] > 0 for r in result.recoveries] == [True, False, True]
    assert result.recoveries[0]["perturbation"] > 0
    start, end = calm.losses[0][1], calm.losses[-1][1]
    assert end < start
    assert abs(result.losses[-1][1] - end) < 0.1 * (start - end)

    assignments = scar.load(tmp_path / "run")["assignments"]["value"]
    topics = scar.Topics.of(model, data, assignments)
    assert np.array_equal(topics.word_topics.sum(axis=1), by_word)
    assert topics.perplexity(data) < 0.7 * scar.Topics.of(model, data, 0 * assignments).perplexity(data)

"""The simulation notices each way of being subtly wrong."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.mutations import MUTATIONS, Mutation

from scarml.core.model import Model
from scarml.engine.simulation import live
from scarml.errors import ModelError, ProtocolError
from scarml.testing import tiny_problem

PROBLEMS = ("mlr", "mf", "lda", "adam")
MAX_LIVES = 2000


@pytest.mark.ci
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name.replace(" ", "-"))
def test_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch, record_property) -> None:
    mutation.concentrate(monkeypatch)
    with monkeypatch.context() as patch:
        mutation.apply(patch)
        seed, story = first_noticed(mutation)
    record_property("noticed", f"seed {seed}: {story}")
    live(seed, problem_of(seed))  # the same life is in order without the mutation


def first_noticed(mutation: Mutation) -> tuple[int, str]:
    for seed in range(mutation.first_seed, mutation.first_seed + MAX_LIVES):
        try:
            live(seed, problem_of(seed))
        except (ProtocolError, ModelError) as noticed:  # InvariantError is one; or blocks are not where they should be
            return seed, str(noticed).splitlines()[0]
    pytest.fail(f"{mutation.name!r} went unnoticed through {MAX_LIVES} lives")


def problem_of(seed: int) -> tuple[Model, Any]:
    return tiny_problem(PROBLEMS[seed % len(PROBLEMS)])

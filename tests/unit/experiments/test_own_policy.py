"""The policy of the how-to: imported by name, trained with, and measured in the same sweep as SCAR's own."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.unit.experiments.samples import trainer_of

import scarml as scar
from scarml.checkpoint.policy import Candidates, policy_named
from scarml.errors import UsageError
from scarml.experiments import Cell, FailurePlan, Panel, Sweep, full, partial, summarise
from scarml.testing.tiny_problems import tiny_problem

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "write-your-own-policy.md"
COIN = "my_policies:Coin"
OTHERS = """
class NoScores:
    name, needs_distances = "x", True

class Taken:
    name, needs_distances, scores = "round", False, None

class Picky(Taken):
    def __init__(self, what): ...

NOT_A_CLASS = 1
"""


@pytest.fixture(autouse=True)
def _module_of_the_how_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = HOW_TO.read_text().split("```python\n")[1].split("```")[0]
    (tmp_path / "my_policies.py").write_text(code + OTHERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_policies", raising=False)


def test_it_scores() -> None:
    scores = policy_named(COIN).scores(Candidates(np.full(100, 4), np.arange(1.0, 101.0)), 0, 0, seed=1)
    assert 30 < np.count_nonzero(scores) < 70
    assert set(scores) - {0.0} <= set(np.arange(1.0, 101.0))


def test_it_is_in_the_same_sweep(tmp_path: Path) -> None:
    sweep = Sweep(Panel("tiny-mlr"), FailurePlan(n_trials=6), trainer=trainer_of("mlr", 20))
    cells = [Cell(s, 0) for s in (full(), *(partial(p, Fraction(1, 4), 4) for p in ("priority", COIN)))]
    assert cells[-1].file_name == "coin-1-4-partial.lag-0.csv"
    rows = sweep.run(cells, tmp_path / "results")
    assert {r.policy for r in rows} == {"full", "priority", COIN}
    norm = {c.strategy: c.perturbation for c in summarise(rows)}
    assert norm["priority-1-4-partial"] < norm["coin-1-4-partial"]
    assert sweep.run(cells, tmp_path / "results") == rows


def test_a_job_trains_with_it() -> None:
    result = scar.Job(
        *tiny_problem("mlr"),
        checkpoint=scar.Checkpoint(policy=COIN, fraction="1/4", interval_iters=4),
        stop=scar.Stop(max_iters=8),
        kills=[scar.Kill.parse("servers:1@6")],
        servers=2,
        workers=1,
    ).run()
    assert result.iterations == 8
    (recovery,) = result.recoveries
    assert recovery["perturbation"] > 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_policies:", "is no name of a class"),
        ("my_missing:Coin", "importing 'my_missing' failed"),
        ("my_policies:Nothing", "has no class 'Nothing'"),
        ("my_policies:NOT_A_CLASS", "NOT_A_CLASS is not a class"),
        ("my_policies:NoScores", "NoScores has no 'scores'"),
        ("my_policies:Taken", "it calls itself 'round'"),
        ("my_policies:Picky", r"Picky\(\) failed with TypeError"),
    ],
)
def test_what_is_wrong_with_a_class_is_said(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        scar.Checkpoint(policy=name)

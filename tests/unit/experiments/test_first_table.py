"""The first table on a problem that takes a second."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scarml.errors import UsageError
from scarml.experiments.failure import FailurePlan
from scarml.experiments.first_table import STRATEGIES, Part, main, run
from scarml.experiments.marked_page import replace_marked
from scarml.experiments.problem import Panel

QP = Part("QP", "qp", Panel("qp"), {0: "lag 0", 1: "lag 1"})


def test_table_has_a_row_for_each_strategy_and_comes_again_from_the_files(tmp_path: Path) -> None:
    plan = FailurePlan(n_trials=3)
    text = run(tmp_path, plan, parts=[QP])
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert [r.split(" | ")[0].removeprefix("| ") for r in rows if "---" not in r] == list(STRATEGIES)
    assert len(list((tmp_path / "qp").glob("*.csv"))) == 2 * len(STRATEGIES)
    facts = json.loads((tmp_path / "about.json").read_text())
    assert facts["failure_seed"] == 1
    assert run(tmp_path, plan, parts=[QP]).partition("\n\n")[2] == text.partition("\n\n")[2]


def test_marked_part_is_replaced() -> None:
    page = "a\n<!-- t: begin -->\nold\n<!-- t: end -->\nb"
    assert replace_marked(page, "t", "new") == "a\n<!-- t: begin -->\nnew\n<!-- t: end -->\nb"
    with pytest.raises(UsageError, match="u: begin"):
        replace_marked(page, "u", "new")


def test_bad_options_end_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path), "--trials", "0"]) == 2
    assert "--trials is 0" in capsys.readouterr().err

"""``scarml inspect``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.unit.cli.conftest import Scarml
from tests.unit.storage.test_rollback import a_run
from tests.unit.storage.test_run_folder import new_run

import scarml as scar
from scarml.engine.fault_plan import Kill
from scarml.storage.local import LocalStore
from scarml.testing import tiny_problem


@pytest.fixture
def trained(tmp_path: Path) -> str:
    model, data = tiny_problem("mlr")
    kills = [Kill.parse("servers:2@3")]
    scar.Job(model, data, run=tmp_path / "trained", stop=scar.Stop(max_iters=6), kills=kills).run()
    return str(tmp_path / "trained")


def test_a_trained_run_in_words(scarml: Scarml, trained: str) -> None:
    ran = scarml("inspect", trained)
    assert (ran.code, ran.err) == (0, "")
    rows = {line[:11].strip(): line[12:] for line in ran.out.splitlines() if line[0] != " "}
    assert rows["run"] == trained
    assert rows["model"].startswith("scarml.models.mlr:MLR learning_rate=")
    assert rows["checkpoint"].startswith("policy=priority fraction=1/8 interval_iters=8")
    assert rows["saved"] == "iteration 6, in term 1"
    assert rows["owner"].startswith("none; the last was process ")
    assert rows["history"] == "1 start, 6 iterations done in all"
    assert "2 nodes lost, 1 recovery" in ran.out
    assert "blocks of value float32 " in rows["table"]
    assert " old " in ran.out
    assert "█" in ran.out


def test_settings_are_said_to_be_of_the_first_start_where_there_are_more(scarml: Scarml, trained: str) -> None:
    of_first = "(of the first start; later ones may differ)"
    assert of_first not in scarml("inspect", trained).out
    model, data = tiny_problem("mlr")
    narrow = scar.Checkpoint.preset("general")
    scar.Job(model, data, run=trained, resume="must", stop=scar.Stop(max_iters=7), checkpoint=narrow).run()
    assert of_first in scarml("inspect", trained).out


def test_the_end_of_a_loop_of_ones_own_has_no_reason(scarml: Scarml, tmp_path: Path) -> None:
    with scar.RunningCheckpoint(tmp_path / "loop", {"W": np.zeros((4, 2))}) as ckpt:
        ckpt.restore()
        ckpt.save(1)
    assert "last outcome: done\n" in scarml("inspect", str(tmp_path / "loop")).out


def test_the_same_as_json(scarml: Scarml, trained: str) -> None:
    x = json.loads(scarml("inspect", trained, "--json").out)
    assert (x["schema_version"], x["run"], x["term"], x["iteration"]) == (1, trained, 1, 6)
    assert x["owner"]["state"] == "ended"
    assert x["history"]["outcome"] == "max-iters"
    assert sum(b["n_blocks"] for b in x["tables"][0]["ages"]) == x["tables"][0]["n_saved"]


def test_full_saves_terms_and_damage(scarml: Scarml) -> None:
    run = a_run(LocalStore("run"))
    for _ in range(12):
        run.claim_term("parent")
    run.store.put("segments/00000001-000000000019-server-0-00000019.safetensors", [b"torn"])
    ran = scarml("inspect", "run")
    assert ran.code == 0
    assert "full save   of iteration 160 (term 1, commit 16): complete, 2 segments\n" in ran.out
    assert "terms       13, the last 10 of them:\n" in ran.out
    assert "term 13     went on from term 12\n" in ran.out
    assert "DAMAGED: segments/00000001-000000000019-server-0-00000019.safetensors" in ran.out


def test_a_run_that_has_not_begun(scarml: Scarml) -> None:
    new_run(LocalStore("run"))
    ran = scarml("inspect", "run")
    assert (ran.code, ran.err) == (0, "")
    assert "saved       nothing yet\n" in ran.out
    assert "owner       none\n" in ran.out


def test_errors_are_one_sentence_with_their_exit_code(scarml: Scarml) -> None:
    a_run(LocalStore("newer"))
    Path("newer/SCAR-RUN").write_text('{"format": "scar-marker", "format_version": 99}')
    a_run(LocalStore("damaged"))
    Path("damaged/terms/00000001.base").write_text("{")
    for name, code, words in (
        ("nowhere", 2, "there is no run in nowhere"),
        ("newer", 4, "use a newer SCAR"),
        ("damaged", 4, "terms/00000001.base is damaged"),
        ("s4://bucket/run", 2, "expected a path"),
    ):
        ran = scarml("inspect", name)
        assert (ran.code, ran.out) == (code, "")
        assert words in ran.err
        assert ran.err.count("\n") == 1


def test_blocks_of_different_lengths(scarml: Scarml, tmp_path: Path) -> None:
    model, data = tiny_problem("lda")
    scar.Job(model, data, run=tmp_path / "lda", stop=scar.Stop(max_iters=2)).run()
    assert "blocks of value uint8 […]" in scarml("inspect", str(tmp_path / "lda")).out

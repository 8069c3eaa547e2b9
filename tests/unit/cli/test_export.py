"""``scarml export``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from tests.unit.cli.conftest import Scarml
from tests.unit.storage.test_rollback import a_run
from tests.unit.storage.test_run_folder import write

import scarml as scar
from scarml.storage.local import LocalStore
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment import Segment

OWN = """
from dataclasses import dataclass
import scarml as scar

@dataclass(frozen=True)
class Own(scar.QP):
    pass
"""


def test_a_finished_run_is_written_as_it_ended(scarml: Scarml) -> None:
    job = scar.Job(scar.QP(), run="run", stop=scar.Stop(max_iters=5))
    job.run()
    assert job._engine is not None
    ended = job._engine.state()["x"].value
    ran = scarml("export", "run", "out.safetensors")
    assert (ran.code, ran.err) == (0, "")
    assert np.array_equal(load_file("out.safetensors")["x.value"], ended)


def test_the_span_of_iterations_is_said_and_kept(scarml: Scarml) -> None:
    a_run(LocalStore("run"))
    ran = scarml("export", "run", "out.safetensors")
    assert (ran.code, ran.err) == (0, "")
    size = Path("out.safetensors").stat().st_size
    assert ran.out == f"out.safetensors: W (10 blocks), {size:,} bytes, values of iterations 160 to 190\n"
    with safe_open("out.safetensors", "numpy") as f:
        metadata = f.metadata()
    assert (metadata["oldest_iteration"], metadata["newest_iteration"]) == ("160", "190")
    assert metadata["blocks_at_x0"] == '{"W": 0}'
    again = scarml("export", "run", "out.safetensors")
    assert again.code == 2
    assert "is there already; name another file, or replace it with --force" in again.err
    forced = json.loads(scarml("export", "run", "out.safetensors", "--force", "--json").out)
    assert forced["tables"] == {"W": {"n_blocks": 10, "n_at_x0": 0, "fields": ["value"]}}
    assert (forced["size_bytes"], forced["oldest_iteration"], forced["damaged"]) == (size, 160, [])


def never_saved(model_path: str = "scarml.models.qp:QP") -> RunFolder:
    """Of a run of QP only block 1 was saved."""
    table = scar.QP().tables(None)[0]
    described = {"model": {"class": model_path, "parameters": {}}, "data": None, "seed": 3, "tables": []}
    run = RunFolder.create(LocalStore("run"), described)
    blocks = table.empty(np.array([1]))
    blocks.value[...] = 7.0
    run.write_segment(Segment(run.claim_term("new"), 1, 1, "server-0", 1, False, {"x": blocks}))
    return run


def test_a_built_in_model_makes_x0(scarml: Scarml) -> None:
    never_saved()
    ran = scarml("export", "run", "out.safetensors")
    assert (ran.code, ran.err) == (0, "")
    assert "values of iterations 0 to 1; 3 blocks at x(0), never saved" in ran.out
    model = scar.QP()
    start = model.init(model.tables(None)[0], np.arange(4), 3)["value"]
    start[1] = 7.0
    assert np.array_equal(load_file("out.safetensors")["x.value"], start)


def test_code_that_a_folder_names_runs_only_if_the_user_names_it_too(scarml: Scarml) -> None:
    Path("own_qp.py").write_text("open('was_run', 'w').close()\n" + OWN)
    never_saved("own_qp:Own")
    ran = scarml("export", "run", "out.safetensors")
    assert (ran.code, ran.out) == (2, "")
    assert "3 blocks of table 'x' were never saved: 0, 2, 3" in ran.err
    assert "if you trust it, give it with --model own_qp:Own" in ran.err
    assert not Path("was_run").exists()
    assert not Path("out.safetensors").exists()
    assert "was made by own_qp:Own, not by qp" in scarml("export", "run", "out.safetensors", "--model", "qp").err
    assert scarml("export", "run", "out.safetensors", "--model", "own_qp:Own").code == 0
    assert Path("was_run").exists()


@pytest.mark.parametrize("described", [{}, {"model": "mlr"}, {"model": {"class": "scarml.models.qp:QP"}, "seed": "x"}])
def test_a_description_that_makes_no_model_is_said(scarml: Scarml, described: dict[str, object]) -> None:
    run = RunFolder.create(LocalStore("run"), described)
    run.claim_term("new")
    write(run, 1, 1, ids=[0])
    ran = scarml("export", "run", "out.safetensors")
    assert ran.code == 2
    assert "9 blocks of table 'W' were never saved" in ran.err
    assert ran.err.count("\n") == 1


def test_errors_are_one_sentence_and_leave_no_file(scarml: Scarml) -> None:
    a_run(LocalStore("run"))
    Path("folder").mkdir()
    for args, words in (
        (["nowhere", "out"], "there is no run in nowhere"),
        (["run", "folder"], "folder is a folder; expected a file to write"),
        (["run", "no/out"], "there is no folder no to write out in"),
        (["run", "out", "--table", "V"], "there is no table 'V' in this run; there are W"),
    ):
        ran = scarml("export", *args)
        assert (ran.code, ran.out) == (2, "")
        assert words in ran.err
    assert not Path("out").exists()

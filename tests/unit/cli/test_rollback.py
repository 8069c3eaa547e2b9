"""``scarml rollback``."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Scarml
from tests.unit.storage.test_rollback import a_run
from tests.unit.storage.test_run_folder import new_run, write

from scarml.storage.local import LocalStore
from scarml.storage.run_folder import RunFolder


def make_run(name: str) -> RunFolder:
    """Full saves at iterations 80 and 160, and then partial ones up to 190."""
    return a_run(LocalStore(name))


def test_it_goes_back_and_says_from_where_to_where(scarml: Scarml) -> None:
    make_run("run")
    ran = scarml("rollback", "run", "--to-full", "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "run is back at iteration 160 (it was at 190); --resume auto goes on from there\n"
    again = scarml("rollback", "run", "--to-full", "--yes", "--json")
    assert json.loads(again.out) == {
        "schema_version": 1, "run": "run", "rolled_back": False, "iteration_before": 160, "iteration": 160,
        "full_save": {"term": 1, "commit": 16, "iteration": 160}, "term": None,
    }  # fmt: skip


def test_the_json_of_a_rollback(scarml: Scarml) -> None:
    make_run("run")
    done = json.loads(scarml("rollback", "run", "--to-full", "-y", "--json").out)
    assert (done["rolled_back"], done["iteration_before"], done["iteration"], done["term"]) == (True, 190, 160, 2)


@pytest.mark.parametrize(("answer", "is_back"), [("y\n", True), ("n\n", False)])
def test_on_a_terminal_it_asks(scarml: Scarml, monkeypatch: pytest.MonkeyPatch, answer: str, is_back: bool) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    make_run("run")
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    ran = scarml("rollback", "run", "--to-full")
    assert ran.code == 0
    assert (
        "stands at iteration 190, and its last complete full save is of iteration 160: going back gives up 30"
        in ran.err
    )
    assert "cannot be undone" in ran.err
    assert ("is back at iteration 160" in ran.out) == is_back
    assert ("is left as it is, at iteration 190" in ran.out) == (not is_back)


def test_elsewhere_it_wants_to_be_told(scarml: Scarml) -> None:
    make_run("run")
    ran = scarml("rollback", "run", "--to-full")
    assert ran.code == 2
    assert "gives up 30 iterations; nothing was done: confirm with --yes" in ran.err
    assert "back at" not in scarml("rollback", "run", "--to-full").out


def test_what_cannot_be_is_one_sentence(scarml: Scarml) -> None:
    run = new_run(LocalStore("partial"))
    write(run, run.claim_term("new"), 3)
    Path("file").write_text("")
    for args, code, sentence in (
        (["partial"], 2, "say where to go back to: --to-full"),
        (["partial", "--to-full"], 2, "there is no complete full save in this run to go back to"),
        (["nowhere", "--to-full"], 2, "there is no run in nowhere; expected a folder that scarml train --run has made"),
        (["file", "--to-full"], 2, "file is a file; expected the folder of a run"),
    ):
        ran = scarml("rollback", *args)
        assert (ran.code, ran.out) == (code, "")
        assert ran.err.startswith(f"scarml: error: {sentence}")
        assert ran.err.count("\n") == 1
    assert not Path("nowhere").exists()


def test_a_run_in_use_is_refused(scarml: Scarml) -> None:
    make_run("run")
    lock = LocalStore("run").lock("owner.lock", "process 7 on elsewhere")
    assert lock is not None
    ran = scarml("rollback", "run", "--to-full", "--yes")
    assert ran.code == 5
    assert "is in use by process 7 on elsewhere" in ran.err
    lock.release()

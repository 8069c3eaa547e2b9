"""Every wrong way of calling ends with one clear sentence on stderr and exit code 2."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Scarml

QP = ("train", "qp")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("train",), "no model is given"),
        (("train", "nope"), "no model 'nope'"),
        (("train", "nope:Nope"), "importing 'nope' failed"),
        (("train", "json:JSONDecoder"), "not a subclass"),
        (("train", "mlr"), "needs a data set; name one of"),
        (("train", "mlr", "--data", "nope"), "no data set 'nope'"),
        (("train", "mlr", "--data", "movielens"), "movielens"),
        (("train", "mlr", "--data", f"./{'x' * 300}.npz", "--run", "r"), ".npz cannot be reached: File name too long"),
        (("inspect", "x" * 300), "cannot be used: File name too long"),
        (("export", "nope", "x" * 300), "File name too long"),
        ((*QP, "--servers", "0"), "--servers is 0; expected at least 1"),
        ((*QP, "--workers", "-1"), "--workers is -1"),
        ((*QP, "--preset", "best"), "--preset 'best' is unknown; choose one of paper, general"),
        ((*QP, "--preset", "best", "--print-config"), "--preset 'best' is unknown"),
        ((*QP, "--policy", "nope:Nope", "--print-config"), "importing 'nope' failed"),
        ((*QP, "--encode", "int9", "--preset", "general"), "encoding 'int9' is unknown"),
        ((*QP, "--data", "nope:nope"), "importing 'nope' failed"),
        ((*QP, "--shards", "0"), "--shards is 0"),
        ((*QP, "--threads", "0"), "--threads is 0"),
        ((*QP, "--max-iters", "0"), "--max-iters is 0"),
        ((*QP, "--eval-every", "0"), "--eval-every is 0"),
        ((*QP, "--interval", "0"), "--interval is 0"),
        ((*QP, "--servers", "100000000000000000000"), "; expected at most 10,000"),
        ((*QP, "--shards", "100000000000000000000"), "; expected at most 1,000,000"),
        ((*QP, "--threads", "100000"), "; expected at most 1,000"),
        ((*QP, "--kill", "server-9@5"), "--kill server-9@5: there are server-0 to server-3"),
        ((*QP, "--kill", "servers:9@5"), "--kill servers:9@5: there are 4 servers"),
        ((*QP, "--kill", "servers:1@0"), "nodes can be lost on x(1) at the earliest"),
        ((*QP, "--servers", "x"), "--servers is 'x'; expected a whole number"),
        ((*QP, "--servers", "1.5"), "--servers is '1.5'; expected a whole number"),
        ((*QP, "--seed", "-1"), "--seed is -1; expected 0 or more"),
        ((*QP, "--fraction", "0"), "--fraction is 0"),
        ((*QP, "--fraction", "2"), "--fraction is 2"),
        ((*QP, "--fraction", "nan"), "--fraction 'nan' is not a number"),
        ((*QP, "--fraction", "1/0"), "--fraction '1/0' is not a number"),
        ((*QP, "--fraction", "1/9"), "expected at least one iteration between saves"),
        ((*QP, "--policy", "nope"), "nope"),
        ((*QP, "--policy", "full", "--fraction", "1/8"), "--policy full saves everything"),
        ((*QP, "--recovery", "full"), "--recovery full needs complete checkpoints"),
        ((*QP, "--recovery", "nope"), "'nope' is unknown"),
        ((*QP, "--budget-in", "nope"), "'nope' is unknown"),
        ((*QP, "--rank-by", "nope"), "'nope' is unknown"),
        ((*QP, "--encode", "nope"), "encoding 'nope' is unknown"),
        ((*QP, "--preset", "nope"), "--preset 'nope' is unknown; choose one of paper, general"),
        ((*QP, "--kill", "nope"), "--kill 'nope' is not understood"),
        ((*QP, "--fail-rate", "nan"), "--fail-rate is nan; expected a finite number"),
        ((*QP, "--fail-rate", "1"), "--fail-rate is 1.0"),
        ((*QP, "--stop-loss-sum", "nan"), "--stop-loss-sum is nan"),
        ((*QP, "--stop-loss-mean", "inf"), "--stop-loss-mean is inf"),
        ((*QP, "--stop-loss-sum", "1", "--stop-loss-mean", "1"), "choose one criterion"),
        ((*QP, "--pace", "-1"), "--pace is -1.0"),
        ((*QP, "--set", "condition"), "expected name=value"),
        ((*QP, "--set", "condition=abc"), "condition=abc is no float"),
        ((*QP, "--set", "condition=nan"), "condition is nan"),
        ((*QP, "--set", "nope=1"), "no hyper-parameter 'nope'"),
        ((*QP, "--resume", "nope"), "--resume 'nope' is unknown"),
        ((*QP, "--resume", "must"), "name its folder with --run"),
        ((*QP, "--resume", "must", "--run", "empty"), "there is no run"),
        ((*QP, "--run", ""), "--run is empty"),
        ((*QP, "--run", "file"), "--run file is a file"),
        ((*QP, "--run", "file/below"), "cannot be made"),
        ((*QP, "--run", "\0"), "cannot be made"),
        ((*QP, "--config", "nope.toml"), "cannot be read"),
        ((*QP, "--log-format", "nope"), "--log-format 'nope' is unknown"),
        ((*QP, "--nope"), "--nope"),
        (("nope",), "nope"),
    ],
    ids=lambda value: " ".join(value).replace("\0", "NUL") if isinstance(value, tuple) else "",
)
def test_one_sentence_and_exit_code_2(
    scarml: Scarml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], words: str
) -> None:
    monkeypatch.delenv("SCAR_DATA_DIR", raising=False)
    (tmp_path / "file").touch()
    ran = scarml(*args)
    complaint = ran.err.strip().splitlines()[-1]
    assert ran.code == 2
    assert complaint.startswith("scarml: error: ")
    assert words in complaint
    assert "Traceback" not in ran.err
    assert ran.out == ""
    assert sorted(p.name for p in tmp_path.rglob("*")) in (["file"], ["file", "scar-runs"])


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read and write everything")
def test_a_folder_without_permission(scarml: Scarml, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    ran = scarml("train", "qp", "--run", "locked")
    assert (ran.code, "check its permissions" in ran.err) == (2, True)
    assert scarml("train", "qp", "--run", "locked/below").code == 2


def test_a_folder_that_this_user_may_not_use(scarml: Scarml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scarml.cli.run_name.os.access", lambda *_: False)
    ran = scarml("train", "qp", "--run", str(tmp_path))
    assert (ran.code, "check its permissions" in ran.err) == (2, True)


def test_a_run_that_is_there_is_not_overwritten(scarml: Scarml) -> None:
    assert scarml("train", "qp", "--max-iters", "2", "--run", "a").code == 3
    ran = scarml("train", "qp", "--max-iters", "2", "--run", "a")
    assert (ran.code, "continue it with --resume auto" in ran.err) == (2, True)
    ran = scarml("train", "qp", "--max-iters", "2", "--run", "a", "--resume", "auto", "--seed", "1")
    assert (ran.code, "has seed 0, this command has 1" in ran.err) == (2, True)

"""``scarml figure``: what it lists, makes, refuses and leaves behind when it is interrupted."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Scarml

from scarml.experiments import bound_sweep


def test_list_names_figures_and_panels(scarml: Scarml) -> None:
    listed = json.loads(scarml("figure", "--list", "--json").out)
    assert listed["schema_version"] == 1
    assert [f["name"] for f in listed["figures"]] == [
        "qp-bound",
        "mlr-perturbations",
        "resets",
        "partial-recovery",
        "priority-checkpoints",
        "beyond",
        "repeated-failures",
    ]
    assert "figure 5" in scarml("figure", "--list").out


@pytest.mark.ci
def test_results_pictures_and_summary(tmp_path: Path, scarml: Scarml) -> None:
    args = ("figure", "qp-bound", "--quick", "--trials", "3", "--pictures", "img")
    ran = scarml(*args, "--json")
    (made,) = json.loads(ran.out)["figures"]
    assert [s["setting"] for s in made["settings"]] == ["single", "worst-case", "repeated"]
    assert all(s["trials"] == 3 and s["exceedances"] == 0 for s in made["settings"])
    assert sorted(p.name for p in (tmp_path / "img").iterdir()) == ["figure-3-qp.png", "figure-3-qp.svg"]
    folder = tmp_path / "scar-figures" / "figure-3-qp-quick"
    assert sorted(p.name for p in folder.iterdir()) == [
        "about.json",
        "repeated.csv.gz",
        "single.csv.gz",
        "worst-case.csv.gz",
    ]
    assert json.loads((folder / "about.json").read_text())["command"] == "scarml figure qp-bound --quick --trials 3"
    assert "single: 3 of 3" in ran.err
    again = scarml(*args, "-q")
    assert "0 above the bound" in again.out
    assert (ran.code, again.code, again.err) == (0, 0, "")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "which figure?"),
        (("no-such",), "there is no figure 'no-such'"),
        (("qp-bound", "--panel", "x"), "no panel 'x'"),
        (("partial-recovery", "--panel", "x"), "no panel 'x'"),
        (("all", "--panel", "x"), "one figure"),
        (("qp-bound", "--trials", "0"), "--trials is 0"),
        (("qp-bound", "--jobs", "0"), "expected at least 1"),
        (("qp-bound", "--backend", "x"), "backend 'x'"),
    ],
)
def test_what_is_wrong_is_said(args: tuple[str, ...], words: str, tmp_path: Path, scarml: Scarml) -> None:
    ran = scarml("figure", *args)
    assert ran.code == 2
    assert words in ran.err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_run(tmp_path: Path, scarml: Scarml) -> None:
    (tmp_path / "file").touch()
    for option in ("--out", "--pictures"):
        ran = scarml("figure", "qp-bound", "--quick", option, "file/results")
        assert (ran.code, ran.out) == (2, "")
        assert f"{option} file/results: " in ran.err
        assert "is a file; expected a folder" in ran.err
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("named", [True, False])
def test_a_full_disk_is_said_without_a_traceback(
    named: bool, tmp_path: Path, scarml: Scarml, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object, folder: Path, *__: object) -> None:
        name = [str(folder / "single.csv.gz")] if named else []
        raise OSError(errno.ENOSPC, "No space left on device", *name)

    monkeypatch.setattr(bound_sweep.BoundSweep, "run", full)
    ran = scarml("figure", "qp-bound", "--quick")
    assert ran.code == 4
    assert "cannot be written: No space left on device" in ran.err
    assert "Traceback" not in ran.err


def test_an_interrupt_says_how_to_go_on(scarml: Scarml, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bound_sweep.BoundSweep, "run", interrupted)
    ran = scarml("figure", "qp-bound", "--quick")
    assert ran.code == 75
    assert "the same command goes on" in ran.err

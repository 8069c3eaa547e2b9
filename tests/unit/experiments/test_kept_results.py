"""What is kept beside and among results: damaged files cost their own contents only, and are told of."""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from scarml.experiments.about import About
from scarml.experiments.kept_rows import KeptRows
from scarml.experiments.results import write_rows, write_whole


@dataclass(frozen=True)
class Row:
    trial: int
    cost: float


@pytest.mark.parametrize("damaged", ["", '{"comm', "[]", "{}", '{"minutes": null}'])
def test_minutes_of_a_damaged_file_are_counted_anew(damaged: str, tmp_path: Path) -> None:
    path = tmp_path / "about.json"
    path.write_text(damaged)
    with About(path, resumed=True).timing("scarml figure x", 1):
        pass
    assert json.loads(path.read_text())["minutes"] == 0


def test_a_write_without_room_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "about.json"
    write_whole(path, b"before")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"after")
    assert [p.name for p in tmp_path.iterdir()] == ["about.json"]
    assert path.read_bytes() == b"before"


def test_trials_of_a_damaged_file_are_run_again_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cell.csv.gz"
    write_rows(path, [Row(0, 1.5)], Row)
    assert KeptRows(path, Row, {}).missing(2) == [1]
    assert not caplog.records
    path.write_bytes(path.read_bytes()[:-9])
    assert KeptRows(path, Row, {}).missing(2) == [0, 1]
    assert "cell.csv.gz cannot be read" in caplog.text
    assert "run again" in caplog.text


def test_results_of_other_settings_are_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, aside = tmp_path / "cell.csv.gz", tmp_path / "cell.csv.gz.before"
    write_rows(path, [Row(0, 1.5), Row(1, 2.5)], Row)
    before = path.read_bytes()
    kept = KeptRows(path, Row, {"cost": 7.0})
    assert kept.missing(1) == [0]
    assert path.read_bytes() == before, "as long as there is nothing to put in its place"
    kept.add(Row(0, 7.0))
    assert kept.finish(1) == [Row(0, 7.0)]
    assert aside.read_bytes() == before
    assert "are kept as cell.csv.gz.before" in caplog.text
    assert KeptRows(path, Row, {"cost": 7.0}).finish(1) == [Row(0, 7.0)]
    assert aside.read_bytes() == before, "the same settings replace nothing"
    another = KeptRows(path, Row, {"cost": 9.0})
    another.add(Row(0, 9.0))
    another.finish(1)
    assert aside.read_bytes() == before, "what was set aside stays"
    assert (tmp_path / "cell.csv.gz.before-2").exists()

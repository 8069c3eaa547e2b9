from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from scarml.cli.config_file import read_config, to_toml
from scarml.cli.settings import Settings, from_everywhere
from scarml.errors import UsageError


def test_a_flag_beats_the_environment_that_beats_the_file_that_beats_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.toml"
    file.write_text('model = "qp"\nservers = 5\nworkers = 6\nshards = 7\n')
    monkeypatch.setenv("SCAR_SERVERS", "8")
    monkeypatch.setenv("SCAR_WORKERS", "9")
    s = from_everywhere({"servers": 10, "kill": []}, str(file))
    assert (s.servers, s.workers, s.shards, s.threads, s.kill) == (10, 9, 7, 2, ())


def test_lists_and_tables_come_from_every_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "run.toml"
    file.write_text('model = "mlr"\neval-every = 3\nkill = ["servers:1@2"]\n[set]\nbatch_size = 5\n')
    s = from_everywhere({}, str(file))
    assert (s.eval_every, s.kill, s.set) == (3, ("servers:1@2",), {"batch_size": 5})
    monkeypatch.setenv("SCAR_KILL", "servers:1@2, workers:1@3")
    monkeypatch.setenv("SCAR_SET", "batch_size=7")
    s = from_everywhere({"set": ["learning_rate=1e-5", "x=true", "y=abc"]}, str(file))
    assert s.kill == ("servers:1@2", "workers:1@3")
    assert s.set == {"learning_rate": 1e-5, "x": True, "y": "abc"}


def test_the_config_file_may_be_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.toml").write_text('model = "qp"\n')
    monkeypatch.setenv("SCAR_CONFIG", str(tmp_path / "a.toml"))
    assert from_everywhere({}, None).model == "qp"


def test_what_is_written_as_toml_is_read_as_the_same_settings(tmp_path: Path) -> None:
    s = Settings(model='a"b\\:C', kill=("servers:2@20",), stop_loss_sum=1e-9, set={"a": 1, "b": True, "c": "é\x7f"})
    file = tmp_path / "again.toml"
    file.write_text(to_toml(s.to_config()))
    assert tomllib.loads(file.read_text())["set"] == {"a": 1, "b": True, "c": "é\x7f"}
    assert from_everywhere({}, str(file)) == s


def test_the_description_of_a_run_is_a_config_file(tmp_path: Path) -> None:
    s = Settings(model="qp", servers=3)
    (tmp_path / "run.json").write_text(json.dumps({"description": {"config": s.to_config()}}))
    assert from_everywhere({}, str(tmp_path / "run.json")) == s


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("servers = 'x'", "expected a whole number"),
        ("servers = true", "expected a whole number"),
        ("fail_rate = 'x'", "expected a number"),
        ("kill = 3", "expected a list"),
        ("set = 3", "expected a table of names and values"),
        ("data = 3", "expected text"),
        ("fraction = true", "expected a number, or a fraction"),
        ("set = {a = [1]}", "numbers, text, true or false"),
        ("serverz = 3", "no setting 'serverz'"),
        ("servers = ", "is not TOML"),
        ("a\x00", "is not TOML"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(content)
    with pytest.raises(UsageError, match=complaint) as caught:
        from_everywhere({"model": "qp"}, str(file))
    assert "wrong.toml" in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_config(tmp_path / "missing.toml")
    with pytest.raises(UsageError, match="cannot be read"):
        read_config(tmp_path)
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="no text file"):
        read_config(tmp_path / "x.toml")
    for text in ("[]", "{", '{"description": {}}', '{"description": {"config": 3}}'):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(UsageError, match="no settings in it"):
            read_config(tmp_path / "run.json")


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAR_SEED", "abc")
    with pytest.raises(UsageError, match=r"SCAR_SEED is 'abc'; expected a whole number"):
        from_everywhere({"model": "qp"}, None)

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Scarml


def test_data_list_says_what_is_there_and_how_to_get_the_rest(
    scarml: Scarml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAR_DATA_DIR", str(tmp_path))
    found = json.loads(scarml("data", "list", "--json").out)
    present = {d["name"]: d["present"] for d in found["data_sets"]}
    assert (present["mnist-10k"], present["mnist"]) == (True, False)
    text = scarml("data", "list").out
    assert "comes with SCAR" in text
    assert str(tmp_path) in text


def test_models_lists_hyper_parameters_and_criteria(scarml: Scarml) -> None:
    found = {m["name"]: m for m in json.loads(scarml("models", "--json").out)["models"]}
    assert found["mlr"]["hyper_parameters"].keys() == {"learning_rate", "batch_size"}
    assert "--set learning_rate=" in scarml("models").out


def test_version(scarml: Scarml) -> None:
    ran = scarml("--version")
    assert (ran.code, ran.out.split()[0]) == (0, "scarml")


@pytest.mark.parametrize("args", [("--help",), ("train", "--help"), ("demo", "-h"), ("data", "list", "--help")])
def test_help(scarml: Scarml, args: tuple[str, ...]) -> None:
    ran = scarml(*args)
    assert (ran.code, "Usage: scarml" in ran.out) == (0, True)


def test_heavy_packages_load_on_demand() -> None:
    code = "import sys, scarml.cli; print(*{'numpy', 'numba', 'matplotlib', 'rich.live'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert loaded.stdout.split() == []

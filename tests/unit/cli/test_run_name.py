"""Where a run is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from scarml.cli.run_name import run_folder
from scarml.errors import UsageError


def test_a_url_of_a_store_is_given_back_as_it_is() -> None:
    with run_folder("memory://runs/first", "mlr", None) as folder:
        assert folder == "memory://runs/first"


def test_a_tilde_is_the_home_folder_wherever_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with run_folder("~/runs/first", "mlr", None) as folder:
        assert folder == tmp_path / "runs/first"
        assert (tmp_path / "runs/first").is_dir()


def test_a_url_of_no_store_is_refused() -> None:
    with pytest.raises(UsageError, match="no store for ftp://"), run_folder("ftp://host/run", "mlr", None):
        pass


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ("mnist-10k", "mlr-mnist-10k-1"),
        ("/data/my clicks.npz", "mlr-my-clicks.npz-1"),
        ("ratings:m.npz", "mlr-ratings-m.npz-1"),
    ],
)
def test_a_new_folder_is_named_after_model_and_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with run_folder(None, "mlr", data) as folder:
        assert Path(folder).name == name

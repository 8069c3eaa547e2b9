from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scarml.data.classification import Classification
from scarml.data.ratings import Ratings
from scarml.data.registry import list_data_sets, load
from scarml.errors import DataError


def test_names_are_unique_and_everything_is_said() -> None:
    data_sets = list_data_sets()
    assert [d.name for d in data_sets] == ["mnist", "mnist-10k", "movielens"]
    assert all(d.description and d.shape and d.terms and d.source for d in data_sets)


def test_packaged_data_is_present_without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCAR_DATA_DIR", raising=False)
    assert {d.name for d in list_data_sets() if d.present} == {"mnist-10k"}


def test_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(DataError, match="no data set 'minst'; there are mnist, mnist-10k, movielens"):
        load("minst")


@pytest.mark.parametrize("name", ["mnist", "movielens"])
def test_missing_folder_says_where_to_get_it_and_where_to_put_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCAR_DATA_DIR", raising=False)
    with pytest.raises(DataError, match=rf"data set '{name}' .*https?://.*\$SCAR_DATA_DIR/{name}"):
        load(name)


@pytest.mark.parametrize("name", ["mnist", "movielens"])
def test_missing_file_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAR_DATA_DIR", str(tmp_path))
    with pytest.raises(DataError, match=rf"missing {tmp_path}/{name}.*https?://.* put them into {tmp_path}/{name}"):
        load(name)
    assert not any(d.present for d in list_data_sets() if d.folder)


@pytest.mark.parametrize(
    ("features", "labels", "n_classes", "message"),
    [
        (np.zeros(3), np.zeros(3, int), 1, "expected a numeric matrix"),
        (np.zeros((3, 1)), np.zeros(2, int), 1, "expected 3 integers"),
        (np.zeros((3, 1)), np.zeros(3), 1, "expected 3 integers"),
        (np.zeros((3, 1)), np.zeros(3, int), 0, "expected at least 1"),
        (np.zeros((3, 1)), np.array([0, 2, 3]), 3, "example 2 has label 3; expected 0 to 2"),
        (np.zeros((3, 1)), np.array([0, -1, 3]), 3, "example 1 has label -1; expected 0 to 2"),
    ],
)
def test_wrong_classification_is_refused(features: object, labels: object, n_classes: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Classification(features, labels, n_classes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("user", "item", "rating", "message"),
    [
        ([0], [0, 1], [1.0], "three arrays of one length"),
        ([0, 2], [0, 1], [1.0, 1.0], "rating 1 has user 2; expected 0 to 1"),
        ([0, 1], [-1, 1], [1.0, 1.0], "rating 0 has item -1; expected 0 to 2"),
        ([0.0, 1.0], [0, 1], [1.0, 1.0], "user indices have dtype float64"),
        ([0, 1], [0, 1], [1.0, float("nan")], "rating 1 is not a finite number"),
    ],
)
def test_wrong_ratings_are_refused(user: list[int], item: list[int], rating: list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Ratings(np.array(user), np.array(item), np.array(rating), n_users=2, n_items=3)

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scarml.data.classification import Classification
from scarml.data.own_file import is_path
from scarml.data.ratings import Ratings
from scarml.data.registry import DataSet, list_data_sets, load
from scarml.errors import DataError

NAMES = [
    "mnist",
    "mnist-10k",
    "movielens",
    "covtype",
    "jester",
    "20newsgroups",
    "20newsgroups-5k",
    "reuters-r52",
    "reuters-r8",
    "reuters-395",
    "kos",
]
WITH_FILES = [d for d in list_data_sets() if d.folder]


def test_names_are_unique_and_everything_is_said() -> None:
    data_sets = list_data_sets()
    assert [d.name for d in data_sets] == NAMES
    assert not any(is_path(d.name) for d in data_sets)
    assert all(d.description and d.shape and d.terms and d.source for d in data_sets)


def test_packaged_data_is_present_without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCAR_DATA_DIR", raising=False)
    assert {d.name for d in list_data_sets() if d.present} == {"mnist-10k"}


def test_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(DataError, match=r"no data set 'minst'; there are mnist, mnist-10k, .* by its path"):
        load("minst")


@pytest.mark.parametrize("data_set", WITH_FILES, ids=lambda d: d.name)
def test_missing_folder_says_where_to_get_it_and_where_to_put_it(
    data_set: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCAR_DATA_DIR", raising=False)
    with pytest.raises(DataError, match=rf"data set '{data_set.name}' .*https?://.*\$SCAR_DATA_DIR/{data_set.folder}/"):
        load(data_set.name)


@pytest.mark.parametrize("data_set", WITH_FILES, ids=lambda d: d.name)
def test_missing_file_is_named(data_set: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAR_DATA_DIR", str(tmp_path))
    folder = tmp_path / data_set.folder
    with pytest.raises(DataError, match=rf"missing {folder}/{data_set.files[0]}.*https?://.* put them into {folder}/"):
        load(data_set.name)
    assert not any(d.present for d in list_data_sets() if d.folder)


@pytest.mark.parametrize("data_set", [d for d in WITH_FILES if d.any_of], ids=lambda d: d.name)
def test_one_of_several_files_is_enough(data_set: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAR_DATA_DIR", str(tmp_path))
    (tmp_path / data_set.folder).mkdir()
    for file in reversed(data_set.files):
        (tmp_path / data_set.folder / file).touch()
        assert data_set.present
        with pytest.raises(DataError, match=rf"{data_set.folder}/{file} "):  # which is empty
            load(data_set.name)


@pytest.mark.usefixtures("data_dir")
def test_all_files_are_there() -> None:
    assert [d.name for d in list_data_sets() if not d.present] == []


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


def test_classes_have_a_name_each() -> None:
    with pytest.raises(DataError, match=r"classes have shape \(1,\); expected n_classes, 2 names"):
        Classification(np.zeros((1, 1)), np.zeros(1, int), 2, np.array(["a"]))


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

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scarml.data.svmlight import read_svmlight
from scarml.errors import DataError


def write(folder: Path, *lines: str) -> Path:
    (folder / "a.svmlight").write_text("".join(f"{line}\n" for line in lines))
    return folder / "a.svmlight"


def test_lines_become_dense_rows(tmp_path: Path) -> None:
    data = read_svmlight(write(tmp_path, "# head", "+1 1:0.5 3:-2e1 # one", "", "-1", "1 2:7"))
    assert data.features.dtype == np.float32
    assert data.features.tolist() == [[0.5, 0, -20], [0, 0, 0], [0, 7, 0]]
    assert data.labels.tolist() == [1, 0, 1]
    assert data.classes is not None
    assert data.classes.tolist() == [-1, 1]


def test_indices_from_0_are_recognised(tmp_path: Path) -> None:
    assert read_svmlight(write(tmp_path, "0 1:1", "1 0:2 1:3")).features.tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("x 1:1", "has 'x'; expected a finite number"),
        ("nan 1:1", "has 'nan'"),
        ("1_0 1:1", "has '1_0'"),
        ("1 1:x", "has 'x'"),
        ("1 1:inf", "has 'inf'"),
        ("1 1", "has '1'; expected index:value"),
        ("1 a:1", "has 'a:1'; expected index:value"),
        ("1 -1:1", "expected index:value"),
        ("1 2:1 1:1", "has '1:1'; .*ascending"),
        ("1 2:1 2:1", "ascending"),
        (f"1 {2**31}:1", "expected index:value"),
        ("1 qid:3 1:1", "expected index:value"),
    ],
)
def test_wrong_line_is_named(tmp_path: Path, wrong: str, message: str) -> None:
    with pytest.raises(DataError, match=rf"a\.svmlight, line 2 .*{message}"):
        read_svmlight(write(tmp_path, "1 1:1", wrong))


def test_labels_that_are_no_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"example 1 has label 0\.5; expected whole numbers or text"):
        read_svmlight(write(tmp_path, "1 1:1", "0.5 1:1"))


def test_value_beyond_float32_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="example 1: feature 1 is inf"):
        read_svmlight(write(tmp_path, "1 1:1", "0 2:1e300"))


def test_dense_features_are_bounded(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"2 rows of 2,147,483,647 features, which are .* at most 4,294,967,296"):
        read_svmlight(write(tmp_path, "1 1:1", f"0 {2**31 - 1}:1"))


def test_file_without_examples_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no examples"):
        read_svmlight(write(tmp_path, "# nothing"))

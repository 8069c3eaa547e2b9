from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scarml.data.jester import load_jester, read_jester
from scarml.errors import DataError


def write(path: Path, **replaced: np.ndarray) -> Path:
    arrays: dict[str, np.ndarray] = {
        "user": np.array([9, 2, 2], np.uint16),
        "joke": np.array([150, 5, 7], np.uint8),
        "rating_x1000": np.array([-10_000, 10_000, 2_500], np.int16),
    }
    np.savez(path, **{**arrays, **replaced})  # type: ignore[arg-type]
    return path


def test_ratings_are_rescaled_and_ids_become_dense(tmp_path: Path) -> None:
    data = read_jester(write(tmp_path / "j.npz"))
    assert data.rating.tolist() == [0, 10, 6.25]
    assert (data.user.tolist(), data.item.tolist()) == ([1, 0, 0], [2, 0, 1])
    assert (data.n_users, data.n_items) == (2, 3)
    assert data.item_ids is not None
    assert data.item_ids.tolist() == [5, 7, 150]


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"rating_x1000": np.array([0, 10_001, 0])}, "rating 1 is 10001; expected thousandths"),
        ({"rating_x1000": np.array([0, 1, 0.5])}, "array 'rating_x1000' is float64"),
        ({"joke": np.array([1, 2])}, "array 'joke' is"),
        ({"user": np.array([2, 2, 2]), "joke": np.array([1, 5, 1])}, "rates a joke by one user twice"),
        ({name: np.zeros(0, int) for name in ("user", "joke", "rating_x1000")}, "there are no ratings"),
    ],
)
def test_wrong_array_is_named(tmp_path: Path, replaced: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=rf"j\.npz.* {message}"):
        read_jester(write(tmp_path / "j.npz", **replaced))


@pytest.mark.usefixtures("data_dir")
def test_counts_are_those_of_the_part() -> None:
    data = load_jester()
    assert (data.n_ratings, data.n_users, data.n_items) == (385_416, 13_095, 140)
    per_user = np.bincount(data.user)
    assert (per_user.min(), np.median(per_user), per_user.max()) == (2, 16, 140)
    assert (data.rating.min(), data.rating.max()) == (0, 10)
    assert data.item_ids is not None
    assert sorted(set(range(1, 151)) - set(data.item_ids.tolist())) == [1, 2, 3, 4, 6, 9, 10, 11, 12, 14]

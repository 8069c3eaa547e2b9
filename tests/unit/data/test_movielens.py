from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.data.movielens import load_movielens, read_ratings
from scarml.errors import DataError

HEADER = "userId,movieId,rating,timestamp"


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_bytes(end.join([*lines, ""]).encode())
    return path


def test_counts_are_the_published_ones(data_dir: Path) -> None:
    data = load_movielens()
    assert (data.n_ratings, data.n_users, data.n_items) == (100_004, 671, 9_066)
    values, counts = np.unique(data.rating, return_counts=True)
    assert values.tolist() == [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5]
    assert counts.tolist() == [1101, 3326, 1687, 7271, 4449, 20064, 10538, 28750, 7723, 15095]
    assert data.user_ids is not None
    assert data.user_ids.tolist() == list(range(1, 672))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_ids_become_dense_in_ascending_order(tmp_path: Path, end: str) -> None:
    data = read_ratings(write(tmp_path / "r.csv", HEADER, "9,31,2.5,7", "7,31,4.0,8", "9,10,0.5,9", end=end))
    assert data.user.tolist() == [1, 0, 1]
    assert data.item.tolist() == [1, 1, 0]
    assert data.rating.tolist() == [2.5, 4.0, 0.5]
    assert data.user_ids is not None
    assert data.item_ids is not None
    assert (data.user_ids.tolist(), data.item_ids.tolist()) == ([7, 9], [10, 31])


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        " ",
        "1,2",
        "1,2,3.0,4,5",
        "x,2,3.0,4",
        "1,2,nan,4",
        "1,2,inf,4",
        "1,2.5,3.0,4",
        "1,2,three,4",
        "#",
        f"{2**63},2,3.0,4",
    ],
)
@pytest.mark.parametrize("line", [2, 3, 4])
def test_wrong_line_is_named(tmp_path: Path, wrong: str, line: int) -> None:
    lines = [HEADER, "1,1,3.0,4", "2,1,3.0,4", "3,1,3.0,4"]
    lines[line - 1] = wrong
    with pytest.raises(DataError, match=rf"r\.csv, line {line} is"):
        read_ratings(write(tmp_path / "r.csv", *lines))


def test_missing_header_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"r\.csv, line 1 is '1,1,3\.0,4'; expected 'userId"):
        read_ratings(write(tmp_path / "r.csv", "1,1,3.0,4"))


@pytest.mark.parametrize("lines", [[], [HEADER]])
def test_empty_file_is_an_error(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(DataError, match=r"r\.csv"):
        read_ratings(write(tmp_path / "r.csv", *lines))


def test_bytes_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_bytes(b"\xff\x00\x1f\x8b")
    with pytest.raises(DataError, match=r"r\.csv cannot be read"):
        read_ratings(tmp_path / "r.csv")


def test_pair_rated_twice_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", HEADER, "1,1,3.0,4", "2,1,3.0,4", "1,1,3.5,4")
    with pytest.raises(DataError, match="line 4 rates movie 1 by user 1 again, after line 2"):
        read_ratings(path)


@given(
    st.dictionaries(
        st.tuples(st.integers(1, 99), st.integers(1, 99)), st.sampled_from([0.5, 1.0, 3.5, 5.0]), min_size=1
    )
)
def test_every_rating_is_kept(tmp_path_factory: pytest.TempPathFactory, ratings: dict[tuple[int, int], float]) -> None:
    lines = [f"{u},{i},{r},0" for (u, i), r in ratings.items()]
    data = read_ratings(write(tmp_path_factory.mktemp("ratings") / "r.csv", HEADER, *lines))
    assert data.user_ids is not None
    assert data.item_ids is not None
    users, items = data.user_ids[data.user].tolist(), data.item_ids[data.item].tolist()
    assert dict(zip(zip(users, items, strict=True), data.rating.tolist(), strict=True)) == ratings

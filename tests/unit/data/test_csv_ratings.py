from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.data.csv_ratings import read_csv_ratings
from scarml.data.ratings import Ratings
from scarml.errors import DataError


def write(folder: Path, *lines: str, name: str = "r.csv", end: str = "\n") -> Path:
    (folder / name).write_bytes(end.join([*lines, ""]).encode())
    return folder / name


def triples(data: Ratings) -> list[tuple[object, object, float]]:
    assert data.user_ids is not None
    assert data.item_ids is not None
    users, items = data.user_ids[data.user].tolist(), data.item_ids[data.item].tolist()
    return list(zip(users, items, data.rating.tolist(), strict=True))


@pytest.mark.parametrize(
    "lines",
    [
        ["user,item,rating", "7,10,2.5", "-3,9,4"],
        ["7,10,2.5", "-3,9,4"],
        ["timestamp,Rating,movieId,userId", "0,2.5,10,7", "0,4,9,-3"],
        ["7,10,2.5,881250949", "-3,9,4,881250949"],
        ["\ufeffuser_id,item_id,rating", "7,10,2.5", "-3, 9, 4"],
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_columns_are_found(tmp_path: Path, lines: list[str], end: str) -> None:
    data = read_csv_ratings(write(tmp_path, *lines, end=end))
    assert triples(data) == [(7, 10, 2.5), (-3, 9, 4.0)]
    assert data.user.tolist() == [1, 0]  # in ascending order of the names


def test_tabs(tmp_path: Path) -> None:
    assert triples(read_csv_ratings(write(tmp_path, "7\ta,b\t3", name="r.tsv"))) == [(7, "a,b", 3.0)]


def test_names_may_be_text(tmp_path: Path) -> None:
    data = read_csv_ratings(write(tmp_path, "user,item,rating", 'zoë,"tea, black",4.5', "007,ink,2"))
    assert triples(data) == [("zoë", "tea, black", 4.5), ("007", "ink", 2.0)]


@pytest.mark.parametrize(
    "wrong",
    ["", "1,2", "1,2,3,4", "1,2,x", "1,2,nan", "1,2,inf", "1,2,1_0", ",2,3", "1, ,3", "1,2,", '1,"2,3', "1,2,1e99999"],
)
@pytest.mark.parametrize("line", [2, 3])
def test_wrong_line_is_named(tmp_path: Path, wrong: str, line: int) -> None:
    lines = ["1,1,3.0", "2,1,3.0", "3,1,3.0"]
    lines[line - 1] = wrong
    with pytest.raises(DataError, match=rf"r\.csv, line {line} .*expected user, item and a finite rating"):
        read_csv_ratings(write(tmp_path, *lines))


def test_header_of_other_names_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 1 is 'uid,iid,score'; .*, or a header line with these names"):
        read_csv_ratings(write(tmp_path, "uid,iid,score", "1,2,3"))


def test_rating_beyond_float32_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"r\.csv, line 3 has rating 1e\+300"):
        read_csv_ratings(write(tmp_path, "user,item,rating", "1,2,3", "2,2,1e300"))


@pytest.mark.parametrize("lines", [[], ["user,item,rating"], ["who,what,how"], ["user,user,item,rating", "1,2,3,4"]])
def test_file_without_ratings_is_an_error(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(DataError, match=r"r\.csv"):
        read_csv_ratings(write(tmp_path, *lines))


def test_pair_rated_twice_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "user,item,rating", "a,x,3", "b,x,3", "a,x,4")
    with pytest.raises(DataError, match="line 4 rates x by a again, after line 2"):
        read_csv_ratings(path)


@given(
    st.dictionaries(
        st.tuples(st.integers(-5, 99), st.integers(1, 99)), st.sampled_from([0.5, 1.0, 3.5, 5.0]), min_size=1
    )
)
def test_every_rating_is_kept(tmp_path_factory: pytest.TempPathFactory, ratings: dict[tuple[int, int], float]) -> None:
    path = write(tmp_path_factory.mktemp("ratings"), *(f"{u},{i},{r}" for (u, i), r in ratings.items()))
    data = read_csv_ratings(path)
    assert triples(data) == [(u, i, r) for (u, i), r in ratings.items()]
    assert data.user_ids is not None
    assert sorted(data.user_ids.tolist()) == data.user_ids.tolist()

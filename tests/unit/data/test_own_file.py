from __future__ import annotations

import contextlib
import gzip
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scarml.core.rng import stream
from scarml.data.classification import Classification
from scarml.data.corpus import Corpus
from scarml.data.own_file import KINDS, READERS, read_own_file
from scarml.data.ratings import Ratings
from scarml.data.registry import load
from scarml.errors import DataError

MATRIX = np.array([[0, 2, 0], [1, 0, 3], [0, 0, 0]])


def save(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


# ------------------------------------------------------------------------------------------------------------ the rule
def test_path_is_found_by_its_suffix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r.CSV").write_text("1,2,3\n")
    (tmp_path / "docword.a.txt.gz").write_bytes(gzip.compress(b"1\n1\n1\n1 1 1\n"))
    (tmp_path / "a.ldac").write_text("1 0:1\n")
    (tmp_path / "a.libsvm").write_text("1 1:1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, kind in [
        ("r.CSV", Ratings),
        (str(tmp_path / "docword.a.txt.gz"), Corpus),
        ("./a.ldac", Corpus),
        ("~/a.libsvm", Classification),
        ("corpus:a.ldac", Corpus),
    ]:
        assert type(load(name)) is kind


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nowhere.csv", r"the data file nowhere\.csv is not there"),
        ("ratings:nowhere.csv", r"the data file nowhere\.csv is not there"),
        ("~nobody/a.csv", "is not there"),
        ("./folder.npz", "is a folder; expected a file"),
        ("./a.xls", r"a\.xls ends in '\.xls', which nothing here reads; expected one of \.npz, \.parquet"),
        ("./none", r"none ends in 'nothing'"),
        ("corpus:r.csv", r"r\.csv is read as ratings; expected corpus"),
        ("s3://bucket/a.csv", "is not there"),
        ("a\0b.csv", "is not there"),
    ],
)
def test_wrong_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.csv").write_text("1,2,3\n")
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "a.xls").touch()
    (tmp_path / "none").touch()
    with pytest.raises(DataError, match=message):
        load(name)


# ----------------------------------------------------------------------------------------------------------- npz files
@pytest.mark.parametrize(("features", "labels"), [("features", "labels"), ("X", "y")])
def test_labelled_examples(tmp_path: Path, features: str, labels: str) -> None:
    path = save(tmp_path / "a.npz", **{features: np.eye(3, dtype=np.uint8), labels: np.array(["b", "a", "b"])})
    data = read_own_file(str(path))
    assert isinstance(data, Classification)
    assert data.labels.tolist() == [1, 0, 1]
    assert data.classes is not None
    assert data.classes.tolist() == ["a", "b"]


def test_ratings_in_arrays(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", user=np.array([7, 5]), item=np.array([3, 4]), rating=np.array([1.5, 2]))
    data = read_own_file(str(path))
    assert isinstance(data, Ratings)
    assert (data.user.tolist(), data.rating.tolist()) == ([1, 0], [1.5, 2.0])
    save(path, user=np.array([7, 7]), item=np.array([3, 3]), rating=np.array([1.5, 2]))
    with pytest.raises(DataError, match=r"rating 1, counted from 0, rates 3 by 7 again, after rating 0, .*0;"):
        read_own_file(str(path))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": np.zeros(3), "labels": np.zeros(3)}, "expected a matrix of numbers, and one label"),
        ({"features": np.zeros((3, 1)), "labels": np.zeros(2)}, "expected a matrix of numbers, and one label"),
        ({"features": np.zeros((0, 1)), "labels": np.zeros(0)}, "has no examples"),
        ({"features": np.array([["a"]]), "labels": np.zeros(1)}, "expected a matrix of numbers"),
        ({"features": np.array([[0, np.nan]]), "labels": np.zeros(1)}, "example 0: feature 1 is nan"),
        ({"features": np.zeros((2, 1)), "labels": np.array([0, 1e300])}, "example 1 has label 1e"),
        ({"features": np.zeros((1, 1)), "labels": np.array([b"a"])}, "labels of"),
        ({"features": np.zeros((2**16 + 1, 1)), "labels": np.arange(2**16 + 1)}, "different labels; expected at most"),
        ({"user": np.zeros(2, int), "item": np.zeros(1, int), "rating": np.zeros(2)}, "array 'item' is"),
        ({"other": np.zeros(2)}, "has the arrays other; expected features and labels"),
        ({}, "has the arrays none; expected"),
    ],
)
def test_wrong_arrays_are_named(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=rf"a\.npz.*{message}"):
        read_own_file(str(save(tmp_path / "a.npz", **arrays)))


# ----------------------------------------------------------------------------------------------------- sparse matrices
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("as_array", [False, True])
def test_sparse_matrix_is_what_the_word_before_it_says(tmp_path: Path, form: str, as_array: bool) -> None:
    make = sp.coo_array if as_array else sp.coo_matrix
    sp.save_npz(tmp_path / "m.npz", make(MATRIX).asformat(form))
    ratings, corpus = load(f"ratings:{tmp_path}/m.npz"), load(f"corpus:{tmp_path}/m.npz")
    triples = sorted(zip(ratings.user.tolist(), ratings.item.tolist(), ratings.rating.tolist(), strict=True))
    assert triples == [(0, 1, 2.0), (1, 0, 1.0), (1, 2, 3.0)]
    assert (ratings.n_users, ratings.n_items) == (3, 3)
    assert sorted(corpus.words[:2].tolist()) == [1, 1]
    assert sorted(corpus.words[2:].tolist()) == [0, 2, 2, 2]
    assert corpus.lengths.tolist() == [2, 4, 0]
    with pytest.raises(DataError, match=r"may be many things; .* ratings:.*m\.labels\.npy"):
        load(f"{tmp_path}/m.npz")
    with pytest.raises(DataError, match=r"m\.labels\.npy cannot be read"):
        load(f"classification:{tmp_path}/m.npz")
    np.save(tmp_path / "m.labels.npy", np.array([5, 6, 5]))
    data = load(f"{tmp_path}/m.npz")
    assert (data.features.tolist(), data.labels.tolist()) == (MATRIX.tolist(), [0, 1, 0])


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"format": np.array(b"dia")}, "in form 'dia'; expected one of csr, csc, coo"),
        ({"format": np.array([1, 2])}, "in form ''"),
        ({"shape": np.array([3, 3, 3])}, "array 'shape' is"),
        ({"shape": np.array([3, -1])}, "3 rows and -1 columns"),
        ({"shape": np.array([2, 3])}, "array 'indptr' is"),
        ({"shape": np.array([3, 2])}, "indices is from 0 to 2; expected 0 to 1"),
        ({"indptr": np.array([0, 2, 1, 3])}, "indptr does not rise from 0 to 3"),
        ({"indices": np.array([0, 1])}, "array 'indices' is"),
        ({"data": np.array([1, 2, np.inf])}, "not finite"),
        ({"data": np.array(["a", "b", "c"])}, "array 'data' is"),
        ({"data": np.array([1, 2, 0.5])}, "has the count 0.5; expected whole numbers"),
        ({"data": np.array([1, 2, -1])}, "count -1 is not from 1"),
        ({"data": np.array([1, 2, 1e300])}, "is not from 1 to"),
        ({"shape": np.array([3, 2**27])}, "134,217,728 words; expected"),
        ({"shape": np.array([3, 2**40])}, "3 rows and 1099511627776 columns"),
    ],
)
def test_wrong_sparse_matrix_is_named(tmp_path: Path, replaced: dict[str, np.ndarray], message: str) -> None:
    sp.save_npz(tmp_path / "m.npz", sp.csr_array(MATRIX))
    arrays = dict(np.load(tmp_path / "m.npz"))
    with pytest.raises(DataError, match=rf"m\.npz.*{message}"):
        load(f"corpus:{save(tmp_path / 'm.npz', **{**arrays, **replaced})}")


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int8", "uint64", "float32"])
def test_counts_and_ratings_have_any_dtype(tmp_path: Path, dtype: str) -> None:
    sp.save_npz(tmp_path / "m.npz", sp.csr_array(MATRIX.astype(dtype)))
    n_tokens = MATRIX.astype(dtype).astype(int).sum()
    assert load(f"corpus:{tmp_path}/m.npz").n_tokens == n_tokens
    assert load(f"ratings:{tmp_path}/m.npz").rating.sum() == n_tokens


def test_rows_without_entries_do_not_fill_the_memory(tmp_path: Path) -> None:
    for rows, message in [(2**40, "1099511627776 rows"), (2**27, "134,217,728 documents")]:
        entries = {"row": np.array([0]), "col": np.array([0]), "data": np.array([1e39])}
        save(tmp_path / "m.npz", format=np.array(b"coo"), shape=np.array([rows, 3]), **entries)
        with pytest.raises(DataError, match=message):
            load(f"corpus:{tmp_path}/m.npz")
    with pytest.raises(DataError, match=r"has the rating 1e\+39; expected one that float32 can hold"):
        load(f"ratings:{tmp_path}/m.npz")


def test_place_with_two_ratings_is_an_error(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "m.npz", sp.coo_array(([1, 2], ([0, 0], [1, 1])), shape=(2, 2)))
    with pytest.raises(DataError, match="two entries in one place"):
        load(f"ratings:{tmp_path}/m.npz")


# ------------------------------------------------------------------------------------------------------------- parquet
def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").touch()
    with pytest.raises(DataError, match=r"a\.parquet needs pyarrow, .*: pip install 'scarml\[parquet\]'"):
        load(f"{tmp_path}/a.parquet")


def write_parquet(path: Path, **columns: object) -> str:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), path)
    return str(path)


def test_parquet(tmp_path: Path) -> None:
    data = load(write_parquet(tmp_path / "a.parquet", x=[1, 2, 3], label=["b", "a", "b"], y=[0.5, 1.5, 2.5]))
    assert (data.features.tolist(), data.labels.tolist()) == ([[1, 0.5], [2, 1.5], [3, 2.5]], [1, 0, 1])
    ratings = load(write_parquet(tmp_path / "r.parquet", when=[0, 0], rating=[1.5, 2], userId=[7, 5], item=["x", "y"]))
    assert (ratings.user.tolist(), ratings.item_ids.tolist()) == ([1, 0], ["x", "y"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": [1, 2]}, "has the columns x; expected label and features, or user, item and rating"),
        ({"label": [1, 2]}, "expected label, features, and none twice"),
        ({"label": [1, None], "x": [1, 2]}, "column 'label' has 1 missing values"),
        ({"label": [1, 2], "x": ["a", "b"]}, "column 'x' is <U1; expected numbers"),
        ({"label": [1, 2], "x": [1.0, float("nan")]}, "example 1: feature 0 is nan"),
        ({"user": [1, 1], "item": [2, 2], "rating": [3, 4]}, "row 1, counted from 0, rates 2 by 1 again"),
        ({"user": [1], "item": [2], "rating": ["x"]}, "1 ratings of <U1; expected numbers"),
        ({"user": [1], "item": [2], "rating": [float("inf")]}, "has rating inf"),
    ],
)
def test_wrong_parquet_is_named(tmp_path: Path, columns: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=rf"a\.parquet.*{message}"):
        load(write_parquet(tmp_path / "a.parquet", **columns))


def test_parquet_that_is_none_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more PAR1")
    with pytest.raises(DataError, match=r"a\.parquet cannot be read .*; expected a Parquet file"):
        load(f"{tmp_path}/a.parquet")


def test_parquet_with_categories_and_columns_that_are_not_wanted(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    label = pyarrow.array(["b", "a", "b"]).dictionary_encode()
    data = load(write_parquet(tmp_path / "a.parquet", x=[True, False, True], label=label))
    assert (data.labels.tolist(), data.features.tolist()) == ([1, 0, 1], [[1], [0], [1]])
    when = pyarrow.array([0], pyarrow.timestamp("s"))
    assert load(write_parquet(tmp_path / "r.parquet", user=[1], item=[2], rating=[3], when=when)).n_ratings == 1
    with pytest.raises(DataError, match=r"column 'when' is datetime64\[.*\]; expected numbers"):
        load(write_parquet(tmp_path / "w.parquet", label=[1], when=when))


def test_parquet_with_flipped_bytes_is_read_or_refused(tmp_path: Path, base_seed: int) -> None:
    path = Path(write_parquet(tmp_path / "a.parquet", x=[1, 2, 3], label=["b", "a", "b"]))
    whole, rng = path.read_bytes(), stream(base_seed, "flipped parquet")
    for at in rng.choice(len(whole), 50, replace=False):
        changed = bytearray(whole)
        changed[at] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        with contextlib.suppress(DataError):
            load(str(path))


# ---------------------------------------------------------------------------------------------------------- any damage
@pytest.fixture
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a wrong number asks for within the real limits may be gigabytes."""
    monkeypatch.setattr("scarml.data.labelled_rows.MAX_DENSE_BYTES", 2**16)
    monkeypatch.setattr("scarml.data.counts.MAX_TOKENS", 2**16)


SUFFIXES = [suffix for suffix in READERS if suffix != ".parquet"]
GOOD = {
    ".csv": b"user,item,rating\n1,2,3.5\n2,2,1\n",
    ".tsv": b"1\t2\t3.5\n",
    ".svmlight": b"1 1:0.5 3:2\n-1 2:1 # x\n",
    ".libsvm": b"1 0:0.5 3:2\n",
    ".ldac": b"2 0:1 3:2\n1 1:1\n",
    ".txt": b"2\n3\n2\n1 1 2\n2 3 1\n",
}


@pytest.mark.parametrize("name", [f"{'x' * 300}.csv", f"{'x' * 300}/a.npz"])
def test_a_name_that_is_too_long_is_refused(name: str) -> None:
    with pytest.raises(DataError, match=r"cannot be reached: File name too long"):
        load(f"./{name}")


def test_a_folder_that_must_not_be_entered_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refuse)  # root may enter every folder
    with pytest.raises(DataError, match=r"a\.csv cannot be reached: Permission denied"):
        load(str(tmp_path / "a.csv"))
    monkeypatch.setenv("SCAR_DATA_DIR", str(tmp_path))
    with pytest.raises(DataError, match=r"ratings\.csv cannot be reached: Permission denied"):
        load("movielens")


@pytest.mark.usefixtures("_small_limits")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the limits are the same for every example
@given(st.sampled_from(SUFFIXES), st.sampled_from(["", ".gz"]), st.sampled_from(["", *KINDS]), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, packed: str, kind: str, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / f"a{suffix}{packed}"
    path.write_bytes(gzip.compress(content) if packed else content)
    with contextlib.suppress(DataError):
        load(f"{kind}:{path}" if kind else str(path))


@pytest.mark.usefixtures("_small_limits")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the limits are the same for every example
@given(st.sampled_from(list(GOOD)), st.data())
def test_text_with_a_changed_place_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, data: st.DataObject
) -> None:
    good = GOOD[suffix]
    at = data.draw(st.integers(0, len(good)))
    put = data.draw(st.binary(max_size=3) | st.sampled_from([b"9" * 30, b"-1", b"1e999", b"\n\n", b"99999999"]))
    path = tmp_path_factory.mktemp("changed") / f"a{suffix}"
    path.write_bytes(good[:at] + put + good[at + data.draw(st.integers(0, 3)) :])
    with contextlib.suppress(DataError):
        load(str(path))


@pytest.mark.parametrize("kind", ["classification", "ratings", "corpus"])
def test_archives_with_flipped_bytes_are_read_or_refused(tmp_path: Path, kind: str, base_seed: int) -> None:
    sp.save_npz(tmp_path / "m.npz", sp.csr_array(MATRIX))
    np.save(tmp_path / "m.labels.npy", np.array([5, 6, 5]))
    whole = (tmp_path / "m.npz").read_bytes()
    rng = stream(base_seed, "flipped", kind)
    for at in rng.choice(len(whole), 50, replace=False):
        changed = bytearray(whole)
        changed[at] ^= int(rng.integers(1, 256))
        (tmp_path / "m.npz").write_bytes(changed)
        with contextlib.suppress(DataError):
            load(f"{kind}:{tmp_path}{os.sep}m.npz")

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from scarml.data.covtype import load_covtype, read_covtype, read_packed_covtype
from scarml.errors import DataError

LABELS = [5, 7, 1]


def packed(path: Path, **replaced: np.ndarray) -> Path:
    arrays: dict[str, np.ndarray] = {
        "num": np.arange(30, dtype=np.int16).reshape(3, 10).T - 3,
        "wilderness": np.array([0, 3, 1], np.uint8),
        "soil": np.array([39, 0, 7], np.uint8),
        "label": np.array(LABELS, np.uint8),
    }
    np.savez_compressed(path, **{**arrays, **replaced})  # type: ignore[arg-type]
    return path


def as_text(path: Path) -> list[str]:
    data = read_packed_covtype(path)
    table = np.column_stack([data.features, data.labels + 1])
    return [",".join(map(str, row)) for row in table.tolist()]


def test_indicators_are_unpacked(tmp_path: Path) -> None:
    data = read_packed_covtype(packed(tmp_path / "c.npz"))
    assert data.features.shape == (3, 54)
    assert data.features[1, :10].tolist() == list(range(7, 17))
    assert [np.flatnonzero(row[10:]).tolist() for row in data.features] == [[0, 43], [3, 4], [1, 11]]
    assert data.labels.tolist() == [4, 6, 0]


def test_both_forms_give_the_same(tmp_path: Path) -> None:
    lines = as_text(packed(tmp_path / "c.npz"))
    (tmp_path / "c.data.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    data, other = read_covtype(tmp_path / "c.data.gz"), read_packed_covtype(tmp_path / "c.npz")
    assert np.array_equal(data.features, other.features)
    assert np.array_equal(data.labels, other.labels)


@pytest.mark.parametrize(
    "change",
    [
        lambda line: "",
        lambda line: line + ",1",
        lambda line: line[2:],
        lambda line: line[:-1] + "8",
        lambda line: line[:-1] + "0",
        lambda line: "x" + line[1:],
        lambda line: line.replace(",", ";"),
        lambda line: "99999" + line[line.index(",") :],
        lambda line: "1.5" + line[line.index(",") :],
    ],
)
def test_wrong_line_is_named(tmp_path: Path, change: object) -> None:
    lines = as_text(packed(tmp_path / "c.npz"))
    lines[1] = change(lines[1])  # type: ignore[operator]
    (tmp_path / "c.data").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"c\.data.*line.* [12] "):
        read_covtype(tmp_path / "c.data")


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"label": np.array([5, 8, 1])}, r"label\[1\] is 8; expected 1 to 7"),
        ({"wilderness": np.array([0, 4, 1])}, r"wilderness\[1\] is 4; expected 0 to 3"),
        ({"soil": np.array([0, -1, 1])}, r"soil\[1\] is -1; expected 0 to 39"),
        ({"soil": np.array([0, 1])}, "array 'soil' is"),
        ({"num": np.zeros((9, 3), np.int16)}, "array 'num' is"),
        ({"num": np.zeros((10, 3))}, "array 'num' is"),
        ({"label": np.array(3)}, "array"),
    ],
)
def test_wrong_array_is_named(tmp_path: Path, replaced: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=rf"c\.npz: {message}"):
        read_packed_covtype(packed(tmp_path / "c.npz", **replaced))


def test_a_part_is_not_taken_for_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "covtype").mkdir()
    packed(tmp_path / "covtype" / "covtype.npz")
    monkeypatch.setenv("SCAR_DATA_DIR", str(tmp_path))
    with pytest.raises(DataError, match="has 3 rows; expected 581,012"):
        load_covtype()
    monkeypatch.setattr("scarml.data.covtype.N_EXAMPLES", 3)
    data = load_covtype()
    assert sorted(data.labels.tolist()) == [0, 4, 6]


@pytest.mark.ci
@pytest.mark.usefixtures("data_dir")
def test_counts_are_the_published_ones() -> None:
    data = load_covtype()
    assert data.features.shape == (581_012, 54)
    assert np.bincount(data.labels).tolist() == [211840, 283301, 35754, 2747, 9493, 17367, 20510]
    assert data.features[:, 10:14].sum(axis=0, dtype=int).tolist() == [260796, 29884, 253364, 36968]
    assert (data.features[:, 14:].sum(axis=1) == 1).all()
    assert (data.features[:3, 0].tolist(), data.labels[:9].tolist()) == (
        [3162, 3034, 2818],
        [0, 1, 1, 0, 1, 1, 1, 0, 1],
    )

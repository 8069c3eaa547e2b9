from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from scarml.data.npz_file import array_names, check_form, read_array, read_arrays
from scarml.errors import DataError


def npy(array: np.ndarray, **replaced: str) -> bytes:
    """The content of an .npy file, with parts of its header replaced by others of the same length."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    content = stream.getvalue()
    for old, new in replaced.items():
        assert old.encode() in content
        content = content.replace(old.encode(), new.encode().ljust(len(old)), 1)
    return content


def archive(path: Path, *members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members:
            file.writestr(name, content)
    return path


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(3),
        np.zeros((0, 4), np.uint8),
        np.array(["a", "bc"]),
        np.arange(3, dtype=">i4"),
    ],
)
def test_reads_what_numpy_wrote(tmp_path: Path, array: np.ndarray) -> None:
    np.savez(tmp_path / "a.npz", x=array, other=np.zeros(3))
    np.savez_compressed(tmp_path / "b.npz", x=array)
    np.save(tmp_path / "x.npy", array)
    packed, other = (read_arrays(tmp_path / name, ["x"])["x"] for name in ("b.npz", "a.npz"))
    for found in (packed, other, read_array(tmp_path / "x.npy")):
        assert found.dtype == array.dtype
        assert np.array_equal(found, array)
    assert array_names(tmp_path / "a.npz") == ["x", "other"]


def test_missing_array_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    with pytest.raises(DataError, match=r"a\.npz has no array 'y'; expected x, y; it has x"):
        read_arrays(tmp_path / "a.npz", ["x", "y"])


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive at all"])
def test_what_is_no_archive_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.npz cannot be read .* expected an \.npz file"):
        array_names(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy(np.array([{}], dtype=object)), "holds Python objects"),
        (npy(np.zeros(9), **{"(9,)": "(8,)"}), "is not what 72 bytes hold"),
        (npy(np.zeros(9_000_000, np.uint8)[:9], **{"(9,)": "(9)"}), "shape"),
        (b"\x93NUMPY\x01\x00", "cannot be read"),
        (b"\x93NUMPY\x01\x00\xff\xff{", "cannot be read"),
        (npy(np.zeros(3), **{"'descr'": "descr"}), "cannot be read"),
        (b"", "cannot be read"),
        (b"text", "cannot be read"),
    ],
)
def test_wrong_array_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"array 'x' .*{message}"):
        read_arrays(archive(tmp_path / "a.npz", ("x.npy", content)), ["x"])
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(DataError, match=rf"x\.npy .*{message}"):
        read_array(tmp_path / "x.npy")


def test_sizes_are_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = npy(np.zeros(111_111_111_111 * 0 + 9, np.uint8), **{"(9,), ": "(10**9,)"[:6]})
    with pytest.raises(DataError, match="array 'x'"):
        read_arrays(archive(tmp_path / "a.npz", ("x.npy", huge)), ["x"])
    monkeypatch.setattr("scarml.data.npz_file.MAX_BYTES", 1_000)
    path = archive(tmp_path / "b.npz", ("x.npy", npy(np.zeros(100))), ("y.npy", npy(np.zeros(1))))
    with pytest.raises(DataError, match=r"b\.npz unpacks to 928 bytes; expected at most 1,000|b\.npz unpacks to 1,064"):
        read_arrays(path, ["x", "y"])
    assert read_arrays(path, ["x"])["x"].shape == (100,)


def test_other_ways_of_packing_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", ("x.npy", npy(np.zeros(9))), method=zipfile.ZIP_BZIP2)
    with pytest.raises(DataError, match="packed in another way"):
        read_arrays(path, ["x"])


def test_form_is_checked() -> None:
    check_form(Path("a"), "x", np.zeros((3, 2), np.uint8), "iu", (3, None))
    for wrong in (np.zeros((3, 2)), np.zeros(3, int), np.zeros((4, 2), int)):
        with pytest.raises(DataError, match=r"a: array 'x' is .*; expected whole numbers of shape \(3, any\)"):
            check_form(Path("a"), "x", wrong, "iu", (3, None))

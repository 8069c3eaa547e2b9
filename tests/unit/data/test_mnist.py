from __future__ import annotations

import contextlib
import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from scarml.data.mnist import load_mnist, load_mnist_10k, read_idx
from scarml.errors import DataError


def write_idx(path: Path, shape: tuple[int, ...], n_bytes: int | None = None) -> Path:
    n = int(np.prod(shape)) if n_bytes is None else n_bytes
    body = (np.arange(n) % 251).astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + body))
    return path


def test_packaged_images_are_the_published_ones() -> None:
    data = load_mnist_10k()
    assert data.features.shape == (10_000, 784)
    assert data.features.dtype == np.uint8
    assert np.bincount(data.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_training_images_are_the_published_ones(data_dir: Path) -> None:
    data = load_mnist()
    assert np.bincount(data.labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert abs(data.features.mean() / 255 - 0.1307) < 1e-4


def test_reads_what_was_written(tmp_path: Path) -> None:
    array = read_idx(write_idx(tmp_path / "a.gz", (5, 2, 3)), (5, 2, 3))
    assert array.ravel().tolist() == list(range(30))


@pytest.mark.parametrize("n_bytes", [0, 29, 31])
def test_body_of_another_size_is_an_error(tmp_path: Path, n_bytes: int) -> None:
    with pytest.raises(DataError, match=r"a\.gz holds .* 30 bytes"):
        read_idx(write_idx(tmp_path / "a.gz", (5, 2, 3), n_bytes), (5, 2, 3))


def test_header_is_checked_before_its_size_is_believed(tmp_path: Path) -> None:
    path = write_idx(tmp_path / "a.gz", (2**31, 2**31 - 1), n_bytes=0)
    with pytest.raises(DataError, match=r"a\.gz begins with"):
        read_idx(path, (5, 2))


@pytest.mark.parametrize("keep", [0, 5, 30])
def test_truncated_file_is_an_error(tmp_path: Path, keep: int) -> None:
    path = write_idx(tmp_path / "a.gz", (5, 2, 3))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"a\.gz"):
        read_idx(path, (5, 2, 3))


def test_every_flipped_byte_is_found_or_harmless(tmp_path: Path) -> None:
    path = write_idx(tmp_path / "a.gz", (5, 2, 3))
    good, whole = read_idx(path, (5, 2, 3)), path.read_bytes()
    for i in range(len(whole)):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 0x55]) + whole[i + 1 :])
        with contextlib.suppress(DataError):
            assert np.array_equal(read_idx(path, (5, 2, 3)), good)

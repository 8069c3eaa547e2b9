"""MNIST: handwritten digits, 28 x 28 pixels from 0 to 255, ten classes.

The 60,000 training images are read from ``SCAR_DATA_DIR``; the 10,000 test images come with the package, so that
something real can be trained on right after installing.

Source: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, Gradient-based learning applied to document recognition, 1998.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import BinaryIO, cast

import numpy as np

from scarml.core.block import Array
from scarml.data.classification import Classification
from scarml.data.location import find
from scarml.errors import DataError

__all__ = ["FILES", "FOLDER", "SOURCE", "load_mnist", "load_mnist_10k", "read_idx"]

FOLDER = "mnist"
FILES = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
SOURCE = "http://yann.lecun.com/exdb/mnist/ or any of its mirrors"

_PACKAGED = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
_UBYTE = 8  # the code of unsigned bytes in the third byte of an IDX file


def load_mnist() -> Classification:
    """The 60,000 training images, as uint8 features of shape (60000, 784).

    Raises:
        DataError: if the files are missing or damaged.
    """
    images, labels = find("mnist", FOLDER, FILES, SOURCE)
    return _read(images, labels, n=60_000)


def load_mnist_10k() -> Classification:
    """The 10,000 test images, as uint8 features of shape (10000, 784); they come with SCAR."""
    folder = files("scarml.data") / "files" / "mnist-10k"
    return _read(folder / _PACKAGED[0], folder / _PACKAGED[1], n=10_000)


def read_idx(path: Traversable, shape: tuple[int, ...]) -> Array:
    """A gzipped IDX file of unsigned bytes that must have this shape.

    The header is compared with ``shape`` before anything is allocated by it, and no more is unpacked than the shape
    needs.

    Raises:
        DataError: naming the file and what was expected.
    """
    expected = f"expected a gzipped IDX file of unsigned bytes with shape {shape}"
    size = math.prod(shape)
    try:
        with path.open("rb") as raw, gzip.open(cast(BinaryIO, raw)) as unpacked:
            header = unpacked.read(4 + 4 * len(shape))
            _check_header(path, header, shape, expected)
            body = unpacked.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:  # BadGzipFile is an OSError
        raise DataError(f"{path} cannot be read ({error}); {expected}; get the file anew") from error
    if len(body) != size:
        found = f"more than {size}" if len(body) > size else f"only {len(body)} of {size}"
        raise DataError(f"{path} holds {found} bytes of data; {expected}")
    return np.frombuffer(body, np.uint8).reshape(shape)


def _check_header(path: Traversable, header: bytes, shape: tuple[int, ...], expected: str) -> None:
    wanted = struct.pack(f">BBBB{len(shape)}I", 0, 0, _UBYTE, len(shape), *shape)
    if header != wanted:
        raise DataError(f"{path} begins with {header.hex(' ')!r} and not with {wanted.hex(' ')!r}; {expected}")


def _read(images: Traversable, labels: Traversable, n: int) -> Classification:
    pixels = read_idx(images, (n, 28, 28))
    classes = read_idx(labels, (n,))
    if classes.max() > 9:
        first = int(np.flatnonzero(classes > 9)[0])
        raise DataError(f"{labels} has label {classes[first]} for image {first}; expected 0 to 9")
    return Classification(pixels.reshape(n, 28 * 28), classes, n_classes=10)

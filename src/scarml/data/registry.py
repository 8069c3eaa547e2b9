"""Data sets by name.

Example:
    >>> load("mnist-10k").features.shape
    (10000, 784)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scarml.data import mnist, movielens
from scarml.data.location import is_present
from scarml.errors import DataError

__all__ = ["DataSet", "list_data_sets", "load"]


@dataclass(frozen=True, slots=True)
class DataSet:
    """What there is to know of a data set before it is loaded.

    Args:
        name: what ``--data`` takes.
        description: one line.
        shape: how large it is, in words.
        terms: licence or terms of use.
        source: where its files can be had; for packaged data, where they came from.
        folder: where they go inside ``SCAR_DATA_DIR``; empty if they come with SCAR.
        files: which they are.
        read: loads it.
    """

    name: str
    description: str
    shape: str
    terms: str
    source: str
    folder: str
    files: tuple[str, ...]
    read: Callable[[], Any]

    @property
    def present(self) -> bool:
        """Whether `load` would find its files."""
        return not self.folder or is_present(self.folder, self.files)


_MNIST_TERMS = "copyright Yann LeCun and Corinna Cortes, CC BY-SA 3.0"

_DATA_SETS = (
    DataSet(
        name="mnist",
        description="MNIST, handwritten digits: the training images",
        shape="60,000 images of 28 x 28 pixels, 10 classes",
        terms=_MNIST_TERMS,
        source=mnist.SOURCE,
        folder=mnist.FOLDER,
        files=mnist.FILES,
        read=mnist.load_mnist,
    ),
    DataSet(
        name="mnist-10k",
        description="MNIST, handwritten digits: the test images; comes with SCAR",
        shape="10,000 images of 28 x 28 pixels, 10 classes",
        terms=_MNIST_TERMS,
        source=mnist.SOURCE,
        folder="",
        files=(),
        read=mnist.load_mnist_10k,
    ),
    DataSet(
        name="movielens",
        description="MovieLens ml-latest-small of October 2016: ratings of movies from 0.5 to 5",
        shape="100,004 ratings, 671 users, 9,066 rated movies",
        terms="research use with acknowledgement; no commercial use without permission (see its README.txt)",
        source=movielens.SOURCE,
        folder=movielens.FOLDER,
        files=movielens.FILES,
        read=movielens.load_movielens,
    ),
)


def list_data_sets() -> list[DataSet]:
    """Every data set there is, whether its files are present or not."""
    return list(_DATA_SETS)


def load(name: str) -> Any:
    """The data set ``name``, as `Classification` or `Ratings`.

    Raises:
        DataError: if there is no such data set, or its files are missing or damaged.
    """
    for data_set in _DATA_SETS:
        if data_set.name == name:
            return data_set.read()
    raise DataError(f"there is no data set {name!r}; there are {', '.join(d.name for d in _DATA_SETS)}")

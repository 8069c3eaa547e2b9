"""Data sets by name.

Example:
    >>> load("mnist-10k").features.shape
    (10000, 784)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scarml.data import covtype, jester, kos, mnist, movielens, newsgroups, reuters
from scarml.data.location import is_present
from scarml.data.own_file import KINDS, is_path, read_own_file
from scarml.errors import DataError, ScarError, UsageError
from scarml.plugins import imported, is_importable

__all__ = ["DataSet", "has_test", "list_data_sets", "load", "load_test"]


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
        any_of: whether one of the files is enough.
        read_test: loads its test part, if it has one that is not in it.
    """

    name: str
    description: str
    shape: str
    terms: str
    source: str
    folder: str
    files: tuple[str, ...]
    read: Callable[[], Any]
    any_of: bool = False
    read_test: Callable[[], Any] | None = None

    @property
    def present(self) -> bool:
        """Whether `load` would find its files."""
        return not self.folder or is_present(self.folder, self.files, self.any_of)


_MNIST_TERMS = "copyright Yann LeCun and Corinna Cortes, CC BY-SA 3.0"
_NEWSGROUPS_TERMS = "no formal licence; posts of 1993, gathered by Ken Lang, widely redistributed for research"
_REUTERS_TERMS = "copyright Reuters Ltd; research only; to be called Reuters-21578, Distribution 1.0, in publications"

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
        read_test=mnist.load_mnist_10k,
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
    DataSet(
        name="covtype",
        description="CoverType, kinds of forest: measurements as they are, shuffled",
        shape="581,012 examples of 54 features, 7 classes",
        terms="copyright Jock A. Blackard and Colorado State University; free use with that notice",
        source=covtype.SOURCE,
        folder=covtype.FOLDER,
        files=covtype.FILES,
        read=covtype.load_covtype,
        any_of=True,
    ),
    DataSet(
        name="jester",
        description="Jester, a part of data set 2: ratings of jokes, rescaled to [0, 10]",
        shape="385,416 ratings, 13,095 users, 140 rated jokes",
        terms="free for research that cites Goldberg, Roeder, Gupta and Perkins, Eigentaste, 2001",
        source=jester.SOURCE,
        folder=jester.FOLDER,
        files=jester.FILES,
        read=jester.load_jester,
    ),
    DataSet(
        name="20newsgroups",
        description="20 Newsgroups, all documents: words in at least 10 of them",
        shape="18,821 documents, 17,660 words, 2,186,612 tokens",
        terms=_NEWSGROUPS_TERMS,
        source=newsgroups.SOURCE,
        folder=newsgroups.FOLDER,
        files=newsgroups.FILES,
        read=newsgroups.load_newsgroups,
    ),
    DataSet(
        name="20newsgroups-5k",
        description="20 Newsgroups, training part: the 5,000 words in most of its documents",
        shape="11,293 documents, 5,000 words, 1,096,024 tokens",
        terms=_NEWSGROUPS_TERMS,
        source=newsgroups.SOURCE,
        folder=newsgroups.FOLDER,
        files=newsgroups.FILES,
        read=newsgroups.load_newsgroups_5k,
        read_test=newsgroups.load_newsgroups_5k_test,
    ),
    DataSet(
        name="reuters-r52",
        description="Reuters-21578, documents with one topic of 52: words in at least 5 of them",
        shape="9,100 documents, 6,930 words, 548,660 tokens",
        terms=_REUTERS_TERMS,
        source=reuters.SOURCE,
        folder=reuters.FOLDER,
        files=reuters.FILES,
        read=reuters.load_reuters_r52,
    ),
    DataSet(
        name="reuters-r8",
        description="Reuters-21578, documents with one of the 8 largest topics: words in at least 5 of them",
        shape="7,674 documents, 5,952 words, 430,299 tokens",
        terms=_REUTERS_TERMS,
        source=reuters.SOURCE,
        folder=reuters.FOLDER,
        files=reuters.FILES,
        read=reuters.load_reuters_r8,
    ),
    DataSet(
        name="reuters-395",
        description="Reuters, the small corpus of the Python package lda: news of 1996",
        shape="395 documents, 4,258 words, 84,010 tokens",
        terms="no separate terms are stated for the corpus; the package is MPL-2.0",
        source=reuters.SOURCE_395,
        folder=reuters.FOLDER,
        files=reuters.FILES_395,
        read=reuters.load_reuters_395,
    ),
    DataSet(
        name="kos",
        description="KOS, blog entries, from UCI's bag of words; words are numbers only",
        shape="3,430 documents, 6,906 words, 467,714 tokens",
        terms="CC BY 4.0 (UCI, David Newman); the texts remain their owners'",
        source=kos.SOURCE,
        folder=kos.FOLDER,
        files=kos.FILES,
        read=kos.load_kos,
    ),
)


def list_data_sets() -> list[DataSet]:
    """Every data set there is, whether its files are present or not."""
    return list(_DATA_SETS)


def load(name: str) -> Any:
    """A data set, as `Classification`, `Ratings` or `Corpus`; of the user's own, as whatever their model takes.

    Args:
        name: of one of the list; or the path of a file, which has a ``/`` or a ``.`` in it (`scarml.data.own_file`); or
            ``module:function``, for what a function of the user's own returns. It is called without arguments, in every
            process that trains on it, and must return the same each time.

    Raises:
        DataError: if there is no such data set or file, or it is damaged or incomplete; or if the function fails.
        UsageError: if there is no such function.
    """
    for data_set in _DATA_SETS:
        if data_set.name == name:
            return data_set.read()
    if is_importable(name) and name.partition(":")[0] not in KINDS:
        return _called(name)
    if is_path(name):
        return read_own_file(name)
    raise DataError(
        f"there is no data set {name!r}; there are {', '.join(d.name for d in _DATA_SETS)}; a file of your own is "
        "named by its path, with its suffix, and one that your own code makes by module:function"
    )


def _called(name: str) -> Any:
    """What the user's function returns."""
    make = imported(name, "data set")
    if not callable(make):
        raise UsageError(f"data set {name!r} is a {type(make).__name__}; expected a function that returns the data")
    try:
        return make()
    except ScarError:
        raise
    except Exception as error:
        raise DataError(f"data set {name!r}: its function raised {type(error).__name__}: {error}") from error


def has_test(name: str) -> bool:
    """Whether a data set has a test part.

    Example:
        >>> has_test("mnist"), has_test("mnist-10k")
        (True, False)
    """
    return any(d.name == name and d.read_test is not None for d in _DATA_SETS)


def load_test(name: str) -> Any:
    """The test part of a data set, of the same kind as `load` gives.

    Raises:
        DataError: it has none, or it is damaged or incomplete.
    """
    read = next((d.read_test for d in _DATA_SETS if d.name == name), None)
    if read is None:
        known = ", ".join(d.name for d in _DATA_SETS if d.read_test is not None)
        raise DataError(f"{name} has no test part, as {known} have; hold out a share of it, such as 0.1, or name other "
                        "data")  # fmt: skip
    return read()

"""CoverType: 581,012 pieces of forest, 54 features, seven kinds of trees.

Features are as they were measured: ten numbers up to 7,173, and 44 indicators. The rows are shuffled, always in the
same way, since in the file they are sorted by place, and batches are taken in order.

Either of two files will do: the original ``covtype.data.gz``, or the smaller ``covtype.npz`` with arrays ``num`` (the
ten columns, one row each), ``wilderness`` and ``soil`` (which of the 4 and of the 40 indicators is one) and ``label``
(1 to 7).

Source: J. A. Blackard, D. J. Dean, Comparative Accuracies of Artificial Neural Networks and Discriminant Analysis in
Predicting Forest Cover Types from Cartographic Variables, Computers and Electronics in Agriculture 24(3), 1999.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scarml.core.block import Array
from scarml.core.rng import stream
from scarml.data.classification import Classification
from scarml.data.location import find_one
from scarml.data.npz_file import check_form, read_arrays
from scarml.data.text_file import read_blocks
from scarml.errors import DataError

__all__ = ["FILES", "FOLDER", "SOURCE", "load_covtype", "read_covtype", "read_packed_covtype"]

FOLDER = "covtype"
FILES = ("covtype.data.gz", "covtype.npz")
SOURCE = "https://archive.ics.uci.edu/dataset/31/covertype"

N_EXAMPLES = 581_012
_N_NUMBERS, _N_WILDERNESS, _N_SOIL, _N_CLASSES = 10, 4, 40, 7
_N_FEATURES = _N_NUMBERS + _N_WILDERNESS + _N_SOIL


def load_covtype() -> Classification:
    """All 581,012 examples, shuffled, as int16 features of shape (581012, 54).

    Raises:
        DataError: if there is no file or it is damaged.
    """
    path = find_one("covtype", FOLDER, FILES, SOURCE)
    data = read_packed_covtype(path) if path.suffix == ".npz" else read_covtype(path)
    if data.n_examples != N_EXAMPLES:
        raise DataError(f"{path} has {data.n_examples:,} rows; expected {N_EXAMPLES:,}; get the file anew")
    # Sorting raw bits, since how NumPy's own permutations are drawn may change.
    order = np.argsort(stream(0, "covtype").bit_generator.random_raw(N_EXAMPLES), kind="stable")
    return Classification(data.features[order], data.labels[order], data.n_classes)


def read_covtype(path: Path) -> Classification:
    """A file in the original form: 54 whole numbers and the label, 1 to 7, separated by commas, a line; unshuffled.

    Raises:
        DataError: naming file, line and what was expected.
    """
    parts = [_parse(path, first, lines) for first, lines in read_blocks(path)]
    if not parts:
        raise DataError(f"{path} is empty; expected lines of {_N_FEATURES + 1} whole numbers")
    table = np.concatenate(parts)
    return Classification(table[:, :-1], table[:, -1] - np.int16(1), _N_CLASSES)


def read_packed_covtype(path: Path) -> Classification:
    """A file in the form of ``covtype.npz``; unshuffled.

    Raises:
        DataError: naming file, array and what was expected.
    """
    arrays = read_arrays(path, ("num", "wilderness", "soil", "label"))
    n = len(arrays["label"]) if arrays["label"].ndim else 0
    check_form(path, "num", arrays["num"], "i", (_N_NUMBERS, n))
    for name, low, high in (("wilderness", 0, _N_WILDERNESS), ("soil", 0, _N_SOIL), ("label", 1, _N_CLASSES + 1)):
        check_form(path, name, arrays[name], "iu", (n,))
        wrong = np.flatnonzero((arrays[name] < low) | (arrays[name] >= high))
        if len(wrong):
            at = int(wrong[0])
            raise DataError(f"{path}: {name}[{at}] is {arrays[name][at]}; expected {low} to {high - 1}")
    features = np.zeros((n, _N_FEATURES), np.int16)
    features[:, :_N_NUMBERS] = arrays["num"].T
    rows = np.arange(n)
    features[rows, _N_NUMBERS + arrays["wilderness"].astype(np.intp)] = 1
    features[rows, _N_NUMBERS + _N_WILDERNESS + arrays["soil"].astype(np.intp)] = 1
    return Classification(features, arrays["label"] - np.uint8(1), _N_CLASSES)


def _parse(path: Path, first: int, lines: list[str]) -> Array:
    """A block of lines at once; line by line only to find the one that is wrong."""
    n = _N_FEATURES + 1
    try:
        table = np.loadtxt(lines, np.int16, delimiter=",", comments=None, ndmin=2)
    except ValueError:
        table = np.zeros((0, n), np.int16)
    if table.shape == (len(lines), n) and ((table[:, -1] >= 1) & (table[:, -1] <= _N_CLASSES)).all():
        return table
    for number, line in enumerate(lines, start=first):
        texts = line.split(",")
        fine = len(texts) == n and all(t.removeprefix("-").isdecimal() and len(t) <= 5 for t in texts)
        if not fine or not 1 <= int(texts[-1]) <= _N_CLASSES:
            raise DataError(
                f"{path}, line {number} is {line[:60]!r}; expected {_N_FEATURES} whole numbers and a label from 1 to "
                f"{_N_CLASSES}, separated by commas"
            )
    raise DataError(f"{path} has a number beyond 16 bits between lines {first} and {first + len(lines) - 1}")

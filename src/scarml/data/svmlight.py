"""svmlight files: an example a line, ``label index:value index:value …``, perhaps with a comment after ``#``.

Indices ascend in each line. They count from 1, as the format says, unless index 0 occurs anywhere in the file.

Source: T. Joachims, Making Large-scale SVM Learning Practical, 1999; the form is that of LIBSVM too.
"""

from __future__ import annotations

import math
from array import array
from pathlib import Path

import numpy as np

from scarml.data.classification import Classification
from scarml.data.labelled_rows import classification_from_entries
from scarml.data.text_file import read_lines
from scarml.errors import DataError

__all__ = ["read_svmlight"]

MAX_INDEX = 2**31 - 1


def read_svmlight(path: Path) -> Classification:
    r"""The examples, in order, with dense float32 features; empty lines and comments are passed over.

    Raises:
        DataError: naming file, line and what was expected.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.svmlight")
        >>> _ = path.write_text("+1 1:0.5 3:2\n-1 2:1  # a comment\n")
        >>> read_svmlight(path).features.tolist()
        [[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]]
    """
    labels, lengths, columns, values = array("d"), array("q"), array("q"), array("d")
    for number, line in read_lines(path):
        label, *pairs = line.partition("#")[0].split() or [""]
        if not label:
            continue
        labels.append(_number(path, number, label))
        lengths.append(len(pairs))
        last = -1
        for pair in pairs:
            index, colon, value = pair.partition(":")
            if not (colon and index.isdecimal() and len(index) <= 10 and last < int(index) <= MAX_INDEX):
                raise DataError(
                    f"{path}, line {number} has {pair[:40]!r}; expected index:value, with whole numbers as indices, "
                    "ascending"
                )
            last = int(index)
            columns.append(last)
            values.append(_number(path, number, value))
    if not labels:
        raise DataError(f"{path} has no examples; expected lines of: label index:value …")
    column = np.array(columns, np.int64)
    first = 0 if len(column) and column.min() == 0 else 1
    shape = (len(labels), int(column.max(initial=first)) + 1 - first)
    rows = np.repeat(np.arange(len(labels)), np.array(lengths, np.int64))
    return classification_from_entries(path, shape, (rows, column - first, np.array(values)), np.array(labels))


def _number(path: Path, line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in text:  # Python's own numbers may have underscores in them
        raise DataError(f"{path}, line {line} has {text[:40]!r}; expected a finite number")
    return value

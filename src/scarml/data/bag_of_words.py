"""UCI bag-of-words files: ``docword.<name>.txt``, packed or not.

Three header lines say how many documents, words and entries there are; then each line is ``document word count``, both
counted from 1. The words themselves are in ``vocab.<name>.txt`` beside it, one a line, if that is there.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from scarml.core.block import Array
from scarml.data.corpus import Corpus
from scarml.data.counts import MAX_COUNT, MAX_DOCUMENTS, MAX_WORDS, corpus_from_counts, read_vocabulary
from scarml.data.location import is_file
from scarml.data.text_file import read_blocks
from scarml.errors import DataError

__all__ = ["read_bag_of_words"]

_HEADER = (("documents", MAX_DOCUMENTS), ("words", MAX_WORDS), ("entries", 2**40))
_EXPECTED = "expected three whole numbers: document word count"


def read_bag_of_words(path: Path) -> Corpus:
    r"""The documents, in order, also those without words.

    Raises:
        DataError: naming file, line and what was expected.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "docword.two.txt")
        >>> _ = path.write_text("2\n3\n2\n1 1 2\n2 3 1\n")
        >>> read_bag_of_words(path).words.tolist()
        [0, 0, 2]
    """
    blocks = read_blocks(path)
    _, lines = next(blocks, (1, []))
    n_documents, n_words, n_entries = _check_header(path, lines[:3])
    parts = [np.zeros((0, 3), np.int64)]
    for first, some in itertools.chain([(4, lines[3:])] if lines[3:] else [], blocks):
        parts.append(_parse(path, first, some))
        _check_range(path, first, parts[-1], (n_documents, n_words, MAX_COUNT))
    table = np.concatenate(parts)
    if len(table) != n_entries:
        raise DataError(f"{path} has {len(table):,} entries after line 3; expected {n_entries:,}, as line 3 says")
    order = np.argsort(table[:, 0], kind="stable")
    vocabulary = _vocabulary_of(path)
    return corpus_from_counts(
        path,
        np.bincount(table[:, 0] - 1, minlength=n_documents),
        table[order, 1] - 1,
        table[order, 2],
        n_words,
        read_vocabulary(vocabulary, n_words) if is_file(vocabulary) else None,
    )


def _vocabulary_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".gz").replace("docword", "vocab", 1))


def _check_header(path: Path, header: list[str]) -> tuple[int, int, int]:
    if len(header) < 3:
        raise DataError(f"{path} ends after line {len(header)}; expected three lines with the sizes and then entries")
    sizes = []
    for number, (line, (what, limit)) in enumerate(zip(header, _HEADER, strict=True), start=1):
        text = line.strip()
        if not text.isdecimal() or len(text) > 15 or not int(text) <= limit:
            raise DataError(f"{path}, line {number} is {line[:60]!r}; expected the number of {what}, at most {limit:,}")
        sizes.append(int(text))
    return sizes[0], sizes[1], sizes[2]


def _parse(path: Path, first: int, lines: list[str]) -> Array:
    """A block of lines at once; line by line only to find the one that is wrong."""
    try:
        table = np.loadtxt(lines, np.int64, comments=None, ndmin=2)
    except ValueError:
        table = np.zeros((0, 3), np.int64)
    if table.shape == (len(lines), 3):
        return table
    for number, line in enumerate(lines, start=first):
        texts = line.split()
        if len(texts) != 3 or not all(t.isdecimal() and len(t) <= 15 for t in texts):
            raise DataError(f"{path}, line {number} is {line[:60]!r}; {_EXPECTED}")
    raise DataError(f"{path} cannot be read from line {first} on; {_EXPECTED}")


def _check_range(path: Path, first: int, table: Array, highest: tuple[int, int, int]) -> None:
    for column, (what, high) in enumerate(zip(("document", "word", "count"), highest, strict=True)):
        wrong = np.flatnonzero((table[:, column] < 1) | (table[:, column] > high))
        if len(wrong):
            at = int(wrong[0])
            raise DataError(f"{path}, line {first + at} has {what} {table[at, column]}; expected 1 to {high}")

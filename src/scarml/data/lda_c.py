"""LDA-C files: a document a line, ``n word:count word:count …`` with n pairs, words counted from 0.

The words themselves are in a file of the same name with the suffix ``.tokens`` or ``.vocab``, one a line, if there is
one; it also says how many words there are.

Source: D. M. Blei's program lda-c, which accompanied Latent Dirichlet Allocation, JMLR 3, 2003.
"""

from __future__ import annotations

from array import array
from pathlib import Path

import numpy as np

from scarml.data.corpus import Corpus
from scarml.data.counts import MAX_COUNT, MAX_WORDS, corpus_from_counts, read_vocabulary
from scarml.data.location import is_file
from scarml.data.text_file import read_lines
from scarml.errors import DataError

__all__ = ["read_lda_c"]

VOCABULARY_SUFFIXES = (".tokens", ".vocab")


def read_lda_c(path: Path) -> Corpus:
    r"""The documents, in order.

    Raises:
        DataError: naming file, line and what was expected.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "two.ldac")
        >>> _ = path.write_text("2 0:1 3:2\n1 1:1\n")
        >>> read_lda_c(path).words.tolist()
        [0, 3, 3, 1]
    """
    lengths, words, counts = array("q"), array("q"), array("q")
    for number, line in read_lines(path):
        length, *pairs = line.split() or [""]
        entries = [_parse(pair) for pair in pairs]
        good = [e for e in entries if e is not None]
        if length != str(len(pairs)) or len(good) < len(pairs):
            wrong = next((p for p, e in zip(pairs, entries, strict=True) if e is None), "")
            found = f"has {wrong[:40]!r}" if wrong else f"begins with {length[:40]!r} and has {len(pairs)} pairs"
            raise DataError(
                f"{path}, line {number} {found}; expected the number of different words, then word:count for each, "
                f"words from 0 and below {MAX_WORDS:,}, counts from 1 to {MAX_COUNT:,}"
            )
        lengths.append(len(good))
        words.extend(w for w, _ in good)
        counts.extend(c for _, c in good)
    if not lengths:
        raise DataError(f"{path} is empty; expected a document a line")
    n_words, vocabulary = max(words, default=0) + 1, None
    base = path.with_name(path.name.removesuffix(".gz"))
    for beside in (base.with_suffix(suffix) for suffix in VOCABULARY_SUFFIXES):
        if vocabulary is None and is_file(beside):
            vocabulary = read_vocabulary(beside)
            if len(vocabulary) < n_words:
                raise DataError(f"{beside} has {len(vocabulary):,} words; {path} uses word {n_words - 1}, from 0")
            n_words = len(vocabulary)
    return corpus_from_counts(
        path, np.array(lengths, np.int64), np.array(words, np.int64), np.array(counts, np.int64), n_words, vocabulary
    )


def _parse(pair: str) -> tuple[int, int] | None:
    word, _, count = pair.partition(":")
    if not (word.isdecimal() and count.isdecimal() and len(word) < 10 and len(count) < 10):
        return None
    entry = int(word), int(count)
    return entry if entry[0] < MAX_WORDS and 1 <= entry[1] <= MAX_COUNT else None

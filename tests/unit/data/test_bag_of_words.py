from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from scarml.data.bag_of_words import read_bag_of_words
from scarml.data.lda_c import read_lda_c
from scarml.errors import DataError

GOOD = ["3", "4", "3", "1 1 2", "3 4 1", "1 3 1"]


def write(folder: Path, lines: list[str], name: str = "docword.a.txt") -> Path:
    content = "".join(f"{line}\n" for line in lines).encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder / name


@pytest.mark.parametrize("name", ["docword.a.txt", "docword.a.txt.gz"])
def test_documents_are_in_order_and_words_repeated(tmp_path: Path, name: str) -> None:
    corpus = read_bag_of_words(write(tmp_path, GOOD, name))
    assert corpus.words.tolist() == [0, 0, 2, 3]
    assert corpus.lengths.tolist() == [3, 0, 1]
    assert (corpus.n_words, corpus.vocabulary) == (4, None)
    (tmp_path / "vocab.a.txt").write_text("α\nb\nc\nd\n")
    assert read_bag_of_words(tmp_path / name).vocabulary == ("α", "b", "c", "d")


@pytest.mark.parametrize(
    ("line", "wrong", "message"),
    [
        (1, "x", "line 1 is 'x'; expected the number of documents"),
        (1, str(10**12), "expected the number of documents, at most 33,554,432"),
        (2, "-4", "line 2 is '-4'; expected the number of words"),
        (3, "1" * 99, "line 3 is '1+'; expected the number of entries"),
        (3, "4", "has 3 entries after line 3; expected 4, as line 3 says"),
        (4, "0 1 2", "line 4 has document 0; expected 1 to 3"),
        (5, "4 1 2", "line 5 has document 4; expected 1 to 3"),
        (5, "1 5 2", "line 5 has word 5; expected 1 to 4"),
        (6, "1 2 0", "line 6 has count 0; expected 1 to 1048576"),
        (6, f"1 2 {2**40}", "line 6 has count"),
        (5, "1 2", "line 5 is '1 2'; expected three whole numbers"),
        (5, "1 2 3 4", "line 5 is"),
        (5, "", "line 5 is ''"),
        (5, "1 2 x", "line 5 is '1 2 x'"),
        (5, "1 2 1.5", "line 5 is '1 2 1.5'"),
        (5, f"1 2 {2**64}", "line 5 is"),
    ],
)
def test_wrong_line_is_named(tmp_path: Path, line: int, wrong: str, message: str) -> None:
    lines = GOOD.copy()
    lines[line - 1] = wrong
    with pytest.raises(DataError, match=rf"docword\.a\.txt.* {message}"):
        read_bag_of_words(write(tmp_path, lines))


@pytest.mark.parametrize("n_lines", [0, 1, 2, 3])
def test_file_that_ends_early_is_an_error(tmp_path: Path, n_lines: int) -> None:
    with pytest.raises(DataError, match=r"docword\.a\.txt"):
        read_bag_of_words(write(tmp_path, GOOD[:n_lines]))


def test_vocabulary_of_another_size_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "vocab.a.txt").write_text("a\nb\n")
    with pytest.raises(DataError, match=r"vocab\.a\.txt has 2 lines; expected 4, one for each word"):
        read_bag_of_words(write(tmp_path, GOOD))


@pytest.mark.parametrize("name", ["a.ldac", "a.ldac.gz"])
def test_lda_c(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, ["2 0:1 3:2", "0", "1 1:1"], name)
    corpus = read_lda_c(path)
    assert corpus.words.tolist() == [0, 3, 3, 1]
    assert corpus.lengths.tolist() == [3, 0, 1]
    assert (corpus.n_words, corpus.vocabulary) == (4, None)
    (tmp_path / "a.tokens").write_text("a\nb\nc\nd\ne\n")
    assert (read_lda_c(path).n_words, read_lda_c(path).vocabulary) == (5, ("a", "b", "c", "d", "e"))
    (tmp_path / "a.tokens").write_text("a\nb\nc\n")
    with pytest.raises(DataError, match=r"a\.tokens has 3 words; .*uses word 3"):
        read_lda_c(path)


@pytest.mark.parametrize(
    "wrong",
    ["", "x", "2 0:1", "1 0:1 1:1", "1 0", "1 0:0", "1 -1:1", "1 0:x", "1 0:1.0", f"1 0:{2**40}", f"1 {2**30}:1"],
)
def test_wrong_line_of_lda_c_is_named(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(DataError, match=r"a\.ldac, line 2 .*; expected the number of different words, then word:count"):
        read_lda_c(write(tmp_path, ["1 0:1", wrong, "1 0:1"], "a.ldac"))


def test_empty_lda_c_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.ldac is empty"):
        read_lda_c(write(tmp_path, [], "a.ldac"))


def test_documents_alone_make_no_words(tmp_path: Path) -> None:
    corpus = read_lda_c(write(tmp_path, ["0"], "a.ldac"))
    assert np.array_equal(corpus.lengths, [0])

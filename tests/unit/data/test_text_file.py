from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scarml.data.text_file as text_file
from scarml.data.text_file import read_lines
from scarml.errors import DataError


@given(st.lists(st.text("ab ,\x0c\x1d", max_size=12), max_size=9), st.booleans(), st.integers(1, 9))
def test_lines_are_those_that_were_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], packed: bool, block_bytes: int
) -> None:
    content = "".join(f"{line}\n" for line in lines).encode()
    path = tmp_path_factory.mktemp("text") / ("a.txt.gz" if packed else "a.txt")
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_file, "_BLOCK_BYTES", block_bytes)
        assert list(read_lines(path)) == list(enumerate(lines, start=1))


@pytest.mark.parametrize("content", [b"one\r\ntwo\r\n", b"one\ntwo"])
def test_line_ends_of_all_systems(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    assert list(read_lines(tmp_path / "a.txt")) == [(1, "one"), (2, "two")]


def test_line_without_an_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_file, "_BLOCK_BYTES", 16)
    monkeypatch.setattr(text_file, "MAX_LINE_BYTES", 64)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a\nb\n" + bytes(10_000_000)))
    with pytest.raises(DataError, match=r"a\.txt\.gz, line 3 is longer than 64 bytes"):
        list(read_lines(tmp_path / "a.txt.gz"))


def test_what_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n\xff")
    with pytest.raises(DataError, match=r"a\.txt, line 3 is no text: byte 0xff"):
        list(read_lines(tmp_path / "a.txt"))
    (tmp_path / "a.txt.gz").write_bytes(b"one\n")
    with pytest.raises(DataError, match=r"a\.txt\.gz cannot be read .*packed by gzip"):
        list(read_lines(tmp_path / "a.txt.gz"))
    with pytest.raises(DataError, match="cannot be read"):
        list(read_lines(tmp_path))

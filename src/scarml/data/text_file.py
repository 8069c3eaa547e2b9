"""Lines of a text file, packed or not, in blocks, so that a large file never lies in memory as text."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from scarml.errors import DataError

__all__ = ["MAX_LINE_BYTES", "read_blocks", "read_lines"]

MAX_LINE_BYTES = 2**24
"""A longer line ends the reading: a file without line ends must not fill the memory."""

_BLOCK_BYTES = 2**22


def read_blocks(path: Path, encoding: str = "ascii") -> Iterator[tuple[int, list[str]]]:
    r"""The lines without their ends, some at a time, each time with the number of the first; unpacks ``.gz``.

    Raises:
        DataError: naming the file, and the line if it is too long or no text.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.txt")
        >>> _ = path.write_bytes(b"one\r\ntwo")
        >>> list(read_blocks(path))
        [(1, ['one', 'two'])]
    """
    number = 1
    for block in _whole_lines(path):
        try:
            text = block.decode(encoding)
        except UnicodeDecodeError as error:
            at = number + block.count(b"\n", 0, error.start)
            raise DataError(
                f"{path}, line {at} is no text: byte {block[error.start]:#04x} in it is not {encoding}"
            ) from error
        lines = text.removesuffix("\n").split("\n")  # and not splitlines, which also splits at form feeds
        yield number, [line.removesuffix("\r") for line in lines]
        number += len(lines)


def read_lines(path: Path, encoding: str = "ascii") -> Iterator[tuple[int, str]]:
    """Each line with its number, as `read_blocks`."""
    for first, lines in read_blocks(path, encoding):
        yield from enumerate(lines, start=first)


def _whole_lines(path: Path) -> Iterator[bytes]:
    rest, number = b"", 1
    for read in _blocks(path):
        block = rest + read
        is_last = len(read) < _BLOCK_BYTES
        cut = len(block) if is_last else block.rfind(b"\n") + 1
        if len(block) - cut > MAX_LINE_BYTES:
            at = number + block.count(b"\n")
            raise DataError(f"{path}, line {at} is longer than {MAX_LINE_BYTES:,} bytes; expected lines of text")
        if cut:
            yield block[:cut]
        number += block.count(b"\n", 0, cut)
        rest = block[cut:]
    if rest:
        yield rest


def _blocks(path: Path) -> Iterator[bytes]:
    try:
        with cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                yield block
    except (OSError, EOFError, zlib.error) as error:  # BadGzipFile is an OSError
        form = "a text file, packed by gzip" if path.suffix == ".gz" else "a text file"
        raise DataError(f"{path} cannot be read ({error}); expected {form}") from error

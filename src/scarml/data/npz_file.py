"""Arrays in an ``.npz`` file, with every size checked before it is believed; nothing in it can run code."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from scarml.core.block import Array
from scarml.errors import DataError

__all__ = ["MAX_BYTES", "array_names", "check_form", "read_array", "read_arrays"]

MAX_BYTES = 2**34
"""What the arrays of one file may take together, unpacked."""

_SUFFIX = ".npy"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the ones that NumPy writes


def array_names(path: Path) -> list[str]:
    """The names of the arrays in the file.

    Raises:
        DataError: if it is no ``.npz`` file.
    """
    with _open(path) as archive:
        return [n.removesuffix(_SUFFIX) for n in archive.namelist() if n.endswith(_SUFFIX)]


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, Array]:
    """Some of the arrays.

    Raises:
        DataError: naming the file and the array, if one is missing, damaged, too large or has objects in it.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.npz")
        >>> np.savez(path, x=np.arange(3))
        >>> read_arrays(path, ["x"])["x"].tolist()
        [0, 1, 2]
    """
    wanted = list(names)
    with _open(path) as archive:
        there = archive.namelist()
        for name in wanted:
            if name + _SUFFIX not in there:
                has = ", ".join(n.removesuffix(_SUFFIX) for n in there[:20]) or "nothing"
                raise DataError(f"{path} has no array {name!r}; expected {', '.join(wanted)}; it has {has[:300]}")
        members = [archive.getinfo(name + _SUFFIX) for name in wanted]
        size = sum(m.file_size for m in members)
        if size > MAX_BYTES:
            raise DataError(f"{path} unpacks to {size:,} bytes; expected at most {MAX_BYTES:,}")
        return {n: _read_member(path, archive, m) for n, m in zip(wanted, members, strict=True)}


def read_array(path: Path) -> Array:
    """The array of an ``.npy`` file.

    Raises:
        DataError: naming the file, if it is damaged, too large or has objects in it.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"it is longer than {MAX_BYTES:,} bytes")
        return _parse(content)
    except Exception as error:  # of the file system and the parser of the header
        raise DataError(f"{path} cannot be read ({error}); expected an .npy file of NumPy") from error


def check_form(path: Path, name: str, array: Array, kinds: str, shape: tuple[int | None, ...]) -> None:
    """Whether an array has one of these kinds of dtype and this shape, None standing for any length.

    Raises:
        DataError: naming file, array and what was expected.
    """
    fits = len(array.shape) == len(shape) and all(w in (None, n) for n, w in zip(array.shape, shape, strict=True))
    if array.dtype.kind not in kinds or not fits:
        words = {"iu": "whole numbers", "fiu": "numbers", "fiub": "numbers"}.get(kinds, "text")
        form = ", ".join("any" if n is None else str(n) for n in shape)
        raise DataError(f"{path}: array {name!r} is {array.dtype}{array.shape}; expected {words} of shape ({form})")


def _open(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except Exception as error:  # a damaged directory makes zipfile raise nearly anything
        raise DataError(f"{path} cannot be read ({error}); expected an .npz file of NumPy arrays") from error


def _read_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    name = member.filename.removesuffix(_SUFFIX)
    try:
        if member.compress_type not in _METHODS:
            raise ValueError("it is packed in another way than NumPy does")
        with archive.open(member) as packed:  # stops at the size that the directory gives, and compares the checksum
            content = packed.read()
        return _parse(content)
    except Exception as error:  # of zipfile, zlib and the parser of the header
        raise DataError(f"{path}: array {name!r} cannot be read ({error}); get the file anew") from error


def _parse(content: bytes) -> Array:
    """The array in the bytes of an ``.npy`` file, without a copy."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not read")
    begin = stream.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content) - begin:
        raise ValueError(f"its header says {dtype}{shape}, which is not what {len(content) - begin:,} bytes hold")
    flat = np.frombuffer(content, dtype, offset=begin)
    return flat.reshape(shape[::-1]).T if is_fortran else flat.reshape(shape)

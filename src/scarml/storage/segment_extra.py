"""State beside the blocks, saved whole with a save: random streams, the position in the data, the user's own.

Arrays are tensors ``extra/<name>``; all else is JSON in the metadata, under ``extra``: an object with

=============  =======================================================================================
``values``     an object: by name, what is no array
``arrays``     a list: the names of the arrays
``crc32``      CRC-32 of the bytes of the arrays, in this order
``version``    only in compacted segments: ``[term, commit, iteration, save]`` under which it was saved
=============  =======================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scarml.core.block import Array
from scarml.errors import ModelError
from scarml.storage.segment_layout import DTYPE_NAMES, TensorToWrite, checksum_of

__all__ = ["Extra", "StoredExtra", "encode_extra", "is_extra_name", "pack_extra"]

Extra = Mapping[str, Any]
"""By name, a NumPy array or scalar, or what can be written as JSON. Read back, a scalar is an array of no dimension."""

_MAX_VALUES_BYTES = 1 << 20
_MAX_NAME_CHARS = 128


@dataclass(frozen=True, slots=True, eq=False)
class StoredExtra:
    """Extra state as a segment has it."""

    values: Mapping[str, Any]
    arrays: Mapping[str, Array]


def encode_extra(extra: Extra) -> tuple[str, list[TensorToWrite]]:
    """Extra state as metadata and tensors.

    Raises:
        ModelError: it cannot be stored.
    """
    bad = [name for name in extra if not is_extra_name(name)]
    if bad:
        raise ModelError(
            f"extra state cannot be called {str(bad[0])[:40]!r}; expected 1 to {_MAX_NAME_CHARS} printable characters"
        )
    arrays = {n: _storable(n, a) for n, a in extra.items() if isinstance(a, np.ndarray | np.generic)}
    values = {n: v for n, v in extra.items() if n not in arrays}
    try:
        text = json.dumps(values, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as e:
        raise ModelError(
            f"extra state must be arrays, or what can be written as JSON without NaN and infinities: {e}"
        ) from None
    if len(text) > _MAX_VALUES_BYTES:
        raise ModelError(f"extra state that is no array takes {len(text)} bytes; expected {_MAX_VALUES_BYTES} at most: "
                         "put large state into arrays")  # fmt: skip
    return pack_extra(StoredExtra(values, arrays))


def pack_extra(extra: StoredExtra, version: Sequence[int] | None = None) -> tuple[str, list[TensorToWrite]]:
    """Extra state as metadata and tensors, with the version it was saved under if that is not the segment's."""
    body = {"values": extra.values, "arrays": list(extra.arrays), "crc32": checksum_of(list(extra.arrays.values()))}
    if version is not None:
        body["version"] = list(version)
    return json.dumps(body), [TensorToWrite.of(f"extra/{n}", a) for n, a in extra.arrays.items()]


def is_extra_name(name: object) -> bool:
    """Whether something may be the name of extra state."""
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME_CHARS and name.isprintable()


def _storable(name: str, array: Any) -> Array:
    found = np.asarray(array, order="C")
    if found.dtype.name not in DTYPE_NAMES or found.dtype != found.dtype.newbyteorder("<"):
        raise ModelError(
            f"extra state {name!r} has dtype {found.dtype.str!r}, which cannot be stored; "
            f"expected one of {', '.join(DTYPE_NAMES)}, little-endian"
        )
    return found

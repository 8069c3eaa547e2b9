"""State beside the tables: random streams, the position in the data, anything small of the user's own.

A segment stores named arrays, and JSON. The user may nest the two: what JSON does not have is replaced by a mark, an
object with one key that starts with ``scar:``; an array inside something is stored by itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np

from scarml.errors import UsageError
from scarml.storage.segment_extra import is_extra_name

__all__ = ["fill_in", "pack", "unpack"]

_ARRAY, _TUPLE, _FLOAT = "scar:array", "scar:tuple", "scar:float"
_MAX_DEPTH = 64
_MAX_VALUES_BYTES = 1 << 20  # as much as a segment takes


def pack(state: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the user's state, as it can be stored: by name JSON-ready values, and arrays.

    Raises:
        UsageError: something in it is neither an array nor JSON; the message says where.

    Example:
        >>> packed = pack({"rng": {"key": np.zeros(2), "n": 3}, "best": float("inf")})
        >>> packed["rng"], packed["rng/0"].tolist(), packed["best"]
        ({'key': {'scar:array': 'rng/0'}, 'n': 3}, [0.0, 0.0], {'scar:float': 'inf'})
    """
    if not isinstance(state, Mapping):
        raise UsageError(f"extra is {type(state).__name__}; expected a dict of named values")
    packed: dict[str, Any] = {}
    for name, value in state.items():
        if not is_extra_name(name) or "/" in name:
            raise UsageError(f"extra has an entry called {name!r:.60}; expected a short, printable string without '/'")
        if isinstance(value, np.ndarray):
            packed[name] = _storable(name, value)
        else:
            arrays: dict[str, Any] = {}
            packed[name] = _pack(value, name, name, arrays)
            packed |= arrays
    size = len(json.dumps({n: v for n, v in packed.items() if not isinstance(v, np.ndarray)}))
    if size > _MAX_VALUES_BYTES:
        raise UsageError(
            f"extra takes {size} bytes beside its arrays; expected {_MAX_VALUES_BYTES} at most: put what is large into "
            "arrays"
        )
    return packed


def unpack(stored: Mapping[str, Any]) -> dict[str, Any]:
    """What was packed."""
    return {name: _unpack(value, stored) for name, value in stored.items() if "/" not in name}


def fill_in(state: MutableMapping[str, Any], restored: Mapping[str, Any]) -> None:
    """Put restored state into the user's own: arrays of the same form in place, all else as new values."""
    for name, value in restored.items():
        held = state.get(name)
        if (
            isinstance(value, np.ndarray)
            and isinstance(held, np.ndarray)
            and (held.shape, held.dtype, held.flags.writeable) == (value.shape, value.dtype, True)
        ):
            held[...] = value
        else:
            state[name] = value


def _storable(where: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise UsageError(f"extra {where!r} is an array of {array.dtype}; expected floats, integers or booleans")
    return array.astype(array.dtype.newbyteorder("="), order="C")


def _pack(value: Any, name: str, where: str, arrays: dict[str, Any]) -> Any:
    """Replace what JSON does not have, and collect arrays."""
    if where.count("/") > _MAX_DEPTH:
        raise UsageError(f"extra {name!r} is nested too deeply; expected {_MAX_DEPTH} levels at most")
    match value:
        case np.ndarray():
            label = f"{name}/{len(arrays)}"
            arrays[label] = _storable(where, value)
            return {_ARRAY: label}
        case np.generic():
            return _pack(value.item(), name, where, arrays)
        case tuple():
            return {_TUPLE: [_pack(v, name, f"{where}/{i}", arrays) for i, v in enumerate(value)]}
        case list():
            return [_pack(v, name, f"{where}/{i}", arrays) for i, v in enumerate(value)]
        case Mapping() if all(isinstance(k, str) for k in value):
            return {k: _pack(v, name, f"{where}/{k}", arrays) for k, v in value.items()}
        case float() if not math.isfinite(value):
            return {_FLOAT: str(value)}
        case None | bool() | int() | float() | str():
            return value
    raise UsageError(
        f"extra {where!r} is {value!r:.40} ({type(value).__name__}); expected numbers, strings, lists, dicts with "
        "strings for keys, or NumPy arrays"
    )


def _unpack(value: Any, stored: Mapping[str, Any]) -> Any:
    match value:
        case list():
            return [_unpack(v, stored) for v in value]
        case {"scar:array": label, **more} if not more:
            return stored[label]
        case {"scar:tuple": parts, **more} if not more:
            return tuple(_unpack(v, stored) for v in parts)
        case {"scar:float": text, **more} if not more:
            return float(text)
        case dict():
            return {k: _unpack(v, stored) for k, v in value.items()}
    return value

"""Random numbers that depend on what they are for, never on when or where they are drawn.

Two kinds, both on NumPy's counter-based Philox generator:

* `stream(seed, *key)`: a generator for one purpose, for example ``stream(seed, "compute", shard, iteration, phase)``.
* `block_uniform`, `block_normal`, `block_integers`: random values for any blocks of a table. Block ``i`` gets the same
  values whichever other blocks are asked for, so that any block's x(0) can be made alone.
"""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from scarml.core.block import Array, Field, Ids, Table

__all__ = ["block_integers", "block_normal", "block_uniform", "stream"]

_CHUNK_WORDS = 4096  # a multiple of the four words that Philox makes per counter step


def stream(seed: int, *key: int | str) -> np.random.Generator:
    """A generator that is a function of ``seed`` and ``key`` alone.

    Example:
        >>> bool(stream(1, "a", 2).random() == stream(1, "a", 2).random())
        True
    """
    return np.random.Generator(np.random.Philox(key=_philox_key(seed, *key)))


def block_uniform(seed: int, table: Table, ids: Ids, field: str = "value") -> Array:
    """Uniform [0, 1) values for a field of the blocks ``ids``, in the field's shape and dtype.

    float32 fields get 24 random bits, so that rounding never yields 1.
    """
    f = _field(table, field)
    bits = 24 if np.dtype(f.dtype).itemsize <= 4 else 53
    words = _block_words(seed, table, ids, f)
    return _shaped(((words >> np.uint64(64 - bits)) * 2.0**-bits).astype(f.dtype), len(ids), f)


def block_normal(seed: int, table: Table, ids: Ids, field: str = "value") -> Array:
    """Standard normal values for a field of the blocks ``ids``, in the field's shape and dtype."""
    f = _field(table, field)
    words = _block_words(seed, table, ids, f)  # 52 bits of each: with one more, adding a half could round up to 1
    return _shaped(ndtri(((words >> np.uint64(12)) + 0.5) * 2.0**-52).astype(f.dtype), len(ids), f)


def block_integers(seed: int, table: Table, ids: Ids, high: int, field: str = "value") -> Array:
    """Uniform integers 0 … ``high`` − 1 for a field of the blocks ``ids``, in the field's shape and dtype.

    ``high`` must be below 2**31; no value's probability is off by more than 2**-31.
    """
    f = _field(table, field)
    words = _block_words(seed, table, ids, f)
    return _shaped((((words >> np.uint64(33)) * np.uint64(high)) >> np.uint64(31)).astype(f.dtype), len(ids), f)


def _philox_key(seed: int, *key: int | str) -> NDArray[np.uint64]:
    text = "\x1f".join([str(int(seed)), *(f"{type(k).__name__}:{k}" for k in key)])
    return np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], np.uint64)


def _field(table: Table, name: str) -> Field:
    return next(f for f in table.fields if f.name == name)


def _shaped(values: Array, n_blocks: int, f: Field) -> Array:
    return values if f.ragged else values.reshape(n_blocks, *f.shape)


def _block_words(seed: int, table: Table, ids: Ids, f: Field) -> NDArray[np.uint64]:
    """One 64-bit word for each element of the blocks ``ids``: element ``j`` of the whole field has word ``j``."""
    key = _philox_key(seed, "block", table.name, f.name)
    if f.ragged:
        assert table.offsets is not None
        starts, lengths = table.offsets[ids], table.block_lengths[ids]
    else:
        starts, lengths = ids * f.n_per_block, np.full(len(ids), f.n_per_block, np.int64)
    before = np.cumsum(lengths) - lengths
    elements = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)
    words = np.empty(len(elements), np.uint64)
    chunk_of = elements // _CHUNK_WORDS  # ascending, since ids are
    edges = np.flatnonzero(np.diff(chunk_of, prepend=-1, append=-1)) if len(elements) else np.zeros(0, np.int64)
    for begin, end in itertools.pairwise(edges):
        chunk = int(chunk_of[begin])
        counter = chunk * (_CHUNK_WORDS // 4)
        raw = np.random.Philox(key=key, counter=counter).random_raw(_CHUNK_WORDS)
        words[begin:end] = raw[elements[begin:end] - chunk * _CHUNK_WORDS]
    return words

"""What verifying a run finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Finding", "OnProgress", "OtherCopy", "Verification"]

OnProgress = Callable[[int, int], None]
"""Told how many bytes of how many have been read."""


@dataclass(frozen=True, slots=True)
class OtherCopy:
    """Another copy of a damaged block, which is used in its place."""

    segment: str
    iteration: int
    is_newer: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Args:
        name: of the object.
        problem: in words.
        table, block: which block, if it is one.
        expected, found: its checksum as stored, and of the bytes that were read.
        other_copy: the newest good copy of the block elsewhere; None if there is none, and x(0) must do.
    """

    name: str
    problem: str
    table: str | None = None
    block: int | None = None
    expected: int | None = None
    found: int | None = None
    other_copy: OtherCopy | None = None


@dataclass(slots=True)
class Verification:
    """What was read, and what was found.

    Args:
        n_segments, n_blocks, n_units, n_terms: of what counts, and was read.
        read_bytes: of blocks.
        damaged: what counts and is damaged.
        notes: what does not count, or harms nothing.
    """

    n_segments: int = 0
    n_blocks: int = 0
    n_units: int = 0
    n_terms: int = 0
    read_bytes: int = 0
    damaged: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

"""Full saves: units of segments that count together, and only when all of them are stored."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from scarml.errors import DamagedError, NotFoundError
from scarml.storage.record import decode_record, encode_record
from scarml.storage.segment import SegmentId
from scarml.storage.segment_header import read_header
from scarml.storage.store import Store

__all__ = ["FullSave", "is_older_unit", "read_unit", "unit_name", "unit_names", "unit_problem", "write_unit"]

_NAME = re.compile(r"units/(\d{8,12})-(\d{12,16})\.json")


@dataclass(frozen=True, slots=True)
class FullSave:
    """A complete full save: the traditional checkpoint.

    Args:
        term, commit, iteration: the version of all its blocks.
        save_id: of the save.
        segments: names of the segments that make it up.
    """

    term: int
    commit: int
    iteration: int
    save_id: int
    segments: tuple[str, ...]


def unit_name(unit: FullSave) -> str:
    """The name of the object that says that a full save is complete."""
    return f"units/{unit.term:08d}-{unit.commit:012d}.json"


def unit_names(store: Store, term: int) -> list[str]:
    """The full saves of one term, the newest first."""
    found = (_NAME.fullmatch(name) for name in store.list(f"units/{term:08d}-"))
    return [m[0] for m in sorted((m for m in found if m), key=lambda m: -int(m[2]))]


def is_older_unit(name: str, than: FullSave) -> bool:
    """Whether an object is the record of a full save, and an older one."""
    match = _NAME.fullmatch(name)
    return match is not None and (int(match[1]), int(match[2])) < (than.term, than.commit)


def write_unit(store: Store, unit: FullSave) -> None:
    """Say that a full save is complete. The caller has seen all its segments stored."""
    body = {
        "term": unit.term, "commit": unit.commit, "iteration": unit.iteration,
        "save_id": unit.save_id, "segments": list(unit.segments),
    }  # fmt: skip
    store.put(unit_name(unit), [encode_record("unit", body)])


def read_unit(store: Store, name: str) -> FullSave:
    """A full save's record; `unit_problem` says whether its segments are there.

    Raises:
        NotFoundError, DamagedError: it is not there, or cannot be read.
    """
    body = decode_record("unit", name, store.get(name))
    numbers: list[Any] = [body.get(k) for k in ("term", "commit", "iteration", "save_id")]
    segments = body.get("segments")
    if not all(type(n) is int and n >= 0 for n in numbers) or not isinstance(segments, list):
        raise DamagedError(f"{name} is damaged: expected a version, a save id and a list of segments")
    term, commit, iteration, save_id = numbers
    unit = FullSave(term, commit, iteration, save_id, tuple(str(s) for s in segments))
    if unit_name(unit) != name or any(SegmentId.parse(s) is None for s in unit.segments):
        raise DamagedError(f"{name} is damaged: it describes {unit_name(unit)} or lists what are no segments")
    return unit


def unit_problem(store: Store, unit: FullSave) -> str | None:
    """Why a full save cannot be used, or None if each of its segments is there, whole, and of its version."""
    for name in unit.segments:
        try:
            header = read_header(store, name)
        except (NotFoundError, DamagedError) as e:
            return str(e)
        if (header.term, header.commit, header.save_id) != (unit.term, unit.commit, unit.save_id):
            return f"{name} is of commit {header.commit}, save {header.save_id}; expected the full save's own"
    return None

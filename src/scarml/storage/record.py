"""Small JSON records on the store: terms, units, the marker. Each says what it is, and carries a checksum."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from scarml.errors import DamagedError

__all__ = ["FORMAT_VERSION", "decode_record", "encode_record"]

FORMAT_VERSION = 1
_MAX_BYTES = 64 << 20


def encode_record(kind: str, body: Mapping[str, Any]) -> bytes:
    """A record as JSON text for people and programs."""
    record = {"format": f"scar-{kind}", "format_version": FORMAT_VERSION, **body}
    return (json.dumps({**record, "crc32": _checksum(record)}, indent=1) + "\n").encode()


def decode_record(kind: str, name: str, data: bytes) -> dict[str, Any]:
    """The body of a record that was read from the object ``name``.

    Raises:
        DamagedError: it is not what was written, no record of this kind, or of a newer format.
    """
    try:
        record = json.loads(data[: _MAX_BYTES + 1])
    except (ValueError, RecursionError) as e:
        raise DamagedError(f"{name} is damaged: it is no JSON that can be read ({str(e)[:80]})") from None
    if not isinstance(record, dict) or record.get("format") != f"scar-{kind}":
        raise DamagedError(f"{name} is damaged: expected a record of format 'scar-{kind}'")
    version = record.get("format_version")
    if type(version) is int and version > FORMAT_VERSION:
        raise DamagedError(f"{name} has format version {version}; this SCAR reads {FORMAT_VERSION}: use a newer SCAR")
    found = record.pop("crc32", None)
    try:
        expected = _checksum(record)
    except RecursionError:  # at the one depth that can just be read
        raise DamagedError(f"{name} is damaged: it is nested too deeply") from None
    if found != expected:
        raise DamagedError(f"{name} is damaged: its checksum is {expected}; expected {found}")
    del record["format"], record["format_version"]
    return record


def _checksum(record: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(record, sort_keys=True, separators=(",", ":")).encode())

"""JSON for programs: what ``--json`` and ``--log-format json`` write, the event log and the live status."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["finite", "number_in", "to_json_text"]


def to_json_text(value: Any, indent: int | None = None) -> str:
    """JSON has no NaN, so a number that is not finite becomes null.

    Args:
        value: of dicts, lists, tuples, texts and numbers.
        indent: spaces a level; None: one line.

    Example:
        >>> to_json_text({"loss_sum": float("nan"), "losses": [1.5, float("inf")]})
        '{"loss_sum": null, "losses": [1.5, null]}'
    """
    return json.dumps(finite(value), indent=indent, allow_nan=False)


def finite(value: Any) -> Any:
    """The same with None for numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: finite(v) for k, v in value.items()}
    return [finite(v) for v in value] if isinstance(value, list | tuple) else value


def number_in(body: Mapping[str, Any], name: str) -> float | None:
    """A number that `finite` may have made null, which is NaN again; None if there is none of that name.

    Example:
        >>> number_in({"loss_sum": None}, "loss_sum"), number_in({"loss_sum": "low"}, "loss_sum")
        (nan, None)
    """
    value = body.get(name, "")
    if value is None:
        return math.nan
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

"""JSON for programs: what ``--json`` and ``--log-format json`` write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["to_json_text"]


def to_json_text(value: Any) -> str:
    """One line; JSON has no NaN, so a number that is not finite becomes null.

    Example:
        >>> to_json_text({"loss_sum": float("nan"), "losses": [1.5, float("inf")]})
        '{"loss_sum": null, "losses": [1.5, null]}'
    """
    return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list | tuple) else value

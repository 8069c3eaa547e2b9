"""Config files: TOML of the user's own, or the ``run.json`` of an earlier run; and settings written as TOML."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scarml.errors import UsageError

__all__ = ["read_config", "to_toml"]


def read_config(path: Path) -> Mapping[str, Any]:
    """The settings in a file.

    Args:
        path: a TOML file, or ``run.json`` in a run folder, which has the settings of that run.

    Raises:
        UsageError: it cannot be read, or is neither.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise UsageError(f"--config {path} cannot be read: {e.strerror or e}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--config {path} is no text file; expected TOML, or the run.json of a run") from None
    if path.suffix == ".json":
        return _of_a_run(path, text)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise UsageError(f"--config {path} is not TOML: {e}") from None


def _of_a_run(path: Path, text: str) -> Mapping[str, Any]:
    try:
        config = json.loads(text)["description"]["config"]
    except (ValueError, KeyError, TypeError, RecursionError):
        config = None
    if not isinstance(config, dict) or not config:
        raise UsageError(f"--config {path} has no settings in it; expected TOML, or the run.json of a run")
    return config


def to_toml(config: Mapping[str, Any]) -> str:
    """Settings as a config file.

    Example:
        >>> print(to_toml({"model": "mlr", "kill": ["servers:2@20"], "set": {"batch_size": 500}}))
        model = "mlr"
        kill = ["servers:2@20"]
        <BLANKLINE>
        [set]
        batch_size = 500
    """
    plain = [f"{k} = {_value(v)}" for k, v in config.items() if not isinstance(v, Mapping)]
    tables = [
        "\n".join(["", f"[{name}]", *(f"{k} = {_value(v)}" for k, v in table.items())])
        for name, table in config.items()
        if isinstance(table, Mapping) and table
    ]
    return "\n".join([*plain, *tables])


def _value(value: Any) -> str:
    # Strings, numbers, booleans and lists of them are written alike in JSON and TOML (but for strings with DEL).
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

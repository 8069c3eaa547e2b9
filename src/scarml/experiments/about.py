"""How results came about: command, minutes, versions, seeds. Kept beside them."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from scarml.experiments.results import write_whole

__all__ = ["About"]


class About:
    """The file ``about.json`` of a folder of results.

    Args:
        path: of the file.
        resumed: some results were there already; their minutes are added to.
    """

    def __init__(self, path: Path, resumed: bool) -> None:
        self._path = path
        self._minutes_before = _minutes_in(path) if resumed and path.exists() else 0.0

    @contextmanager
    def timing(self, command: str, n_processes: int, **facts: object) -> Iterator[None]:
        """While results are made; then the file is written, also if they have been interrupted.

        Args:
            command: that makes the results.
            n_processes: that make them.
            facts: what else there is to know, seeds for example.
        """
        began_s = time.monotonic()
        try:
            yield
        finally:
            self._write(command, (time.monotonic() - began_s) / 60, n_processes, facts)

    def _write(self, command: str, minutes: float, n_processes: int, facts: dict[str, object]) -> None:
        known = {
            "command": command,
            "minutes": round(self._minutes_before + minutes, 2),
            "processes": n_processes,
            **facts,
            "python": platform.python_version(),
            "scarml": _version_of_scarml(),
            "numpy": np.__version__,
            "numba": version("numba"),
        }
        write_whole(self._path, (json.dumps(known, indent=1) + "\n").encode())

    def in_words(self) -> str:
        """One sentence, from the file."""
        facts: dict[str, Any] = json.loads(self._path.read_text())
        versions = ", ".join(f"{name} {facts[name]}" for name in ("scarml", "python", "numpy", "numba"))
        return (
            f"`{facts['command']}`: {facts['minutes']:.0f} minutes with {facts['processes']} process(es); {versions}; "
            f"seed {facts['failure_seed']} for the failures, 0 for the training."
        )


def _minutes_in(path: Path) -> float:
    """None of a file that is damaged or of another form: the results beside it count all the same."""
    try:
        return float(json.loads(path.read_text())["minutes"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def _version_of_scarml() -> str:
    try:
        return version("scarml")
    except PackageNotFoundError:
        return "from source"

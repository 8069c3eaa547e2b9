"""Pictures by the names of `scarml.experiments.figures`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["draw"]


def draw(name: str, rows: Sequence[Mapping[str, Any]], folder: Path, file_name: str) -> list[Path]:
    """Draw a figure.

    Args:
        name: of the figure, as on the command line.
        rows: its tidy table.
        folder: where to.
        file_name: of the pictures, without the ending.

    Returns:
        The paths, the PNG first.
    """
    module: Any = importlib.import_module(f"scarml.plots.{name.replace('-', '_')}")
    paths: list[Path] = module.draw(rows, folder, file_name)
    return paths

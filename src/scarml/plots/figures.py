"""Pictures by the names of `scarml.experiments.figures`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scarml.plots import bound

__all__ = ["draw", "panels_of"]


def panels_of(name: str) -> Sequence[bound.BoundPanel]:
    """What the picture of a figure consists of."""
    panels: Sequence[bound.BoundPanel] = importlib.import_module(f"scarml.plots.{name.replace('-', '_')}").PANELS
    return panels


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
    return bound.draw(panels_of(name), rows, folder, file_name)

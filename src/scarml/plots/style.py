"""What all pictures have in common: look, colours, files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["BLACK", "BLUE", "GREEN", "GREY", "ORANGE", "VERMILION", "save"]

# Of Okabe and Ito's palette, which colour-blind people can tell apart.
BLACK, BLUE, GREEN, ORANGE, VERMILION, GREY = "#000000", "#0072B2", "#009E73", "#E69F00", "#D55E00", "#999999"

_DOTS_PER_INCH = 160
_RC: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "svg.hashsalt": "scarml",  # the same picture is the same file
}


def save(make: Callable[[], Figure], folder: Path, name: str) -> list[Path]:
    """Write a picture as PNG and SVG; the same picture makes the same bytes.

    Args:
        make: draws it; called with the look set.
        folder: where to.
        name: of the files, without the ending.

    Returns:
        Both paths, the PNG first.
    """
    import matplotlib as mpl

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with mpl.rc_context(_RC):
        drawn = make()
        drawn.savefig(paths[0], dpi=_DOTS_PER_INCH, metadata={"Software": None})
        drawn.savefig(paths[1], metadata={"Date": None})
    return paths

"""Figure 6: a random part of the parameters set back to x(0)."""

from __future__ import annotations

from functools import partial

from scarml.plots import bound
from scarml.plots.bound import BoundPanel

__all__ = ["PANELS", "draw"]

PANELS = (
    BoundPanel("MLR, rows set back to x(0)", "mlr", r"$\|\delta\|$, in the unit of the parameters"),
    BoundPanel(
        "LDA, documents set back to x(0)",
        "lda",
        r"$\|\delta\|$, tokens (root of the sum of squares over documents)",
        controls="lda-controls",
    ),
)

draw = partial(bound.draw, PANELS)
"""Write the picture from the rows; see `scarml.plots.bound.draw`."""

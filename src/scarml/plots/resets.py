"""Figure 6: a random part of the parameters set back to x(0)."""

from __future__ import annotations

from functools import partial

from scarml.plots import bound
from scarml.plots.bound import BoundPanel

__all__ = ["PANELS", "draw"]

_TOKENS = r"$\|\delta\|$, tokens (Euclidean over documents)"
PANELS = (
    BoundPanel("MLR, rows set back on x(50)", "mlr", r"$\|\delta\|$, in the unit of the parameters"),
    BoundPanel("LDA, documents set back on x(50)", "lda", _TOKENS, controls="lda-controls"),
    BoundPanel("LDA, documents set back on x(15)", "lda-early", _TOKENS, controls="lda-early-controls"),
)

draw = partial(bound.draw, PANELS)
"""Write the picture from the rows; see `scarml.plots.bound.draw`."""

"""Figure 5: MLR on MNIST, random perturbations and such away from the optimum."""

from __future__ import annotations

from functools import partial

from scarml.plots import bound
from scarml.plots.bound import BoundPanel

__all__ = ["PANELS", "draw"]

_LABEL = r"$\|\delta\|$, in the unit of the parameters"
PANELS = (
    BoundPanel("MLR, random perturbations", "random", _LABEL),
    BoundPanel("MLR, straight away from the optimum", "adversarial", _LABEL),
)

draw = partial(bound.draw, PANELS)
"""Write the picture from the rows; see `scarml.plots.bound.draw`."""

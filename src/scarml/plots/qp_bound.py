"""Figure 3: costs and bound on a quadratic program."""

from __future__ import annotations

from functools import partial

from scarml.plots import bound
from scarml.plots.bound import BoundPanel

__all__ = ["PANELS", "draw"]

PANELS = (
    BoundPanel(
        "one perturbation, on x(500)", "single", r"$\|\delta\|$, in the unit of the parameters", worst="worst-case"
    ),
    BoundPanel(
        r"the same trials, against $\Delta_T$",
        "single",
        r"$\Delta_T = c^{-500}\,\|\delta\|$, in the unit of the parameters",
        size="from-start",
        worst="worst-case",
    ),
    BoundPanel(
        "in every iteration with probability 0.001",
        "repeated",
        r"$\Delta_T = \sum_\ell\, c^{-\ell}\,\|\delta_\ell\|$, in the unit of the parameters",
        size="from-start",
        log=True,
    ),
)

draw = partial(bound.draw, PANELS)
"""Write the picture from the rows; see `scarml.plots.bound.draw`."""

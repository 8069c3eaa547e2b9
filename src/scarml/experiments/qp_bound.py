"""Figure 3: iteration costs of a quadratic program, where everything that the bound needs is known.

The paper's panels (a) and (b) show one perturbation on x(500), against ‖δ‖ and against Δ_T: here the same trials. Panel
(c) has a perturbation in every iteration with probability 0.001. Directions are normal; the paper does not state their
sizes. Besides, perturbations straight away from the optimum show that the bound is met.
"""

from __future__ import annotations

from dataclasses import replace

from scarml.experiments.bound_figure import BoundFigure
from scarml.experiments.bound_setting import Setting
from scarml.experiments.problem import Panel

__all__ = ["FIGURE"]

_QP = Panel("qp", hyper_parameters=(("condition", 200.0),), n_shards=1, measured="distance")
_SINGLE = Setting("qp-bound", "single", _QP, "random", baseline_iters=1000, at_iter=500, largest=5.0, stride=16)
_WORST = replace(_SINGLE, name="worst-case", kind="adversarial", n_trials=100)
_REPEATED = replace(_SINGLE, name="repeated", probability=0.001, largest=1.0)
_SETTINGS = (_SINGLE, _WORST, _REPEATED)

FIGURE = BoundFigure(
    name="qp-bound",
    file_name="figure-3-qp",
    description="figure 3: costs and bound on a quadratic program, one perturbation and many",
    settings=_SETTINGS,
    quick=tuple(replace(s, n_trials=40) for s in _SETTINGS),
)

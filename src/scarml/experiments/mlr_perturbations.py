"""Figure 5: iteration costs of MLR on MNIST, for random perturbations and for those away from the optimum.

As in the paper there is one perturbation, on x(50), and the criterion takes 100 iterations. The optimum is not known;
x(1000) stands in for it. Sizes go up to three quarters of ‖x(50) − x*‖; the paper does not state its own.
"""

from __future__ import annotations

from dataclasses import replace

from scarml.experiments.bound_figure import BoundFigure
from scarml.experiments.bound_setting import Setting
from scarml.experiments.problem import Panel

__all__ = ["FIGURE", "MLR", "MLR_QUICK"]

MLR = Setting(
    "mlr-perturbations",
    "random",
    Panel("mlr", "mnist"),
    "random",
    baseline_iters=100,
    at_iter=50,
    largest=0.75,
    n_trials=100,
    reference_iters=1000,
    stride=8,
)
MLR_QUICK = replace(
    MLR, panel=Panel("mlr", "mnist-10k"), baseline_iters=40, at_iter=20, reference_iters=400, n_trials=12
)
"""On the images that come with SCAR."""

FIGURE = BoundFigure(
    name="mlr-perturbations",
    file_name="figure-5-mlr",
    description="figure 5: MLR on MNIST, random and adversarial perturbations",
    settings=(MLR, replace(MLR, name="adversarial", kind="adversarial")),
    quick=(MLR_QUICK, replace(MLR_QUICK, name="adversarial", kind="adversarial")),
)

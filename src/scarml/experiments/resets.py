"""Figure 6: a random part of the parameters is set back to x(0), for MLR on MNIST and for LDA on 20 Newsgroups.

As for figure 5, with one perturbation on x(50) and a criterion that takes 100 iterations. LDA has the vocabulary of
5,000 words, with which the corpus has about the 1.1 million tokens that fit the paper's criterion. Its sampler is
noisy: trials and controls have random numbers of their own after x(50).

By then LDA is on a plateau, where the end of a run is a matter of chance. So a third panel has the perturbation on
x(15) and a criterion that takes 30 iterations, where losses still fall fast.
"""

from __future__ import annotations

from dataclasses import replace

from scarml.experiments.bound_figure import BoundFigure
from scarml.experiments.bound_setting import Setting
from scarml.experiments.mlr_perturbations import MLR, MLR_QUICK
from scarml.experiments.problem import Panel

__all__ = ["FIGURE"]

_MLR = replace(MLR, figure="resets", name="mlr", kind="reset", largest=1.0)
_LDA = Setting(
    "resets",
    "lda",
    Panel("lda", "20newsgroups-5k"),
    "reset",
    baseline_iters=100,
    at_iter=50,
    n_trials=60,
    reference_iters=1000,
    controls=20,
)
_LDA_EARLY = replace(_LDA, name="lda-early", baseline_iters=30, at_iter=15, reference_iters=300)
_LDA_QUICK = replace(
    _LDA, panel=Panel("lda", "reuters-395"), baseline_iters=20, at_iter=10, reference_iters=200, n_trials=8, controls=6
)

FIGURE = BoundFigure(
    name="resets",
    file_name="figure-6-resets",
    description="figure 6: a part of the parameters set back to x(0), MLR on MNIST and LDA on 20 Newsgroups",
    settings=(_MLR, _LDA, _LDA_EARLY),
    quick=(replace(MLR_QUICK, figure="resets", name="mlr", kind="reset", largest=1.0), _LDA_QUICK),
)

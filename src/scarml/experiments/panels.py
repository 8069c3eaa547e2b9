"""The eight panels of the paper's figures 7 and 8: what is trained on what, and when it is done.

Settings are those of appendix C where they fit the data; criteria lie midway between the lowest loss so far and the one
after it, where the baseline has taken about 60 iterations. Two of them differ:

* **LDA** ends after 22 iterations. Up to there runs on from the same state, with other random values, end within 0.3
  iterations of each other (standard deviation) if they start on x(8) or later, and within 1.5 to 2.6 from x(1), where
  topics are not told apart yet. Over all failures the variance is twice that of 22 for a criterion after 25 iterations
  and 6 to 8 times for one after 35, where the loss is flat. Earlier it would be less, but then hardly a failure finds
  two saves.
* **CNN**: the loss goes up and down by a tenth from one iteration to the next, for all runs alike: they see the same
  batches. So the criterion is about the mean of 16 losses, and met after 28 iterations. There that mean falls evenly,
  by 3 to 4 % an iteration from x(22) to x(30). Later it halts and falls by turns, and with a mean of 8 it does so
  sooner: what a loss costs then depends on which of them the criterion lies in. An iteration is 8 batches, a loss of
  1,000 examples, and one shard instead of 16 takes both, so that a trial takes two to three seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scarml.checkpoint.budget import BudgetUnit
from scarml.errors import UsageError
from scarml.experiments.problem import Panel

__all__ = ["BEYOND", "PANELS", "QUICK", "SLICED", "PaperPanel", "panel_named"]


@dataclass(frozen=True, slots=True)
class PaperPanel:
    """One panel.

    Args:
        title: as in the paper.
        panel: what is trained.
        budgets: what the fraction of a save is counted in: blocks as in the paper, and bytes where blocks differ so
            much in size that it matters.
    """

    title: str
    panel: Panel
    budgets: tuple[BudgetUnit, ...] = ("blocks",)


_BOTH: tuple[BudgetUnit, ...] = ("blocks", "bytes")


def _cnn(blocks: str) -> Panel:
    settings = (("blocks", blocks), ("batches_per_iteration", 8), ("loss_examples", 1_000))
    label = f"cnn-{blocks}-mnist"
    return Panel("cnn", "mnist", 21_738.1, n_shards=1, hyper_parameters=settings, smoothed_iters=16, label=label)


PANELS: Mapping[str, PaperPanel] = {
    p.panel.name: p
    for p in (
        PaperPanel("MLR on MNIST", Panel("mlr", "mnist")),
        PaperPanel("MLR on CoverType", Panel("mlr", "covtype")),
        PaperPanel("MF on MovieLens", Panel("mf", "movielens")),
        PaperPanel("MF on Jester", Panel("mf", "jester")),
        PaperPanel("LDA on 20 Newsgroups", Panel("lda", "20newsgroups-5k", criterion=9_692_139.4, noisy=True), _BOTH),
        PaperPanel("LDA on Reuters", Panel("lda", "reuters-r8", criterion=3_462_491.1, noisy=True), _BOTH),
        PaperPanel("CNN by layer on MNIST", _cnn("by-layer"), _BOTH),
        PaperPanel("CNN by shard on MNIST", _cnn("by-shard"), _BOTH),
    )
}
"""By name, in the order in which they take longer and longer."""

SLICED = PaperPanel("CNN by layer on MNIST, saved in slices", _cnn("slices-by-layer"), _BOTH)
"""Layers are lost as a whole and saved slice by slice. Failures, and what a full recovery costs, are those by layer."""

BEYOND: Mapping[str, PaperPanel] = {**PANELS, SLICED.panel.name: SLICED}
"""The paper's, and what it does not have."""

QUICK = PaperPanel("MLR on 10,000 images of MNIST", Panel("mlr", "mnist-10k"))
"""On the images that come with SCAR."""


def panel_named(name: str, panels: Mapping[str, PaperPanel] = PANELS) -> PaperPanel:
    """The panel of that name.

    Args:
        name: of the panel.
        panels: to choose from.

    Raises:
        UsageError: with the names there are.

    Example:
        >>> panel_named("mf-jester").title
        'MF on Jester'
    """
    if name not in panels:
        raise UsageError(f"there is no panel {name!r}; choose one of {', '.join(panels)}")
    return panels[name]

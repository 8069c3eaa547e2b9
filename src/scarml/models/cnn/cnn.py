"""CNN: the paper's convolutional network, by Adam at the server.

Source: section 5.1 and appendix C of the paper, which leave the widths of the layers open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from scarml.core.block import Array
from scarml.core.metric import Metric
from scarml.data.classification import Classification
from scarml.errors import ModelError, UsageError
from scarml.models.cnn.adam import Adam
from scarml.models.cnn.cut import CutBy
from scarml.models.cnn.replica import MakeModule
from scarml.models.cnn.torch_import import import_torch, require_torch
from scarml.models.cnn.training import ACCURACY, LossSum, ModuleTraining, Restores, n_right
from scarml.models.defaults import Defaults

__all__ = ["CNN"]

_BRIGHTEST = np.float32(255)


@dataclass(frozen=True, slots=True)
class _Network:
    """Makes the network; a value, so that equal ones share their replicas."""

    side: int
    n_classes: int

    def __call__(self) -> Any:
        from scarml.models.cnn.images import Images

        nn = import_torch().nn
        return nn.Sequential(
            Images(self.side),
            *(nn.Conv2d(1, 16, 5), nn.MaxPool2d(2), nn.ReLU()),  # the same as the other way round, on a quarter
            *(nn.Conv2d(16, 32, 5), nn.MaxPool2d(2), nn.ReLU()),
            nn.Flatten(),
            *(nn.Linear(32 * (((self.side - 4) // 2 - 4) // 2) ** 2, 100), nn.ReLU()),
            *(nn.Linear(100, 50), nn.ReLU()),
            nn.Linear(50, self.n_classes),
        )


def _cross_entropy(outputs: Any, targets: Any) -> Any:
    return import_torch().nn.functional.cross_entropy(outputs, targets, reduction="sum")


@dataclass(frozen=True, slots=True)
class CNN(ModuleTraining):
    """Minimise the cross-entropy of a network of 2 convolutions with max-pooling and 3 dense layers, by Adam.

    Convolutions of 5 × 5 to 16 and 32 channels, dense layers of 100, 50 and the classes, ReLU between all: for images
    of 28 × 28 pixels and 10 classes 70,108 parameters in 10 tensors, of which one holds 73 %. Pixels are divided by
    255. The paper gives batches of 64 examples and does not say how many are an iteration. Here 24 are (8 for
    ``mnist-10k``): so the paper's criterion, a mean of 0.08, is reached after about 60 iterations, as with its other
    models. The loss swings by a tenth from one iteration to the next there, so costs want the mean of many trials.
    Each batch is a phase with a commit of its own, since Adam moves the weights after every batch: one gradient at
    fixed weights over 24 batches would be training with batches of 1,536. Held-out metrics are the mean cross-entropy
    and the accuracy, of all held-out examples.

    Data: `Classification`, features in rows of ``side`` × ``side`` pixels from 0 to 255.

    Args:
        learning_rate: α of Adam.
        beta_1: decay of the mean of gradients.
        beta_2: decay of the mean of squared gradients.
        epsilon: keeps the step finite.
        batch_size: examples a step of Adam, at least 1.
        batches_per_iteration: steps an iteration, each a phase.
        blocks: ``by-layer`` (a block is a tensor, weight and bias apart), ``by-shard`` (slices along the first axis,
            each lost by itself) or ``slices-by-layer`` (slices; those of one tensor are lost together).
        slices: most slices of one tensor, as even as can be.
        restores: ``all`` of a block, or its ``weights``: a block that comes back from an older save then begins with
            fresh moments.
        loss_examples: the loss is taken of so many examples, evenly spread, and scaled up to all of them: 10,000
            take about as long as an iteration on ``mnist``.
        side: of the images, in pixels, at least 16.
        n_classes: how many classes there are, at least 1.

    Raises:
        UsageError: if an argument is out of range, or PyTorch is not installed.

    Example:
        >>> CNN(blocks="by-shard").n_phases                           # doctest: +SKIP
        24
    """

    learning_rate: float = 1e-3
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    batch_size: int = 64
    batches_per_iteration: int = 24
    blocks: CutBy = "by-layer"
    slices: int = 16
    restores: Restores = "all"
    loss_examples: int = 10_000
    side: int = 28
    n_classes: int = 10

    name: ClassVar[str] = "cnn"
    metrics: ClassVar[Sequence[Metric]] = (Metric("cross_entropy"), ACCURACY)
    defaults: ClassVar[Mapping[str | None, Defaults]] = {
        "mnist": Defaults(stop_loss_sum=4_800.0, baseline_iters=61),
        "mnist-10k": Defaults({"batches_per_iteration": 8}, stop_loss_sum=800.0, baseline_iters=59),
    }

    def __post_init__(self) -> None:
        self._check()
        Adam(self.learning_rate, self.beta_1, self.beta_2, self.epsilon)
        if self.side < 16:
            raise UsageError(f"side is {self.side}; expected at least 16, or nothing is left after both convolutions")
        if self.n_classes < 1:
            raise UsageError(f"n_classes is {self.n_classes}; expected at least 1")
        require_torch("CNN")

    @property
    def _make_module(self) -> MakeModule:
        return _Network(self.side, self.n_classes)

    @property
    def _loss_sum(self) -> LossSum:
        return _cross_entropy

    @property
    def _measures(self) -> Mapping[str, LossSum]:
        return {"cross_entropy": _cross_entropy, "accuracy": n_right}

    def _adam_of(self, parameter: str) -> Adam:
        return Adam(self.learning_rate, self.beta_1, self.beta_2, self.epsilon)

    def _examples(self, data: Any) -> tuple[Array, Array]:
        if not isinstance(data, Classification):
            raise ModelError(f"CNN takes a Classification; got {type(data).__name__}")
        if data.n_features != self.side**2 or data.n_classes > self.n_classes:
            raise ModelError(
                f"the data has {data.n_features} features and {data.n_classes} classes; expected images of "
                f"{self.side} x {self.side} pixels and at most {self.n_classes} classes; set side and n_classes"
            )
        return data.features, data.labels

    def _input(self, rows: Array) -> Array:
        return rows.astype(np.float32) / _BRIGHTEST

"""TorchModel: any torch module, trained by Adam at the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scarml.core.block import Array
from scarml.core.metric import Metric
from scarml.data.classification import Classification
from scarml.errors import ModelError
from scarml.models.cnn.adam import Adam
from scarml.models.cnn.cut import CutBy
from scarml.models.cnn.replica import MakeModule
from scarml.models.cnn.torch_import import require_torch
from scarml.models.cnn.training import ACCURACY, LossSum, ModuleTraining, Restores, as_torch_takes, n_right

__all__ = ["TorchModel"]


@dataclass(frozen=True, slots=True)
class TorchModel(ModuleTraining):
    """Train a ``torch.nn.Module`` of your own: each parameter, or each slice of one, is a block.

    Blocks hold weights together with Adam's moments and step. Results do not depend on the number of nodes: each
    shard is computed by one thread, and gradients are added in the order of the shards. For that the module must be a
    function of its parameters and its inputs. Refused, with the reason: Dropout (random numbers), BatchNorm with
    running statistics (buffers that change), parameters that are not float32 on the CPU. Tied weights are one
    parameter. Frozen ones (``requires_grad=False``) stay as they are; if lost, they are restored.

    Data: ``(inputs, targets)``, two arrays with one row an example, or a `Classification`. Floating-point numbers
    reach the module as float32, others as int64.

    Args:
        make_module: returns a new module; called with torch's generator seeded, so that it is a function of the seed.
            A function of a module, not a lambda, if it is to be sent to other processes.
        loss_sum: from the module's output and the targets to the loss, summed over the examples. Outputs are float64
            where the loss is reported.
        adam: the settings, or a function from the name of a parameter to its settings, such as a weight decay for
            matrices only.
        batch_size: examples a step of Adam, at least 1.
        batches_per_iteration: steps an iteration, each a phase with a commit of its own.
        blocks: ``by-layer`` (a block is a parameter, weight and bias apart), ``by-shard`` (slices along the first axis,
            each lost by itself) or ``slices-by-layer`` (slices; those of one parameter are lost together).
        slices: most slices of one parameter.
        restores: ``all`` of a block, or its ``weights``: a block that comes back from an older save then begins with
            fresh moments.
        loss_examples: the loss is taken of so many examples, evenly spread, and scaled up to all of them.
        accuracy: besides the mean loss, tell of held-out examples how many have the highest output at their target: for
            modules that give a score for each class, along the second axis.

    Raises:
        UsageError: if an argument is out of range, or PyTorch is not installed.

    Example:
        >>> import torch                                              # doctest: +SKIP
        >>> from torch import nn                                      # doctest: +SKIP
        >>> model = TorchModel(lambda: nn.Linear(3, 1), nn.MSELoss(reduction="sum"))        # doctest: +SKIP
    """

    make_module: MakeModule
    loss_sum: LossSum
    adam: Adam | Callable[[str], Adam] = field(default_factory=Adam)
    batch_size: int = 64
    batches_per_iteration: int = 1
    blocks: CutBy = "by-layer"
    slices: int = 16
    restores: Restores = "all"
    loss_examples: int = 10_000
    accuracy: bool = False

    def __post_init__(self) -> None:
        self._check()
        require_torch("TorchModel")

    @property
    def _make_module(self) -> MakeModule:
        return self.make_module

    @property
    def _loss_sum(self) -> LossSum:
        return self.loss_sum

    @property
    def metrics(self) -> Sequence[Metric]:
        """The mean loss of held-out examples, and if wanted their accuracy."""
        return (Metric("loss_mean"), *((ACCURACY,) if self.accuracy else ()))

    @property
    def _measures(self) -> Mapping[str, LossSum]:
        return {"loss_mean": self.loss_sum, **({"accuracy": n_right} if self.accuracy else {})}

    def _adam_of(self, parameter: str) -> Adam:
        return self.adam if isinstance(self.adam, Adam) else self.adam(parameter)

    def _examples(self, data: Any) -> tuple[Array, Array]:
        if isinstance(data, Classification):
            return data.features, data.labels
        if not (isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(a, np.ndarray) for a in data)):
            raise ModelError(f"TorchModel takes (inputs, targets), two arrays, or a Classification; got {data!r:.50}")
        inputs, targets = data
        if len(inputs) != len(targets):
            raise ModelError(f"there are {len(inputs)} inputs and {len(targets)} targets; expected one for each")
        return inputs, targets

    def _input(self, rows: Array) -> Array:
        return as_torch_takes(rows)

"""Training of a torch module by Adam at the server, as a `Model`: what `CNN` and `TorchModel` share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from scarml.core.block import Array, Blocks, Field, Ids, Table
from scarml.core.metric import Metric
from scarml.core.model import ALL, Computed, Context, Model, Reads, Shard, Update
from scarml.core.rng import stream
from scarml.errors import ModelError, UsageError
from scarml.models.cnn.adam import Adam, adam_step
from scarml.models.cnn.cut import Cut, CutBy, cut_parameters
from scarml.models.cnn.replica import MakeModule, fresh_module, parameters_of, replica_of, start_of

__all__ = ["ACCURACY", "LossSum", "ModuleTraining", "Restores", "as_torch_takes", "n_right"]

LossSum = Callable[[Any, Any], Any]
"""From the module's output and the targets to the loss, summed over the examples, as a tensor of one number."""

Restores = Literal["all", "weights"]

ACCURACY = Metric("accuracy", higher_is_better=True)
"""The mean of `n_right`."""

TABLE = "parameters"
_EXAMPLES_AT_ONCE = 250
"""In a pass over the loss: the activations of so many stay small."""


@dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """One shard's piece of every batch, one after the other, and of the examples that the loss is taken of."""

    inputs: Array
    targets: Array
    starts: Ids
    """Where the piece of each batch starts, shape (n_batches + 1,)."""
    batch_lengths: Ids
    """Examples in each whole batch, over all shards."""
    loss_inputs: Array
    loss_targets: Array
    loss_weight: float
    """Examples that each of these stands for."""

    def batch(self, ctx: Context, n_phases: int) -> tuple[int, slice]:
        """The number of the batch of this phase, and where this shard's piece of it is."""
        number = ((ctx.iteration - 1) * n_phases + ctx.phase) % len(self.batch_lengths)
        return number, slice(int(self.starts[number]), int(self.starts[number + 1]))


class ModuleTraining(Model, Protocol):
    """Minimise a sum over examples by Adam on the gradients of batches.

    An iteration is ``batches_per_iteration`` batches, each a phase with a commit of its own: every batch is computed
    at the weights that the one before has led to, as in plain training. The examples are put into one fixed random
    order, the same for every seed, and cut into batches; the last is smaller where ``batch_size`` does not divide
    them. After it the first follows again. Shard s is the s-th piece of every batch; its gradient is float32, and the
    servers add the shards' gradients in their order.

    There is one table, ``parameters``, with the fields ``value``, ``m`` and ``v`` (float32, as long as the block),
    ``step`` (of Adam, counted for each block) and ``block`` (its number: `apply` is told no ids). All blocks one after
    the other are all parameters of the module, flat, in the order of ``module.parameters()``.
    """

    batch_size: int
    batches_per_iteration: int
    blocks: CutBy
    slices: int
    restores: Restores
    loss_examples: int

    @property
    @abstractmethod
    def _make_module(self) -> MakeModule:
        """Returns a new module."""

    @property
    @abstractmethod
    def _loss_sum(self) -> LossSum:
        """The loss of a module's outputs, summed over examples."""

    @property
    @abstractmethod
    def _measures(self) -> Mapping[str, LossSum]:
        """For each of `metrics`, from the module's outputs and the targets to its sum over the examples."""

    @abstractmethod
    def _adam_of(self, parameter: str) -> Adam:
        """The settings for the parameter of this name."""

    @abstractmethod
    def _examples(self, data: Any) -> tuple[Array, Array]:
        """Inputs and targets, one row an example; ModelError if the data is not what this model takes."""

    @abstractmethod
    def _input(self, rows: Array) -> Array:
        """Inputs as the module takes them: a new array."""

    def _check(self) -> None:
        for name in ("batch_size", "batches_per_iteration", "loss_examples"):
            value = getattr(self, name)
            if value < 1:
                raise UsageError(f"{name} is {value}; expected at least 1")
        if self.restores not in get_args(Restores):
            raise UsageError(f"restores {self.restores!r} is unknown; choose {', '.join(get_args(Restores))}")
        cut_parameters([], self.blocks, self.slices)

    @property
    def n_phases(self) -> int:
        """A batch each."""
        return self.batches_per_iteration

    def tables(self, data: Any) -> Sequence[Table]:
        """The table ``parameters``."""
        inputs, targets = self._examples(data)
        if not len(inputs):
            raise ModelError(f"{type(self).__name__} needs at least one example; the data has none")
        make_module = self._make_module
        parameters_of(make_module)  # refuses what cannot be kept as blocks
        start = start_of(make_module, 0)
        few = self._input(inputs[:2]), as_torch_takes(targets[:2])
        replica_of(make_module).check(start, *few, self._loss_sum)
        lengths = self._cut().lengths
        fields = [Field(name, "float32", ragged=True, moment=name != "value") for name in ("value", "m", "v")]
        fields += [Field(name, "int32") for name in ("step", "block")]
        if self.restores == "weights":
            fields.append(Field("commit", "int32"))
        return [Table(TABLE, len(lengths), tuple(fields), lengths=lengths)]

    def groups(self, table: Table) -> Ids:
        """The parameter that a block is of, or, by shard, the block itself."""
        return self._cut().groups

    def shards(self, data: Any, n_shards: int) -> Sequence[Shard]:
        """The s-th piece of every batch; sizes within a batch differ by at most one."""
        inputs, targets = self._examples(data)
        n = len(inputs)
        order = stream(0, "order of examples", n).permutation(n)
        edges = np.append(np.arange(0, n, self.batch_size), n)
        lengths = np.diff(edges)
        of_loss = np.arange(0, n, -(-n // self.loss_examples))
        shards = []
        for s in range(n_shards):
            begin = edges[:-1] + lengths * s // n_shards
            end = edges[:-1] + lengths * (s + 1) // n_shards
            rows = order[np.concatenate([np.arange(b, e) for b, e in zip(begin, end, strict=True)])]
            some = of_loss[len(of_loss) * s // n_shards : len(of_loss) * (s + 1) // n_shards]
            pieces = _Pieces(
                inputs=inputs[rows],
                targets=targets[rows],
                starts=np.concatenate(([0], np.cumsum(end - begin))),
                batch_lengths=lengths,
                loss_inputs=inputs[some],
                loss_targets=targets[some],
                loss_weight=n / len(of_loss),
            )
            shards.append(Shard(index=s, data=pieces, n_examples=len(rows)))
        return shards

    def init(self, table: Table, ids: Ids, seed: int) -> Mapping[str, Array]:
        """The values of a new module, made with torch's generator seeded from ``seed``; moments are zero."""
        start = start_of(self._make_module, seed)
        cut = self._cut()
        offsets = np.append(0, np.cumsum(cut.lengths))
        parts = [start[offsets[i] : offsets[i + 1]] for i in ids]
        fields = dict(table.empty(ids).fields)
        fields["value"] = np.concatenate([np.zeros(0, np.float32), *parts])
        fields["block"] = ids.astype(np.int32)
        return fields

    def reads(self, ctx: Context, shard: Shard) -> Reads:
        """All parameters, unless the shard has no example in this batch."""
        _, rows = shard.data.batch(ctx, self.n_phases)
        return {TABLE: ALL} if rows.stop > rows.start else {}

    def compute(self, ctx: Context, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> Computed:
        """This shard's part of the gradient of the batch's mean loss."""
        pieces: _Pieces = shard.data
        number, rows = pieces.batch(ctx, self.n_phases)
        if rows.stop == rows.start:
            return Computed()
        examples = self._input(pieces.inputs[rows]), as_torch_takes(pieces.targets[rows])
        gradient = replica_of(self._make_module).gradient(reads[TABLE].value, *examples, self._loss_sum)
        gradient /= np.float32(pieces.batch_lengths[number])
        return Computed([Update(TABLE, ALL, gradient)])

    def apply(self, ctx: Context, table: Table, fields: dict[str, Array], combined: Array) -> Mapping[str, Array]:
        """One step of Adam, in place."""
        blocks = fields["block"]
        lengths = table.block_lengths[blocks]
        if self.restores == "weights":
            commits = (ctx.iteration - 1) * self.n_phases + ctx.phase
            is_restored = fields["commit"] != commits
            fields["step"][is_restored] = 0
            elements = np.repeat(is_restored, lengths)
            fields["m"][elements] = 0
            fields["v"][elements] = 0
            fields["commit"][...] = commits + 1
        adam_step(
            fields["value"], fields["m"], fields["v"], fields["step"], combined, lengths, self._settings()[blocks]
        )
        return fields

    def loss_reads(self, shard: Shard) -> Reads:
        """All parameters, unless the loss is taken of none of the shard's examples."""
        return {TABLE: ALL} if len(shard.data.loss_inputs) else {}

    def loss(self, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> float:
        """The loss of the shard's piece of ``loss_examples``, times the examples that each of them stands for."""
        pieces: _Pieces = shard.data
        sums = self._sums(pieces.loss_inputs, pieces.loss_targets, reads, {"loss": self._loss_sum})
        return sums["loss"] * pieces.loss_weight

    def held_out_shards(self, data: Any, n_shards: int) -> Sequence[Shard]:
        """A slice of the examples each, all of them, in their order."""
        inputs, targets = self._examples(data)
        slices = np.array_split(np.arange(len(inputs)), n_shards)
        return [Shard(s, (inputs[rows], targets[rows]), n_examples=len(rows)) for s, rows in enumerate(slices)]

    def metric_reads(self, shard: Shard) -> Reads:
        """All parameters, unless the shard has no examples."""
        return {TABLE: ALL} if shard.n_examples else {}

    def metric_sums(self, shard: Shard, reads: Mapping[str, Blocks]) -> Mapping[str, float]:
        """What `_measures` gives, over the shard's examples."""
        inputs, targets = shard.data
        return self._sums(inputs, targets, reads, self._measures)

    def _sums(
        self, inputs: Array, targets: Array, reads: Mapping[str, Blocks], measures: Mapping[str, LossSum]
    ) -> dict[str, float]:
        def parts() -> Iterator[tuple[Array, Array]]:
            for begin in range(0, len(inputs), _EXAMPLES_AT_ONCE):
                rows = slice(begin, begin + _EXAMPLES_AT_ONCE)
                yield self._input(inputs[rows]), as_torch_takes(targets[rows])

        if not len(inputs):
            return dict.fromkeys(measures, 0.0)
        return replica_of(self._make_module).sums(reads[TABLE].value, parts(), measures)

    def module(self, tables: Mapping[str, Mapping[str, Array]]) -> Any:
        """The trained ``torch.nn.Module``.

        Args:
            tables: as ``scar.load`` gives them, of a run of this model.

        Raises:
            UsageError: if the tables are not this model's.
        """
        values = tables.get(TABLE, {}).get("value")
        module = fresh_module(self._make_module)
        n = sum(p.numel() for p in module.parameters())
        if values is None or values.shape != (n,):
            raise UsageError(f"the tables are not those of a run of this model; expected {TABLE} with {n} values")
        start = 0
        for p in module.parameters():
            part = values[start : start + p.numel()].reshape(tuple(p.shape))
            p.data = p.data.new_tensor(np.array(part, np.float32))
            start += p.numel()
        return module

    def _cut(self) -> Cut:
        return _cut(self._make_module, self.blocks, self.slices)

    def _settings(self) -> NDArray[np.float64]:
        """For each block `Adam.row`, or zeros if it is frozen, shape (n_blocks, 5)."""
        parameters = parameters_of(self._make_module)
        rows = [
            self._adam_of(name).row if is_trained else (0.0,) * 5
            for name, is_trained in zip(parameters.names, parameters.is_trained, strict=True)
        ]
        return np.array(rows)[self._cut().parameter]


@lru_cache(maxsize=16)
def _cut(make_module: MakeModule, by: CutBy, slices: int) -> Cut:
    return cut_parameters(parameters_of(make_module).shapes, by, slices)


def as_torch_takes(rows: Array) -> Array:
    """A copy: floating-point numbers as float32, others as int64, which is what losses and embeddings want."""
    return rows.astype(np.float32 if rows.dtype.kind == "f" else np.int64)


def n_right(outputs: Any, targets: Any) -> Any:
    """How many targets have the highest score; classes are along the second axis, as in torch's cross-entropy.

    Where an example has several targets, such as the words of a text, it counts by the share of them that are right.
    """
    right = (outputs.argmax(dim=1) == targets).double()
    return right.reshape(len(targets), -1).mean(dim=1).sum()

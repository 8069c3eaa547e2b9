"""A module whose parameters are views of one flat array: one for each thread, filled anew for each computation."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from scarml.core.block import Array
from scarml.core.rng import stream
from scarml.errors import ModelError
from scarml.models.cnn.one_thread import one_torch_thread
from scarml.models.cnn.torch_import import import_torch

__all__ = ["MakeModule", "Parameters", "Replica", "fresh_module", "parameters_of", "replica_of", "start_of"]

MakeModule = Callable[[], Any]
"""Returns a new ``torch.nn.Module``; must be hashable, and picklable to train on Ray: a function of a module."""

_KEPT = 4
"""Replicas a thread keeps: more models are hardly trained in one process at a time."""

_generator_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Parameters:
    """What there is to know of a module's parameters, tied ones counted once."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    is_trained: tuple[bool, ...]


def fresh_module(make_module: MakeModule, seed: int | None = None) -> Any:
    """A new module; its random values are a function of ``seed``, and torch's generator is left as it was."""
    torch = import_torch()
    key = 0 if seed is None else int(stream(seed, "module").integers(2**62))
    with _generator_lock, torch.random.fork_rng(devices=[]), one_torch_thread:
        torch.manual_seed(key)
        module = make_module()
    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"make_module returned a {type(module).__name__}; expected a torch.nn.Module")
    return module.train()


@lru_cache(maxsize=16)
def parameters_of(make_module: MakeModule) -> Parameters:
    """The parameters of such a module.

    Raises:
        ModelError: it has none, or one that cannot be kept as float32 blocks.
    """
    module = fresh_module(make_module)
    named = list(module.named_parameters())
    if not named:
        raise ModelError("the module has no parameters; there is nothing to train")
    memory: dict[int, str] = {}
    for name, p in named:
        if str(p.dtype) != "torch.float32" or str(p.device) != "cpu":
            raise ModelError(f"parameter {name!r} is {p.dtype} on {p.device}; expected torch.float32 on cpu")
        other = memory.setdefault(p.data_ptr(), name) if p.numel() else name
        if other != name:
            raise ModelError(
                f"parameters {other!r} and {name!r} share memory without being one Parameter, so they would be parted; "
                "tie them by assigning the Parameter itself"
            )
    return Parameters(
        tuple(name for name, _ in named),
        tuple(tuple(p.shape) for _, p in named),
        tuple(bool(p.requires_grad) for _, p in named),
    )


@lru_cache(maxsize=2)
def start_of(make_module: MakeModule, seed: int) -> Array:
    """The parameters of a fresh module, flat, read-only."""
    module = fresh_module(make_module, seed)
    flat = np.concatenate([p.detach().numpy().reshape(-1) for p in module.parameters()])
    flat.setflags(write=False)
    return flat


class Replica:
    """A module with all its parameters in one array, and their gradients in another."""

    def __init__(self, make_module: MakeModule) -> None:
        torch = import_torch()
        self.module = fresh_module(make_module)
        parameters = list(self.module.parameters())
        n = sum(p.numel() for p in parameters)
        self._weights, self._gradient = torch.empty(n), torch.zeros(n)
        start = 0
        for p in parameters:
            part = slice(start, start + p.numel())
            p.data = self._weights[part].view(p.shape)
            if p.requires_grad:
                p.grad = self._gradient[part].view(p.shape)  # autograd adds to what is there, in place
            start = part.stop

    def gradient(self, weights: Array, inputs: Array, targets: Array, loss_sum: Callable[[Any, Any], Any]) -> Array:
        """∂ loss_sum / ∂ weights at ``weights``, flat, float32; zero where nothing is trained."""
        torch = import_torch()
        with one_torch_thread, torch.enable_grad():
            self._fill(weights)
            self._gradient.zero_()
            loss = loss_sum(self.module(torch.from_numpy(inputs)), torch.from_numpy(targets))
            loss.backward()
            gradient: Array = self._gradient.numpy().copy()
        return gradient

    def sums(
        self,
        weights: Array,
        parts: Iterator[tuple[Array, Array]],
        measures: Mapping[str, Callable[[Any, Any], Any]],
    ) -> dict[str, float]:
        """Each of ``measures`` at ``weights``, from outputs in float64 and targets, added up over the parts."""
        torch = import_torch()
        totals = dict.fromkeys(measures, 0.0)
        with one_torch_thread, torch.no_grad():
            self._fill(weights)
            for inputs, targets in parts:
                outputs = self.module(torch.from_numpy(inputs))
                is_float = isinstance(outputs, torch.Tensor) and outputs.is_floating_point()
                exact = outputs.double() if is_float else outputs
                target = torch.from_numpy(targets)
                target = target.double() if target.is_floating_point() else target
                for name, measure in measures.items():
                    totals[name] += float(measure(exact, target))
        return totals

    def check(self, weights: Array, inputs: Array, targets: Array, loss_sum: Callable[[Any, Any], Any]) -> None:
        """Try it on a few examples.

        Raises:
            ModelError: what it computes would not be a function of its parameters and the examples.
        """
        torch = import_torch()
        buffers = {name: b.clone() for name, b in self.module.named_buffers()}
        with _generator_lock, torch.random.fork_rng(devices=[]):
            before = torch.random.get_rng_state()
            self.gradient(weights, inputs, targets, loss_sum)
            drew = not torch.equal(before, torch.random.get_rng_state())
        changed = [name for name, b in self.module.named_buffers() if not torch.equal(b, buffers[name])]
        if changed:
            raise ModelError(
                f"buffer {changed[0]!r} changes as the module computes, as BatchNorm's do: it is no parameter, so it "
                "would be neither saved nor the same on all nodes; use GroupNorm or LayerNorm, or "
                "track_running_stats=False"
            )
        if drew:
            raise ModelError(
                "the module draws random numbers as it computes, as Dropout does: from a generator that all threads "
                "share, so results would depend on timing; set its probability to 0"
            )
        with one_torch_thread, torch.no_grad():
            outputs, target = self.module(torch.from_numpy(inputs)), torch.from_numpy(targets)
            if isinstance(outputs, torch.Tensor):
                once = float(loss_sum(outputs, target))
                twice = float(loss_sum(torch.cat([outputs, outputs]), torch.cat([target, target])))
                if math.isfinite(once) and not math.isclose(twice, 2 * once, rel_tol=1e-3):
                    raise ModelError(
                        f"loss_sum is {once:.6g} for {len(inputs)} examples and {twice:.6g} for the same twice; "
                        "expected the sum over examples, twice as much: reduction='sum'"
                    )

    def _fill(self, weights: Array) -> None:
        self._weights.numpy()[...] = weights


class _Kept(threading.local):
    """This thread's replicas, the most recently used last."""

    def __init__(self) -> None:
        self.replicas: OrderedDict[MakeModule, Replica] = OrderedDict()


_kept = _Kept()


def replica_of(make_module: MakeModule) -> Replica:
    """This thread's replica."""
    if make_module not in _kept.replicas:
        _kept.replicas[make_module] = Replica(make_module)
        if len(_kept.replicas) > _KEPT:
            _kept.replicas.popitem(last=False)
    _kept.replicas.move_to_end(make_module)
    return _kept.replicas[make_module]

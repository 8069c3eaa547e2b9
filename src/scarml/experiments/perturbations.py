"""Perturbations made on purpose: what a state becomes under noise, an adversary, a loss, rounding, or staleness.

Each takes a state x and returns the perturbed one, x + δ, leaving x as it is. ‖δ‖ is measured on what comes out, by
`scarml.theory.perturbation.perturbation_norm`, since values are rounded to the dtype of their table.

Source: section 2 (examples of perturbations) and 5.2 (random, adversarial, resets) of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scarml.core.block import Array, Blocks, Ids
from scarml.core.sequential import State
from scarml.errors import UsageError
from scarml.experiments.problem import Trainer
from scarml.theory.perturbation import perturbation_norm

__all__ = ["away_from", "distance_between", "normal", "reset", "rounded", "stale_step"]


def normal(state: State, norm: float, rng: np.random.Generator) -> State:
    """Add noise of a given norm, in a direction that is uniformly random over all tables together.

    The direction is that of a vector of independent standard normal values.

    Args:
        state: x, of floating-point tables.
        norm: ‖δ‖, at least 0.
        rng: draws the direction.

    Raises:
        UsageError: if a table holds no floating-point values, or the norm is negative.
    """
    return _moved(state, {name: rng.standard_normal(blocks.value.shape) for name, blocks in state.items()}, norm)


def away_from(state: State, optimum: State, norm: float) -> State:
    """Move straight away from the optimum: opposite to the direction of convergence, the worst that theory knows.

    Args:
        state: x, of floating-point tables.
        optimum: x*.
        norm: ‖δ‖, at least 0.

    Raises:
        UsageError: as for `normal`, and if x is the optimum, from which no direction leads away.
    """
    return _moved(state, {name: b.value.astype(float) - optimum[name].value for name, b in state.items()}, norm)


def reset(state: State, initial: State, lost: Mapping[str, Ids]) -> State:
    """Set some blocks back to their values in x(0), as a recovery without any checkpoint would.

    Args:
        state: x.
        initial: x(0).
        lost: per table the ids of the blocks; tables that lose nothing may be left out.
    """
    new = {name: blocks.copy() for name, blocks in state.items()}
    for name, ids in lost.items():
        new[name].put(initial[name].take(ids))
    return new


def rounded(state: State, mantissa_bits: int) -> State:
    """Round every value to so many significant bits, to the nearest: |δ| ≤ 2⁻ᵖ |x| for each.

    The paper's bound, 2⁻⁽ᵖ⁻¹⁾ |x|, is that of cutting bits off; rounding halves it.

    Args:
        state: x, of floating-point tables.
        mantissa_bits: p, at least 1, the leading bit counted.

    Raises:
        UsageError: if a table holds no floating-point values, or p is below 1.
    """
    if mantissa_bits < 1:
        raise UsageError(f"mantissa_bits is {mantissa_bits}; expected at least 1, the leading bit")
    _check_floating(state)
    new = {name: blocks.copy() for name, blocks in state.items()}
    for blocks in new.values():
        mantissa, exponent = np.frexp(blocks.value)
        scale = 2.0**mantissa_bits
        blocks.value[...] = np.ldexp(np.rint(mantissa * scale) / scale, exponent)
    return new


def stale_step(trainer: Trainer, state: State, stale: State, commit: int) -> State:
    """The next iteration with updates that were computed from older parameters: x + (f(x_stale) − x_stale).

    This is x(k+1) + δ with the δ of bounded staleness. Only where updates are added is a step from other parameters
    one at all.

    Args:
        trainer: of the problem; is left after that iteration.
        state: x, after ``commit`` commits.
        stale: x_stale, what the updates are computed from.
        commit: where to go on; at the boundary of an iteration.

    Raises:
        UsageError: if a table's updates are not added.
    """
    for table in trainer.tables:
        if trainer.problem.model.combine(table) != "add":
            raise UsageError(f"the updates of table {table.name!r} are not added, so they cannot be stale")
    trainer.start(stale, commit)
    trainer.next_iteration()
    stepped = trainer.state()
    new = {name: blocks.copy() for name, blocks in state.items()}
    for name, blocks in new.items():
        blocks.value[...] += stepped[name].value - stale[name].value
    return new


def distance_between(trainer: Trainer, a: State, b: State) -> float:
    """‖a − b‖ over all tables, in the model's norm."""
    return perturbation_norm([(a[name], b[name]) for name in a], trainer.problem.model.distance)


def _moved(state: State, direction: Mapping[str, Array], norm: float) -> State:
    if not norm >= 0:
        raise UsageError(f"the norm of a perturbation is {norm}; expected a number of at least 0")
    _check_floating(state)
    length = float(np.sqrt(sum(float(np.square(d).sum()) for d in direction.values())))
    if length == 0:
        raise UsageError("no direction leads away from the optimum in the optimum itself")
    new = {name: blocks.copy() for name, blocks in state.items()}
    for name, blocks in new.items():
        blocks.value[...] = blocks.value + norm / length * direction[name]
    return new


def _check_floating(state: Mapping[str, Blocks]) -> None:
    for name, blocks in state.items():
        if blocks.value.dtype.kind != "f":
            raise UsageError(
                f"table {name!r} holds {blocks.value.dtype}; only floating-point values can be moved by a little"
            )

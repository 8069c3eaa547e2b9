"""How old what is saved of a run is, block by block: what a loss would bring back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scarml.storage.census import census_of_run
from scarml.storage.store import Store
from scarml.storage.terms import Terms

__all__ = ["Staleness", "staleness"]


@dataclass(frozen=True, slots=True, eq=False)
class Staleness:
    """The ages of the newest durable values.

    Args:
        iteration: where the run stands, as far as its log and its segments tell.
        ages_iters: of the blocks that were ever saved, shape (n,).
        n_never: blocks that were never saved: they stand at x(0), or have not moved from there.
        is_complete: the run has ended with everything saved, so what is saved is what it is.
    """

    iteration: int
    ages_iters: NDArray[np.int64]
    n_never: int
    is_complete: bool


def staleness(store: Store, description: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> Staleness:
    """Count how old what is saved is.

    Args:
        store: where the run is.
        description: of the run.
        events: its event log.

    Raises:
        StoreError: the store cannot be read now, or what counts cannot.
    """
    census, _, _ = census_of_run(store, Terms(store))
    saved = np.concatenate([t.versions.iteration for t in census.values()] or [np.zeros(0, np.int64)])
    committed, is_complete = 0, False
    for event in events:
        match event.get("event"):
            case "iteration_committed" | "rolled_back" if type(event.get("iteration")) is int:
                committed, is_complete = event["iteration"], False
            case "run_finished":
                is_complete = event.get("saved") is True
    iteration = max(committed, int(saved.max(initial=0)))
    n_blocks = sum(_n_blocks(t) for t in description.get("tables", []))
    return Staleness(iteration, iteration - saved, max(n_blocks - len(saved), 0), is_complete)


def _n_blocks(table: object) -> int:
    if not isinstance(table, Mapping) or table.get("derived") is True:
        return 0
    n = table.get("n_blocks")
    return n if type(n) is int else 0

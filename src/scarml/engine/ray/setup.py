"""What every node is told when it begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scarml.control.view import Layout
from scarml.core.model import Model

__all__ = ["Setup"]


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """One run, as its nodes need to know it: put into Ray's store once, read by all.

    Args:
        model: the algorithm.
        layout: tables, partitions and shards.
        seed: of all random values.
        encodings: how fields are stored.
        url: of the run folder, as every process can open it.
        data: the name of a data set, which each worker reads for itself; or a reference to data that the driver has put
            into Ray's store.
        held_out: what of it, or beside it, metrics are taken of, as `scarml.data.held_out.load_with_held_out` takes it;
            or a reference to it.
        silence_s: how long a node may go on without having heard the driver.
    """

    model: Model
    layout: Layout
    seed: int
    encodings: Mapping[str, Mapping[str, str]]
    url: str
    data: Any
    held_out: Any
    silence_s: float

"""A model that returns what it must not is stopped by training itself, whether or not it was ever checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import scarml as scar
from scarml.core.model import Model, Shard, Update
from scarml.errors import ModelError

X = scar.Table("x", 10, (scar.Field("value", "float64", (3,)),))


class Shrinking(Model):
    """Each method can be replaced by another."""

    n_phases = 1

    def __init__(self, **methods: Any) -> None:
        for name, method in methods.items():
            setattr(self, name, method)

    def tables(self, data: Any) -> Any:
        return [X]

    def shards(self, data: Any, n_shards: int) -> Any:
        return [Shard(i, None, 1) for i in range(n_shards)]

    def init(self, table: Any, ids: Any, seed: int) -> Any:
        return {"value": np.ones((len(ids), 3))}

    def reads(self, ctx: Any, shard: Any) -> Any:
        return {"x": scar.ALL}

    def compute(self, ctx: Any, shard: Any, reads: Any, local: Any) -> Any:
        return scar.Computed([Update("x", scar.ALL, -0.01 * reads["x"].value)])

    def loss(self, shard: Any, reads: Any, local: Any) -> Any:
        return float((reads["x"].value ** 2).sum())


def train(model: Model) -> scar.Result:
    return scar.Job(model, servers=2, workers=1, shards=3, stop=scar.Stop(max_iters=4)).run()


def updating(ids: Any, values: Any, table: str = "x") -> Callable[..., Any]:
    return lambda *_: scar.Computed([Update(table, ids, values)])


def test_the_unbroken_one_trains() -> None:
    assert train(Shrinking()).iterations == 4


@pytest.mark.parametrize(
    ("broken", "clause"),
    [
        ({"n_phases": 0}, "n_phases: must be a whole number of at least 1, got 0"),
        ({"n_phases": "two"}, "n_phases: must be"),
        ({"tables": lambda _: None}, "tables: must return a sequence of Table, got None"),
        ({"tables": lambda _: []}, "tables: at least one table"),
        ({"tables": lambda _: [X, X]}, "tables: names must differ"),
        ({"shards": lambda *_: None}, "shards: must return a sequence of Shard, got None"),
        ({"shards": lambda *_: []}, "shards: indices must be 0 … 2 in order, got 0 shards"),
        ({"shards": lambda *_: [Shard(0, None, 1)] * 3}, "shards: indices must be"),
        ({"groups": lambda _: np.zeros(3, np.int64)}, "groups: expected 10 integers"),
        ({"groups": lambda _: [0] * 10}, "groups: expected 10 integers"),
        ({"init": lambda *_: None}, "init: must return a mapping"),
        ({"init": lambda *_: {"value": [1.0]}}, "field 'value' of table 'x' is no array"),
        ({"reads": lambda *_: None}, "reads of shard .: must be a mapping from table names"),
        ({"reads": lambda *_: {"y": scar.ALL}}, "'y' is not a server-home table"),
        (
            {"reads": lambda *_: {"x": [0, 1]}},
            "ids of table 'x' must be a one-dimensional int64 array or ALL, got list",
        ),
        ({"reads": lambda *_: {"x": np.array([10])}}, "ids of table 'x' must be 0 … 9"),
        ({"compute": lambda *_: None}, "compute of shard .: must return a Computed, got None"),
        ({"compute": lambda *_: scar.Computed([np.ones(3)])}, "updates must be a sequence of Update"),  # type: ignore[list-item]
        ({"compute": lambda *_: scar.Computed(local={"x": None})}, "must be Blocks of that table, got None"),  # type: ignore[dict-item]
        ({"compute": updating(scar.ALL, np.ones((4, 3)))}, "4 values for table 'x'; expected 10"),
        ({"compute": updating(scar.ALL, [1, 2, 3])}, "values for table 'x' must be an array, got list"),
        ({"compute": updating(scar.ALL, np.array(["a"] * 10))}, "values for table 'x' are <U1"),
        ({"compute": updating(scar.ALL, np.ones((10, 3)), "y")}, "updates table 'y'"),
        ({"compute": updating(np.array([8, 12]), np.ones((2, 3)))}, "ids of table 'x' must be 0 … 9"),
        ({"compute": updating(np.array([-1]), np.ones((1, 3)))}, "ids of table 'x' must be 0 … 9"),
        ({"compute": updating(np.array([1, 1]), np.ones((2, 3)))}, "must be strictly increasing"),
        ({"compute": updating(np.array([5, 1]), np.ones((2, 3)))}, "must be strictly increasing"),
        ({"compute": updating(np.array([1.0]), np.ones((1, 3)))}, r"got an array float64\(1,\)"),
        ({"combine": lambda _: "most"}, "combine of table 'x': is 'most'"),
        ({"apply": lambda *_: None}, "apply to table 'x': must return the new fields, got None"),
        ({"distance": lambda a, _: np.ones(2)}, "distance: must be . floating-point numbers"),
        ({"distance": lambda a, _: np.full(len(a), -1.0)}, "distance: is negative or NaN for finite blocks"),
        ({"distance": lambda a, _: np.full(len(a), np.nan)}, "distance: is negative or NaN for finite blocks"),
        ({"loss": lambda *_: None}, "loss of shard .: must return a number, got None"),
        ({"loss": lambda *_: np.ones(2)}, "loss of shard .: must return a number, got an array"),
    ],
)
def test_what_must_not_be_returned_is_named(broken: dict[str, Any], clause: str) -> None:
    with pytest.raises(ModelError, match=clause):
        train(Shrinking(**broken))


@pytest.mark.parametrize("servers", [1, 2])
def test_a_table_that_is_read_whole_cannot_be_written_into(servers: int) -> None:
    def compute(_ctx: Any, _shard: Any, reads: Any, _local: Any) -> Any:
        reads["x"].value[...] = 0

    with pytest.raises(ValueError, match="read-only"):
        scar.Job(Shrinking(compute=compute), servers=servers, workers=1, shards=3).run()

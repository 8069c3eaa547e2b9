"""What a model may return, checked wherever it is called: a class of the user's own may get it wrong.

Unchecked, ids that are out of order or out of range do not fail: their updates are dropped or land on other blocks, and
the run ends with wrong values. `scarml.testing.check_model` checks these rules too, and many that need several calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scarml.core.block import Blocks, Ids, Table
from scarml.core.metric import Metric
from scarml.core.model import ALL, Computed, Shard, Update
from scarml.errors import ModelError

__all__ = [
    "check_computed",
    "check_distance",
    "check_groups",
    "check_held_out_shards",
    "check_ids",
    "check_loss",
    "check_metric_sums",
    "check_metrics",
    "check_n_phases",
    "check_reads",
    "check_shards",
    "check_tables",
    "check_updates",
    "require",
]


def require(holds: bool, clause: str, message: str) -> None:
    """Raise ModelError, naming the clause that is broken, unless it holds."""
    if not holds:
        raise ModelError(f"{clause}: {message}")


def check_n_phases(n_phases: Any) -> None:
    """`Model.n_phases`."""
    right = isinstance(n_phases, int) and not isinstance(n_phases, bool) and n_phases >= 1
    require(right, "n_phases", f"must be a whole number of at least 1, got {n_phases!r}")


def check_tables(tables: Any) -> None:
    """What `Model.tables` returns."""
    right = isinstance(tables, Sequence) and all(isinstance(t, Table) for t in tables)
    require(right, "tables", f"must return a sequence of Table, got {_kind(tables)}")
    names = [t.name for t in tables]
    require(len(set(names)) == len(names), "tables", f"names must differ, got {names}")
    require(any(not t.derived for t in tables), "tables", "at least one table must not be derived")
    for t in tables:
        plain = t.home == "server" and [f.name for f in t.fields] == ["value"] and t.lengths is None
        message = f"derived table {t.name!r} must have home 'server' and one dense field"
        require(plain or not t.derived, "tables", message)


def check_shards(tables: Mapping[str, Table], shards: Any, n_shards: int, where: str = "shards") -> None:
    """What `Model.shards` returns, apart from each worker-home block being in exactly one shard."""
    right = isinstance(shards, Sequence) and all(isinstance(s, Shard) for s in shards)
    require(right, where, f"must return a sequence of Shard, got {_kind(shards)}")
    right = [s.index for s in shards] == list(range(n_shards))
    got = [s.index for s in shards[:10]]
    require(right, where, f"indices must be 0 … {n_shards - 1} in order, got {len(shards)} shards: {got} …")
    for shard in shards:
        for name, ids in shard.blocks.items():
            home = tables[name].home if name in tables else "unknown"
            require(home == "worker", where, f"shard {shard.index} owns blocks of {name!r}, whose home is {home}")
            check_ids(tables[name], ids, f"{where}: blocks of shard {shard.index}")


def check_groups(table: Table, groups: Any) -> None:
    """What `Model.groups` returns."""
    right = isinstance(groups, np.ndarray) and groups.shape == (table.n_blocks,) and groups.dtype.kind in "iu"
    require(right, "groups", f"expected {table.n_blocks} integers for table {table.name!r}")


def check_ids(table: Table, ids: Any, where: str) -> None:
    """Ids that may stand in reads, updates and shards: int64, strictly increasing, of this table."""
    right = isinstance(ids, np.ndarray) and ids.dtype == np.int64 and ids.ndim == 1
    require(right, where, f"ids of table {table.name!r} must be a one-dimensional int64 array or ALL, got {_kind(ids)}")
    require(bool((ids[1:] > ids[:-1]).all()), where, f"ids of table {table.name!r} must be strictly increasing")
    inside = len(ids) == 0 or (ids[0] >= 0 and ids[-1] < table.n_blocks)
    require(bool(inside), where, f"ids of table {table.name!r} must be 0 … {table.n_blocks - 1}")


def check_reads(tables: Mapping[str, Table], reads: Any, where: str) -> None:
    """What `Model.reads` and `Model.loss_reads` return."""
    require(isinstance(reads, Mapping), where, f"must be a mapping from table names to ids or ALL, got {_kind(reads)}")
    for name, ids in reads.items():
        known = name in tables and tables[name].home == "server"
        require(known, where, f"{name!r} is not a server-home table; a shard gets its own blocks as `local`")
        if ids is not ALL:
            check_ids(tables[name], ids, where)


def check_computed(tables: Mapping[str, Table], shard: Shard, computed: Any) -> None:
    """What `Model.compute` returns."""
    where = f"compute of shard {shard.index}"
    require(isinstance(computed, Computed), where, f"must return a Computed, got {_kind(computed)}")
    check_updates(tables, computed.updates, where)
    require(isinstance(computed.local, Mapping), where, f"local must be a mapping, got {_kind(computed.local)}")
    for name, blocks in computed.local.items():
        right = isinstance(blocks, Blocks) and blocks.table.name == name
        require(right, where, f"local[{name!r}] must be Blocks of that table, got {_kind(blocks)}")
        own: Ids = shard.blocks.get(name, np.zeros(0, np.int64))
        inside = blocks.ids is own or np.isin(blocks.ids, own).all()
        require(bool(inside), where, f"returns blocks of {name!r} that are not its own")


def check_updates(tables: Mapping[str, Table], updates: Any, where: str) -> None:
    """What `Model.rebuild` returns, and `Model.compute` in its `Computed`."""
    right = isinstance(updates, Sequence) and all(isinstance(u, Update) for u in updates)
    require(right, where, f"updates must be a sequence of Update, got {_kind(updates)}")
    for update in updates:
        _check_update(tables, update, where)


def _check_update(tables: Mapping[str, Table], update: Update, where: str) -> None:
    table = tables.get(update.table)
    if table is None or table.home != "server":
        raise ModelError(f"{where}: updates table {update.table!r}; expected the name of a server-home table")
    if update.ids is not ALL:
        check_ids(table, update.ids, where)
    value = next(f for f in table.fields if f.name == "value")
    if value.ragged:
        lengths = table.block_lengths
        n = int(lengths[update.ids].sum() if isinstance(update.ids, np.ndarray) else lengths.sum())
    else:
        n = len(update.ids) if isinstance(update.ids, np.ndarray) else table.n_blocks
    values: Any = update.values
    right = isinstance(values, np.ndarray) and values.ndim >= 1
    require(right, where, f"values for table {table.name!r} must be an array, got {_kind(values)}")
    require(len(values) == n, where, f"{len(values)} values for table {table.name!r}; expected {n}")
    require(values.dtype.kind in "fiub", where, f"values for table {table.name!r} are {values.dtype}")
    if table.derived:
        right = values.shape == (n, *value.shape) and values.dtype == value.dtype
        require(right, where, f"values for derived table {table.name!r} must be {value.dtype}{(n, *value.shape)}")


def check_loss(loss: Any, where: str) -> float:
    """What `Model.loss` returns, as a float; it may be NaN or infinite."""
    try:
        return float(loss)
    except (TypeError, ValueError):
        raise ModelError(f"{where}: must return a number, got {_kind(loss)}") from None


def check_metrics(metrics: Any) -> None:
    """`Model.metrics`."""
    right = isinstance(metrics, Sequence) and all(isinstance(x, Metric) for x in metrics)
    require(right, "metrics", f"must be a sequence of Metric, got {_kind(metrics)}")
    names = [x.name for x in metrics]
    require(len(set(names)) == len(names), "metrics", f"names must differ, got {names}")


def check_held_out_shards(tables: Mapping[str, Table], shards: Any, n_shards: int) -> None:
    """What `Model.held_out_shards` returns."""
    check_shards(tables, shards, n_shards, "held_out_shards")
    owner = next((s.index for s in shards if s.blocks), None)
    require(owner is None, "held_out_shards", f"shard {owner} owns blocks; expected none: it is only read for")


def check_metric_sums(metrics: Sequence[Metric], sums: Any, where: str) -> dict[str, float]:
    """What `Model.metric_sums` returns, as floats; they may be NaN or infinite."""
    require(isinstance(sums, Mapping), where, f"must return a mapping from names to numbers, got {_kind(sums)}")
    names = [x.name for x in metrics]
    require(set(sums) == set(names), where, f"returns {sorted(map(str, sums))}; expected {sorted(names)}")
    return {name: check_loss(sums[name], f"{where}: {name}") for name in names}


def check_distance(a: Blocks, b: Blocks, distance: Any) -> None:
    """What `Model.distance` of ``a`` and ``b`` returns; NaN is for blocks that are not finite."""
    right = isinstance(distance, np.ndarray) and distance.shape == (len(a),) and distance.dtype.kind == "f"
    require(right, "distance", f"must be {len(a)} floating-point numbers for table {a.table.name!r}")
    wrong = ~(distance >= 0)
    if wrong.any() and (wrong & ~a.is_nonfinite() & ~b.is_nonfinite()).any():
        raise ModelError(f"distance: is negative or NaN for finite blocks of table {a.table.name!r}")


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype}{value.shape}"
    return "None" if value is None else f"{type(value).__name__}"

"""Opening the run folder of a loop of the user's own: making it, or seeing that it is a run of the same tables."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from scarml.checkpoint.selection import Checkpoint
from scarml.core.block import Blocks, Table
from scarml.errors import UsageError
from scarml.storage.open_store import open_store
from scarml.storage.run_folder import RunFolder
from scarml.storage.run_start import Resume, open_run
from scarml.storage.store import Store

__all__ = ["describe", "open_folder", "store_at"]

_KIND = "running-checkpoint"


def store_at(url: str | os.PathLike[str] | Store, storage_options: Mapping[str, Any] | None) -> Store:
    """The store that the user names, or gives."""
    return open_store(url, storage_options) if isinstance(url, str | os.PathLike) else url


def describe(tables: Iterable[Blocks], checkpoint: Checkpoint, seed: int) -> dict[str, Any]:
    """What a run's description says."""
    return {
        "kind": _KIND,
        "seed": seed,
        "tables": [_describe_table(b.table) for b in tables],
        "checkpoint": {
            "policy": checkpoint.policy,
            "fraction": str(checkpoint.fraction),
            "interval_iters": checkpoint.interval_iters,
            "budget_in": checkpoint.budget_in,
            "rank_by": checkpoint.rank_by,
        },
    }


def open_folder(store: Store, where: str, resume: Resume, description: Mapping[str, Any]) -> RunFolder:
    """The run's folder, made or opened.

    Raises:
        RunExistsError: there is a run, and ``resume`` is ``never``.
        UsageError: there is none, and ``resume`` is ``must``; or it is a run of something else.
    """
    check_same = partial(_check_same, where, description)
    folder, _ = open_run(store, description, resume, where, check_same=check_same, to_go_on='resume="auto"')
    return folder


def _check_same(where: str, given: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    if there.get("kind") != _KIND:
        raise UsageError(
            f"the run in {where} was not made by scar.RunningCheckpoint; go on with it by the command that made it, "
            "or name another folder"
        )
    stored = {t["name"]: t for t in there["tables"]}
    wanted = {t["name"]: t for t in given["tables"]}
    for name in (*wanted, *stored):
        if stored.get(name) != wanted.get(name):
            raise UsageError(
                f"table {name!r} is {_in_words(stored.get(name))} in {where}; given was {_in_words(wanted.get(name))}. "
                "Give the same tables, or name another folder"
            )


def _describe_table(table: Table) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": table.name,
        "n_blocks": table.n_blocks,
        "home": table.home,
        "derived": table.derived,
        "ragged": table.lengths is not None,
        "fields": [
            {"name": f.name, "dtype": f.dtype, "shape": list(f.shape), "ragged": f.ragged} for f in table.fields
        ],
    }
    if table.lengths is not None:
        described["lengths_crc32"] = zlib.crc32(table.lengths.astype("<i8").tobytes())
    return described


def _in_words(table: Mapping[str, Any] | None) -> str:
    if table is None:
        return "not there"
    fields = (
        f"{f['name']} {f['dtype']}" + ("[…]" if f["ragged"] else f"{f['shape']}" if f["shape"] else "")
        for f in table["fields"]
    )
    lengths = f" with lengths of checksum {table['lengths_crc32']:08x}" if table["ragged"] else ""
    return f"{table['n_blocks']} blocks of {', '.join(fields)}{lengths}"

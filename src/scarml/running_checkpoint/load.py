"""`load`: what a run has saved, as arrays, without the program that made it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from scarml.core.block import Array, Ids, Table
from scarml.core.model import Model
from scarml.core.sequential import initial_blocks
from scarml.errors import UsageError
from scarml.running_checkpoint.opening import store_at
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment_catalog import SegmentCatalog
from scarml.storage.segment_layout import TableForm
from scarml.storage.store import Store
from scarml.storage.terms import Terms

__all__ = ["load"]

_log = logging.getLogger(__name__)


def load(
    url: str | os.PathLike[str] | Store,
    storage_options: Mapping[str, Any] | None = None,
    *,
    model: Model | None = None,
) -> dict[str, dict[str, Array]]:
    """The newest stored value of every block: arrays by table and field.

    Nothing is written, so it may be done while the run is going on. The blocks may be of different iterations.

    Args:
        url: the run's folder.
        storage_options: for ``s3://``.
        model: that was trained. Blocks that were never saved, such as those that have not moved since then, get their
            value of x(0) from it: the weights of a pixel that is black in every picture, for example.

    Returns:
        Per table its fields: dense ones of shape (n_blocks, …), ragged ones flat. A ragged table has ``lengths``, the
        elements of each block, beside them.

    Raises:
        UsageError: there is no run, it has not saved all of its blocks, or another built-in model was trained.
        StoreError: the store cannot be read.

    Example:
        >>> import scarml as scar
        >>> scar.load("runs/mine")["W"]["value"].shape        # doctest: +SKIP
        (784, 10)
    """
    store = store_at(url, storage_options)
    folder = RunFolder.open(store)
    if model is not None:
        _check_is_of_run(model, folder)
    term = folder.last_term()
    tables = _stored_tables(store, term) if term is not None else []
    if term is None or not tables:
        raise UsageError(f"the run in {store!r} has not saved anything yet")
    reader = folder.reader(term)
    loaded = {}
    for table in tables:
        read = reader.read_newest(table, table.all_ids)
        for damage in read.damaged:
            _log.warning("an older copy is used: %s", damage)
        n_missing = int((~read.found).sum())
        if n_missing and model is None:
            raise UsageError(
                f"{n_missing} of {table.n_blocks} blocks of table {table.name!r} in {store!r} have not been saved: "
                "they have the values that training began with, which only the program that made the run can make; for "
                "a run of scarml train or scar.Job give its model, scar.load(run, model=scar.MLR())"
            )
        if n_missing and model is not None:
            read.blocks.put(initial_blocks(model, table, table.all_ids[~read.found], _seed_of(folder)))
        lengths = {} if table.lengths is None else {"lengths": table.lengths}
        loaded[table.name] = {**read.blocks.fields, **lengths}
    return loaded


def _check_is_of_run(model: Model, folder: RunFolder) -> None:
    """A built-in model that was trained is this one, or what this one is derived from; others may have been renamed."""
    made_by = folder.description.get("model")
    path = str(made_by.get("class")) if isinstance(made_by, Mapping) else ""
    if path.startswith("scarml.") and path not in {f"{c.__module__}:{c.__qualname__}" for c in type(model).__mro__}:
        raise UsageError(f"the run was made by {path}; the model is a {type(model).__qualname__}")


def _seed_of(folder: RunFolder) -> int:
    seed = folder.description.get("seed")
    if type(seed) is not int:
        raise UsageError(f"the description of the run has the seed {seed!r}; expected that of a run of a model")
    return seed


def _stored_tables(store: Store, term: int) -> list[Table]:
    """The tables, as the segments describe them."""
    terms = Terms(store)
    catalog = SegmentCatalog(store, lambda: terms.visible_segments(term))
    return catalog.retrying(lambda: _described_in(catalog))


def _described_in(catalog: SegmentCatalog) -> list[Table]:
    forms: dict[str, TableForm] = {}
    lengths: dict[str, Ids] = {}
    for segment in catalog.readable():
        for name, stored in catalog.header(segment).tables.items():
            forms[name] = stored.form
            if stored.form.is_ragged:
                index = catalog.index(segment, name)
                assert index.lengths is not None
                lengths.setdefault(name, np.zeros(stored.n_blocks, np.int64))[index.ids] = index.lengths
    return [
        Table(name, form.n_blocks, tuple(f.field for f in form.fields), lengths=lengths.get(name))
        for name, form in forms.items()
    ]

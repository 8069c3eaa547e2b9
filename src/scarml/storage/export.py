"""Taking the newest state out of a run: the newest durable value of every block, as arrays or as one file."""

from __future__ import annotations

import json
import os
import posixpath
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from scarml.core.block import Array, Blocks, Ids, Table
from scarml.errors import AlreadyExistsError, StoreError, UsageError
from scarml.storage.census import TableCensus, take_census
from scarml.storage.file_port import FilePort, OsFiles
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment_catalog import SegmentCatalog
from scarml.storage.segment_layout import DTYPE_NAMES, TableForm, bytes_of
from scarml.storage.segment_reader import Damage
from scarml.storage.terms import Terms

__all__ = ["NewestState", "Origin", "read_newest_state", "write_safetensors"]

_MOST_NAMED = 5
_WRITE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Origin:
    """Where x(0) comes from: the model's tables, and a function that makes some blocks of one of them."""

    tables: Mapping[str, Table]
    blocks: Callable[[Table, Ids], Blocks]


@dataclass(frozen=True, slots=True, eq=False)
class NewestState:
    """The newest durable value of every block.

    Args:
        tables: by name, all blocks.
        oldest, newest: iterations of these values; x(0) is 0.
        n_initial: by table, how many blocks were never saved, or cannot be read, and stand at x(0).
        damaged: stored copies that were not used.
    """

    tables: Mapping[str, Blocks]
    oldest: int
    newest: int
    n_initial: Mapping[str, int]
    damaged: tuple[Damage, ...]

    def tensors(self) -> dict[str, Array]:
        """One a field, named as in segments: ``W.value``; and ``W/lengths`` for a table with ragged fields."""
        found: dict[str, Array] = {}
        for name, blocks in self.tables.items():
            found |= {f"{name}.{f}": a for f, a in blocks.fields.items()}
            if blocks.table.lengths is not None:
                found[f"{name}/lengths"] = blocks.table.lengths
        return found


def read_newest_state(
    run: RunFolder, only: Sequence[str] = (), make_origin: Callable[[], Origin] | None = None
) -> NewestState:
    """Read the newest durable value of every block. The run may be going on.

    Args:
        run: the run.
        only: names of tables; none: all that are saved.
        make_origin: is called if there are blocks that were never saved.

    Raises:
        UsageError: nothing was saved yet, there is no such table, or blocks were never saved and x(0) is not known.
        StoreError: the store cannot be read now.
    """
    term = run.last_term()
    if term is None:
        raise UsageError("nothing was saved in this run yet")
    terms = Terms(run.store)
    catalog = SegmentCatalog(run.store, lambda: terms.visible_segments(term))
    census, _ = take_census(catalog)
    forms = catalog.retrying(lambda: _stored_forms(catalog))
    sizes = {**_described(run), **{name: form.n_blocks for name, form in forms.items()}}
    if not forms:
        raise UsageError("nothing was saved in this run yet")
    unknown = sorted(set(only) - set(sizes))
    if unknown:
        raise UsageError(f"there is no table {unknown[0]!r} in this run; there are {', '.join(sorted(sizes))}")
    reading = _Reading(run, term, make_origin)
    for name in only or sizes:
        if name in census and len(census[name].ids) == sizes[name]:
            form = forms[name]
            reading.read(catalog.retrying(lambda form=form: _stored_table(catalog, form)))  # type: ignore[misc]
        else:
            reading.read(reading.table_of_origin(name, sizes[name], census.get(name)))
    return reading.state()


class _Reading:
    """A state while it is being read."""

    def __init__(self, run: RunFolder, term: int, make_origin: Callable[[], Origin] | None) -> None:
        self._reader = run.reader(term)
        self._make_origin = make_origin
        self._origin: Origin | None = None
        self._tables: dict[str, Blocks] = {}
        self._n_initial: dict[str, int] = {}
        self._iterations: list[int] = []
        self._damaged: dict[Damage, None] = {}

    def table_of_origin(self, name: str, n_blocks: int, census: TableCensus | None) -> Table:
        """The model's table, of which not all blocks were saved."""
        ids = census.ids if census is not None else np.zeros(0, np.int64)
        missing = _first_missing(ids, n_blocks)
        why = f"{n_blocks - len(ids):,} blocks of table {name!r} were never saved: {missing}"
        origin = self._origin_or_refuse(why)
        if name not in origin.tables:
            raise UsageError(f"{why}; the model has no such table, and so no x(0) for them")
        return origin.tables[name]

    def read(self, table: Table) -> None:
        """Read all blocks of a table."""
        got = self._reader.read_newest(table, table.all_ids)
        self._damaged |= dict.fromkeys(got.damaged)
        missing = table.all_ids[~got.found]
        if len(missing):
            origin = self._origin_or_refuse(
                f"{len(missing):,} blocks of table {table.name!r} have no copy that can be read: "
                f"{_listed(missing[:_MOST_NAMED], len(missing))}"
            )
            got.blocks.put(origin.blocks(table, missing))
        self._tables[table.name] = got.blocks
        self._n_initial[table.name] = len(missing)
        self._iterations += [int(got.versions.iteration.min()), int(got.versions.iteration.max())]

    def state(self) -> NewestState:
        """All that was read."""
        span = min(self._iterations), max(self._iterations)
        return NewestState(self._tables, *span, self._n_initial, tuple(self._damaged))

    def _origin_or_refuse(self, why: str) -> Origin:
        if self._make_origin is None:
            raise UsageError(f"{why}; they stand at x(0), which only the model can make")
        if self._origin is None:
            try:
                self._origin = self._make_origin()
            except UsageError as e:
                raise UsageError(f"{why}; they stand at x(0), which only the model can make: {e}") from None
        return self._origin


def _described(run: RunFolder) -> dict[str, int]:
    """By name, how many blocks the tables have that are saved, as the run describes them."""
    entries = run.description.get("tables")
    found = [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
    sized = {str(e.get("name")): e.get("n_blocks") for e in found if e.get("derived") is not True}
    return {name: n for name, n in sized.items() if type(n) is int}


def _stored_forms(catalog: SegmentCatalog) -> dict[str, TableForm]:
    """The tables as segments describe them."""
    headers = [catalog.header(s) for s in catalog.readable()]
    return {name: stored.form for h in headers for name, stored in h.tables.items()}


def _stored_table(catalog: SegmentCatalog, form: TableForm) -> Table:
    """A table of which every block is stored, so that it is no larger than the files are."""
    fields = tuple(f.field for f in form.fields)
    if not form.is_ragged:
        return Table(form.name, form.n_blocks, fields)
    lengths = np.zeros(form.n_blocks, np.int64)
    for s in catalog.readable():
        if form.name in catalog.header(s).tables:
            index = catalog.index(s, form.name)
            assert index.lengths is not None
            lengths[index.ids] = index.lengths
    return Table(form.name, form.n_blocks, fields, lengths=lengths)


def _first_missing(ids: Ids, n_blocks: int) -> str:
    """The first blocks that are not among ``ids``: each of these is there once."""
    is_missing = np.ones(min(len(ids) + _MOST_NAMED, n_blocks), bool)
    is_missing[ids[ids < len(is_missing)]] = False
    return _listed(np.flatnonzero(is_missing)[:_MOST_NAMED], n_blocks - len(ids))


def _listed(ids: Ids, n: int) -> str:
    return ", ".join(map(str, ids.tolist())) + (" …" if n > len(ids) else "")


# ------------------------------------------------------------------------------------------------------------- the file
def write_safetensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Array],
    metadata: Mapping[str, str],
    replace: bool = False,
    files: FilePort | None = None,
) -> int:
    """Write arrays as a safetensors file, which is there whole or not at all.

    Args:
        path: of the file.
        tensors: by name.
        metadata: strings for the file's header.
        replace: whether a file that is there may be replaced.
        files: the file port; the operating system's by default.

    Returns:
        Bytes written.

    Raises:
        UsageError: there is a file, or there is no such folder.
        StoreError: it cannot be written.
    """
    files, target = files or OsFiles(), os.fspath(path)
    folder = posixpath.dirname(target) or "."
    temporary = f"{folder}/.{posixpath.basename(target)}.{secrets.token_hex(4)}"
    ordered = dict(sorted(tensors.items(), key=lambda t: -t[1].dtype.itemsize))
    arrays = (bytes_of(np.ascontiguousarray(a)).data for a in ordered.values())
    chunks: list[bytes | memoryview] = [_header(ordered, metadata), *arrays]
    try:
        file = files.create(temporary)
        try:
            for chunk in chunks:
                for first in range(0, len(chunk), _WRITE_BYTES):
                    file.write(chunk[first : first + _WRITE_BYTES])
            file.sync()
        finally:
            file.close()
        (files.rename if replace else files.link)(temporary, target)
        files.sync_folder(folder)
    except AlreadyExistsError:
        raise UsageError(f"{target} is there already; name another file, or replace it with --force") from None
    finally:
        with suppress(StoreError):
            files.unlink(temporary)
    return sum(map(len, chunks))


def _header(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    entries: dict[str, object] = {"__metadata__": dict(metadata)}
    at = 0
    for name, a in tensors.items():
        entries[name] = {
            "dtype": DTYPE_NAMES[a.dtype.name],
            "shape": list(a.shape),
            "data_offsets": [at, at + a.nbytes],
        }
        at += a.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text

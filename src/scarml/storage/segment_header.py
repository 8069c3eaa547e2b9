"""A segment's header: what it says of the file. Nothing in it is believed: see `segment_checks`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scarml.checkpoint.version_index import Version
from scarml.core.block import Field
from scarml.errors import DamagedError
from scarml.storage.segment import SegmentId
from scarml.storage.segment_checks import (
    Tensor,
    check_extra,
    check_form,
    check_tensors,
    expect,
    fail,
    load_json,
    number,
    numbers,
    take,
    take_column,
)
from scarml.storage.segment_layout import (
    FORMAT,
    FORMAT_VERSION,
    MAX_HEADER_BYTES,
    VERSION_TENSORS,
    Column,
    TableForm,
    header_checksum,
)
from scarml.storage.store import Store

__all__ = [
    "SaveKey",
    "SegmentHeader",
    "StoredColumn",
    "StoredExtraForm",
    "StoredField",
    "StoredTable",
    "Tensor",
    "parse_header",
    "read_header",
]

_FIRST_READ_BYTES = 16 << 10
_INDEX_DTYPES = ("uint32", "uint64")
_VERSION_DTYPES = ("uint8", "uint16", "uint32", "uint64")


@dataclass(frozen=True, slots=True, order=True)
class SaveKey:
    """What decides which copy of a block is the newest: (term, commit, save). The iteration is a label."""

    term: int
    commit: int
    save: int
    iteration: int

    @property
    def version(self) -> Version:
        """The version, as it is shown."""
        return Version(self.term, self.commit, self.iteration)


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column, and where it lies in the file."""

    column: Column
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class StoredField:
    """A field as it is stored."""

    field: Field
    encoding: str
    tensor: Tensor
    scales: Tensor | None


@dataclass(frozen=True, slots=True)
class StoredTable:
    """The blocks of one table in a segment: n of the table's ``n_blocks``.

    ``versions`` are there in compacted segments: terms, commits, iterations and saves.
    """

    form: TableForm
    n: int
    index_crc32: int
    ids: Tensor
    lengths: Tensor | None
    versions: tuple[Tensor, ...]
    checksums: Tensor
    columns: tuple[StoredColumn, ...]

    @property
    def name(self) -> str:
        """Of the table."""
        return self.form.name

    @property
    def n_blocks(self) -> int:
        """Of the whole table."""
        return self.form.n_blocks

    @property
    def fields(self) -> tuple[StoredField, ...]:
        """Its fields, with their tensors."""
        found = {(c.column.field.name, c.column.is_scale): c.tensor for c in self.columns}
        return tuple(
            StoredField(f.field, f.encoding, found[f.field.name, False], found.get((f.field.name, True)))
            for f in self.form.fields
        )


@dataclass(frozen=True, slots=True, eq=False)
class StoredExtraForm:
    """Extra state in a segment: its values, and where its arrays lie; and the version it was saved under."""

    values: Mapping[str, Any]
    arrays: Mapping[str, Tensor]
    crc32: int
    key: SaveKey


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """All that a segment says about itself."""

    name: str
    size_bytes: int
    term: int
    commit: int
    iteration: int
    node: str
    save_id: int
    unit: bool
    newest: SaveKey
    tables: Mapping[str, StoredTable]
    extra: StoredExtraForm | None

    @property
    def id(self) -> SegmentId:
        """What its name says."""
        return SegmentId(self.term, self.commit, self.save_id, self.node)

    @property
    def version(self) -> Version:
        """The newest version of its blocks; of all its blocks, if it is not compacted."""
        return self.newest.version


def read_header(store: Store, name: str) -> SegmentHeader:
    """Read and check a segment's header.

    Raises:
        NotFoundError: there is no such segment.
        DamagedError: it is not a whole segment, or one of a newer format.
    """
    size = store.size(name)
    head = store.get_range(name, 0, min(size, _FIRST_READ_BYTES))
    n_header = int.from_bytes(head[:8], "little")
    if len(head) < 8 or n_header > MAX_HEADER_BYTES or 8 + n_header > size:
        raise DamagedError(
            f"{name} has {size} bytes and a header of {n_header}; expected the header to fit in the file "
            f"and in {MAX_HEADER_BYTES} bytes. It is torn, or no segment"
        )
    if 8 + n_header > len(head):
        head += store.get_range(name, len(head), 8 + n_header - len(head))
    return parse_header(name, head[8 : 8 + n_header], size)


def parse_header(name: str, header: bytes, size_bytes: int) -> SegmentHeader:
    """Check a segment's header (without the length before it), given the name and the size of the file."""
    expected, found = header_checksum(header)
    if expected != found:
        fail(name, f"the header's checksum is {expected.decode()}; expected {found.decode(errors='replace')}")
    entries = load_json(name, "the header", header)
    expect(isinstance(entries, dict), name, "the header is not a JSON object")
    metadata = entries.pop("__metadata__", None)
    expect(isinstance(metadata, dict) and metadata.get("format") == FORMAT, name, f"it is not marked as a {FORMAT}")
    version = metadata.get("format_version")
    if version != str(FORMAT_VERSION):
        fail(name, f"it has format version {version!r}, this SCAR reads version {FORMAT_VERSION}: use a newer SCAR")
    tensors = check_tensors(name, entries, first=8 + len(header), end=size_bytes)
    about = load_json(name, "the description of the segment", metadata.get("segment"))
    tables = load_json(name, "the description of the tables", metadata.get("tables"))
    expect(isinstance(about, dict) and isinstance(tables, list), name, "its descriptions have the wrong form")
    own = {k: number(name, about, k) for k in ("term", "commit", "iteration", "save_id")}
    is_compacted = "newest" in about
    key = SaveKey(own["term"], own["commit"], own["save_id"], own["iteration"])
    newest = _key(name, about["newest"], own["term"]) if is_compacted else key
    stored = [_check_table(name, t, tensors, is_compacted) for t in tables]
    expect(len({t.name for t in stored}) == len(stored), name, "a table is described twice")
    extra = _check_extra(name, metadata["extra"], tensors, key, is_compacted) if "extra" in metadata else None
    expect(not tensors, name, f"tensors {sorted(tensors)[:3]} belong to no table")
    result = SegmentHeader(
        name=name,
        size_bytes=size_bytes,
        **own,
        node=str(about.get("node")),
        unit=about.get("unit") is True,
        newest=newest,
        tables={t.name: t for t in stored},
        extra=extra,
    )
    expect(result.id.name == name, name, f"its header says that it is {result.id.name}")
    expect(result.id.is_compacted == is_compacted, name, "it is compacted and not called so, or the other way round")
    return result


def _check_table(name: str, entry: Any, tensors: dict[str, Tensor], is_compacted: bool) -> StoredTable:
    """One table's description against the tensors, which it takes out of ``tensors``."""
    form = check_form(name, entry)
    ids = take(name, tensors, f"{form.name}/ids", _INDEX_DTYPES)
    n = ids.shape[0]
    versions = VERSION_TENSORS if is_compacted else ()
    return StoredTable(
        form=form,
        n=n,
        index_crc32=number(name, entry, "index_crc32"),
        ids=ids,
        lengths=take(name, tensors, f"{form.name}/lengths", _INDEX_DTYPES, n) if form.is_ragged else None,
        versions=tuple(take(name, tensors, f"{form.name}/{v}", _VERSION_DTYPES, n) for v in versions),
        checksums=take(name, tensors, f"{form.name}/crc32", ("uint32",), n),
        columns=tuple(StoredColumn(c, take_column(name, tensors, form, c, n)) for c in form.columns),
    )


def _check_extra(name: str, text: Any, tensors: dict[str, Tensor], key: SaveKey, is_compacted: bool) -> StoredExtraForm:
    entry = load_json(name, "the extra state", text)
    values, arrays = check_extra(name, entry, tensors)
    expect(("version" in entry) == is_compacted, name, "the extra state has a version where none is expected, or none")
    return StoredExtraForm(
        values, arrays, number(name, entry, "crc32"), _key(name, entry["version"], key.term) if is_compacted else key
    )


def _key(name: str, entry: Any, own_term: int) -> SaveKey:
    """A version in a compacted segment: ``[term, commit, iteration, save]``, of no later term than the segment's."""
    term, commit, iteration, save = numbers(name, entry, 4)
    expect(term <= own_term, name, f"it holds a version of term {term}, and is of term {own_term}")
    return SaveKey(term, commit, save, iteration)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.core.block import Blocks, Field, Table, concatenate, positions_of_common
from scarml.errors import ModelError

DENSE = Table("dense", 6, (Field("value", "float32", (2, 3)), Field("step", "int64")))
RAGGED = Table(
    "ragged", 6, (Field("value", "uint8", ragged=True), Field("age", "float64")), lengths=np.array([3, 0, 1, 5, 0, 2])
)
NO_IDS = np.zeros(0, np.int64)

tables = pytest.mark.parametrize("table", [DENSE, RAGGED], ids=lambda t: t.name)
id_sets = st.sets(st.integers(0, 5)).map(lambda ids: np.array(sorted(ids), np.int64))


def numbered(table: Table) -> Blocks:
    """Every element another number."""
    blocks = table.empty(table.all_ids)
    for a in blocks.fields.values():
        a[...] = np.arange(1, a.size + 1).reshape(a.shape)
    return blocks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "no name"}, "table name 'no name' is not an identifier"),
        ({"name": 5}, "table name 5 is not an identifier"),
        ({"n_blocks": 0}, "has 0 blocks; expected at least 1"),
        ({"fields": ()}, "one of them 'value'"),
        ({"fields": (Field("value"), Field("value"))}, "expected distinct names"),
        ({"fields": (Field("m"),)}, "one of them 'value'"),
        ({"home": "nowhere"}, "home 'nowhere'"),
        ({"fields": (Field("value", ragged=True),)}, "no lengths"),
        ({"lengths": np.array([1, 2])}, "lengths must be 3 numbers"),
        ({"lengths": np.array([1, 2, -1])}, "lengths must be 3 numbers"),
        ({"weights": np.ones(2)}, "weights must be 3 finite numbers above 0"),
        ({"weights": np.array([1, 0, 1])}, "weights must be 3 finite numbers above 0"),
        ({"weights": np.array([1, np.inf, 1])}, "weights must be 3 finite numbers above 0"),
    ],
)
def test_contradictory_table_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Table(**{"name": "t", "n_blocks": 3, "fields": (Field("value"),), **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "a b"}, "not an identifier"),
        ({"name": "value", "dtype": "complex64"}, "expected a numeric dtype"),
        ({"name": "value", "shape": (2,), "ragged": True}, "a ragged field has no shape"),
        ({"name": "value", "below": 7}, "below=7; it is for integers"),
        ({"name": "value", "dtype": "uint8", "below": 0}, "below=0; it is for integers, from 1 on"),
    ],
)
def test_contradictory_field_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Field(**arguments)


def test_sizes() -> None:
    assert DENSE.block_bytes.tolist() == [32] * 6
    assert RAGGED.block_bytes.tolist() == [11, 8, 9, 13, 8, 10]
    assert numbered(DENSE).nbytes == DENSE.block_bytes.sum()
    assert numbered(RAGGED).nbytes == RAGGED.block_bytes.sum()
    with pytest.raises(ModelError, match="no ragged field"):
        _ = DENSE.block_lengths


@tables
@pytest.mark.parametrize("change", ["field missing", "other dtype", "other shape"])
def test_blocks_must_be_as_the_table_says(table: Table, change: str) -> None:
    fields = dict(numbered(table).fields)
    if change == "field missing":
        del fields["value"]
    elif change == "other dtype":
        fields["value"] = fields["value"].astype("float64")
    else:
        fields["value"] = fields["value"][:-1]
    with pytest.raises(ModelError, match=rf"of (table )?'{table.name}'"):
        Blocks(table, table.all_ids, fields)


@tables
@given(ids=id_sets)
def test_take_is_a_copy_of_just_these_blocks(table: Table, ids: np.ndarray) -> None:
    blocks = numbered(table)
    some = blocks.take(ids)
    assert some.ids.tolist() == ids.tolist()
    for row, i in enumerate(ids):
        for name in some.fields:
            assert (
                some.take(ids[row : row + 1]).fields[name].tolist() == blocks.take(np.array([i])).fields[name].tolist()
            )
    for a in some.fields.values():
        a[...] = 0
    assert not blocks.differs_from(numbered(table)).any()


@tables
@given(ids=id_sets)
def test_take_into_memory_that_is_given(table: Table, ids: np.ndarray) -> None:
    blocks, memory = numbered(table), {name: a.copy() for name, a in numbered(table).fields.items()}
    some = blocks.take(ids, out=memory)
    assert not some.differs_from(blocks.take(ids)).any()
    assert all(np.shares_memory(a, memory[name]) for name, a in some.fields.items() if a.size)


@tables
@pytest.mark.parametrize("among", [range(6), [0, 1, 3, 4, 5]])
@pytest.mark.parametrize(("first", "end"), [(0, 0), (0, 2), (1, 4), (4, 5), (3, 3)])
def test_a_span_is_a_view_of_just_these_blocks(table: Table, among: Any, first: int, end: int) -> None:
    blocks = numbered(table).take(np.array(among, np.int64))
    span = blocks.span(first, end)
    assert not span.differs_from(blocks.take(blocks.ids[first:end])).any()
    assert span.ids.tolist() == blocks.ids[first:end].tolist()
    assert all(span.fields[f].base is not None for f in span.fields)


@tables
@given(ids=id_sets, among=id_sets)
def test_put_changes_just_these_blocks(table: Table, ids: np.ndarray, among: np.ndarray) -> None:
    among = np.union1d(among, ids)
    blocks, other = numbered(table).take(among), table.empty(ids)
    blocks.put(other)
    assert blocks.differs_from(numbered(table).take(among)).tolist() == [
        i in ids and bool(table.block_bytes[i]) for i in among
    ]
    assert not blocks.take(ids).differs_from(other).any()


@tables
def test_blocks_that_are_not_here_are_named(table: Table) -> None:
    some = numbered(table).take(np.array([1, 4]))
    for wrong in ([0], [2, 4], [5]):
        with pytest.raises(ModelError, match=rf"blocks \[{wrong[0]}\] … of '{table.name}' are not here"):
            some.take(np.array(wrong))
    with pytest.raises(ModelError, match="are not here"):
        some.take(NO_IDS).take(np.array([0]))


@tables
@given(parts=st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_concatenate_undoes_any_split(table: Table, parts: list[int]) -> None:
    blocks = numbered(table)
    split = [blocks.take(np.flatnonzero(np.array(parts) == p)) for p in (2, 0, 1)]
    whole = concatenate(table, split)
    assert whole.ids.tolist() == table.all_ids.tolist()
    assert not whole.differs_from(blocks).any()


@tables
def test_concatenate_refuses_a_block_twice(table: Table) -> None:
    blocks = numbered(table)
    with pytest.raises(ModelError, match="in two of the parts"):
        concatenate(table, [blocks, blocks.take(np.array([3]))])


def test_difference_is_of_bytes() -> None:
    table = Table("t", 4, (Field("value", "float32"), Field("m", "float32")))
    a, b = table.empty(table.all_ids), table.empty(table.all_ids)
    a.value[:2] = np.nan
    b.value[0] = np.nan
    b.value[2] = -0.0
    b.fields["m"][3] = 1
    assert a.differs_from(b).tolist() == [False, True, True, True]


@tables
def test_nonfinite_block_is_found_in_any_field(table: Table) -> None:
    blocks = numbered(table)
    assert not blocks.is_nonfinite().any()
    if table is RAGGED:
        blocks.fields["age"][3] = np.inf
    else:
        blocks.value[3, 1, 2] = np.nan
    assert blocks.is_nonfinite().tolist() == [False, False, False, True, False, False]


@tables
def test_no_blocks_are_fine(table: Table) -> None:
    none = numbered(table).take(NO_IDS)
    assert len(none) == len(none.differs_from(none)) == len(none.is_nonfinite()) == 0
    assert len(concatenate(table, [])) == 0
    numbered(table).put(none)


@given(ids=id_sets, others=id_sets)
def test_positions_of_common_ids(ids: np.ndarray, others: np.ndarray) -> None:
    expected = np.flatnonzero(np.isin(ids, others))
    np.testing.assert_array_equal(positions_of_common(ids, others), expected)

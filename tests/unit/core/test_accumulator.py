from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.core.accumulator import Accumulator, restrict
from scarml.core.block import Array, Blocks, Field, Table
from scarml.core.model import ALL, Update
from scarml.errors import ModelError

DENSE = Table("dense", 5, (Field("value", "float32", (2,)),))
RAGGED = Table("ragged", 5, (Field("value", "float32", ragged=True),), lengths=np.array([2, 0, 3, 1, 2]))
TABLES = {t.name: t for t in (DENSE, RAGGED)}

tables = pytest.mark.parametrize("name", list(TABLES))
id_sets = st.sets(st.integers(0, 4)).map(lambda ids: np.array(sorted(ids), np.int64))


def update(table: Table, ids: Array, first: float) -> Update:
    some = table.empty(ids)
    some.value[...] = (first + np.arange(some.value.size)).reshape(some.value.shape)
    return Update(table.name, ids, some.value)


def add(fields: dict[str, Array], combined: Array) -> Mapping[str, Array]:
    return {"value": fields["value"] + combined}


def assign(fields: dict[str, Array], combined: Array) -> Mapping[str, Array]:
    return {"value": combined}


def spread(table: Table, u: Update) -> Array:
    """The update as values of the whole table."""
    whole = table.empty(table.all_ids)
    whole.put(Blocks(table, np.asarray(u.ids), {"value": u.values}))
    return whole.value


@tables
@given(id_lists=st.lists(id_sets, max_size=4))
def test_updates_add_up(name: str, id_lists: list[Array]) -> None:
    table = TABLES[name]
    state, acc = table.empty(table.all_ids), Accumulator(table.empty(table.all_ids), "add")
    updates = [update(table, ids, 10.0 * k) for k, ids in enumerate(id_lists)]
    for u in updates:
        acc.fold(u)
    acc.apply_to(state, add)
    assert state.value.tolist() == sum((spread(table, u) for u in updates), np.zeros_like(state.value)).tolist()


@tables
@given(owned=id_sets, id_lists=st.lists(id_sets, max_size=4))
def test_owners_of_parts_together_do_what_one_owner_does(name: str, owned: Array, id_lists: list[Array]) -> None:
    table = TABLES[name]
    updates = [update(table, ids, 0.1 * k) for k, ids in enumerate(id_lists)]
    updates.append(Update(name, ALL, update(table, table.all_ids, 0.7).values))
    whole, together = table.empty(table.all_ids), table.empty(table.all_ids)
    acc = Accumulator(whole, "add")
    for u in updates:
        acc.fold(u)
    acc.apply_to(whole, add)
    for ids in (owned, np.setdiff1d(table.all_ids, owned)):
        part = table.empty(ids)
        acc = Accumulator(part, "add")
        for mine in (restrict(u, table, ids) for u in updates):
            if mine is not None:
                acc.fold(mine)
        acc.apply_to(part, add)
        together.put(part)
    assert not together.differs_from(whole).any()


@tables
def test_memory_is_fresh_after_each_phase(name: str) -> None:
    table = TABLES[name]
    state = table.empty(table.all_ids)
    acc = Accumulator(state, "add")
    for _ in range(3):
        acc.fold(update(table, np.array([0, 3]), 1.0))
        acc.apply_to(state, add)
    assert state.value.tolist() == (3 * spread(table, update(table, np.array([0, 3]), 1.0))).tolist()
    acc.fold(update(table, np.array([2]), 1.0))
    acc.clear()
    before = state.copy()
    acc.apply_to(state, add)
    assert not state.differs_from(before).any()


@tables
def test_blocks_without_an_update_are_not_applied_to(name: str) -> None:
    table = TABLES[name]
    state = table.empty(table.all_ids)
    acc = Accumulator(state, "add")
    acc.fold(update(table, np.array([2, 4]), 0.0))
    acc.apply_to(state, lambda fields, _: {"value": fields["value"] + 7})
    changed = state.differs_from(table.empty(table.all_ids))
    assert np.flatnonzero(changed).tolist() == [2, 4]


@tables
def test_assigned_values_do_not_stay_tied_to_the_accumulator(name: str) -> None:
    table = TABLES[name]
    state = table.empty(table.all_ids)
    acc = Accumulator(state, "assign")
    acc.fold(update(table, table.all_ids, 1.0))
    acc.apply_to(state, assign)
    kept = state.copy()
    acc.fold(update(table, table.all_ids, 5.0))
    assert not state.differs_from(kept).any()


def test_two_writers_of_one_block_are_an_error() -> None:
    acc = Accumulator(DENSE.empty(DENSE.all_ids), "assign")
    acc.fold(update(DENSE, np.array([0, 2]), 1.0))
    acc.fold(update(DENSE, np.array([1, 3]), 1.0))
    with pytest.raises(ModelError, match=r"two shards assign blocks \[2\] of table 'dense'"):
        acc.fold(update(DENSE, np.array([2, 4]), 1.0))


def test_updates_of_two_dtypes_in_one_phase_are_an_error() -> None:
    acc = Accumulator(DENSE.empty(DENSE.all_ids), "add")
    acc.fold(Update("dense", ALL, np.zeros((5, 2), np.float32)))
    with pytest.raises(ModelError, match="differ in dtype or shape within a phase"):
        acc.fold(Update("dense", ALL, np.zeros((5, 2), np.float64)))


def test_combined_updates_may_have_another_shape_than_the_blocks() -> None:
    state = DENSE.empty(DENSE.all_ids)
    acc = Accumulator(state, "add")
    acc.fold(Update("dense", ALL, np.ones((5, 3))))
    acc.apply_to(state, lambda _, combined: {"value": combined[:, 1:].astype(np.float32)})
    assert (state.value == 1).all()


def test_apply_must_keep_to_the_table() -> None:
    state = DENSE.empty(DENSE.all_ids)
    acc = Accumulator(state, "add")
    acc.fold(Update("dense", ALL, np.ones((5, 2), np.float32)))
    with pytest.raises(ModelError, match="is float64"):
        acc.apply_to(state, lambda fields, _: {"value": fields["value"].astype(np.float64)})

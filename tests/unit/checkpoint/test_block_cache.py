"""The in-memory copy of the running checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scarml.checkpoint.block_cache import BlockCache
from scarml.checkpoint.encoding import encoding_named
from scarml.checkpoint.version_index import Version, Versions
from scarml.core.block import Blocks, Field, Table
from scarml.core.norm import l2_distance
from scarml.errors import ModelError

DENSE = Table("w", 6, (Field("value", "float32", (2,)),))
ADAM = Table("w", 6, (Field("value"), Field("m"), Field("step", "int64")))
RAGGED = Table("docs", 6, (Field("value", "uint8", ragged=True),), lengths=np.array([2, 0, 3, 1, 0, 4]))


def blocks(table: Table = DENSE, start: float = 0, ids: Any = None) -> Blocks:
    """Blocks with distinct values from ``start``."""
    made = table.empty(table.all_ids if ids is None else np.array(ids))
    for f in made.fields.values():
        f[...] = (np.arange(f.size) + start).reshape(f.shape)
    return made


def cache_of(current: Blocks) -> BlockCache:
    return BlockCache(current, Versions.initial(len(current)), l2_distance)


def v(commit: int) -> Version:
    return Version(1, commit, commit)


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


@pytest.mark.parametrize("table", [DENSE, ADAM, RAGGED])
def test_a_new_cache_is_a_copy_and_has_nothing_to_save(table: Table) -> None:
    current = blocks(table)
    cache = cache_of(current)
    assert cache.score(current).tolist() == [0] * 6
    assert cache.changed(current).tolist() == []
    current.value[0] = 99
    assert cache.score(current).nonzero()[0].tolist() == [0]
    assert cache.changed(current).tolist() == [0]


def test_scores_are_distances_from_what_was_staged() -> None:
    current = blocks()
    cache = cache_of(current)
    current.value[2] += (3, 4)
    current.value[5] += (0, 1)
    assert cache.score(current).tolist() == [0, 0, 5, 0, 0, 1]
    staged, left_out = cache.stage(current, ids(2), v(1), save_id=1)
    assert staged.ids.tolist() == [2]
    assert len(left_out) == 0
    assert cache.score(current).tolist() == [0, 0, 0, 0, 0, 1]
    assert cache.saved.value[2].tolist() == current.value[2].tolist()


def test_a_block_is_durable_when_the_store_says_so_and_not_before() -> None:
    current = blocks()
    cache = cache_of(current)
    current.value[:] += 1
    cache.stage(current, ids(1, 3), v(4), save_id=7)
    assert cache.staged.commit.tolist() == [0, 4, 0, 4, 0, 0]
    assert cache.durable.commit.tolist() == [0] * 6
    cache.mark_durable(6)  # of another save
    assert cache.durable.commit.tolist() == [0] * 6
    assert cache.changed(current).tolist() == [0, 1, 2, 3, 4, 5]
    cache.mark_durable(7)
    assert cache.durable.commit.tolist() == [0, 4, 0, 4, 0, 0]
    assert cache.durable.iteration.tolist() == [0, 4, 0, 4, 0, 0]
    assert cache.changed(current).tolist() == [0, 2, 4, 5]
    cache.give_up(7)  # too late
    assert cache.score(current).max() < np.inf


def test_what_was_given_up_comes_first_until_it_is_staged_again() -> None:
    current = blocks()
    cache = cache_of(current)
    current.value[1] += 1
    cache.stage(current, ids(1, 4), v(1), save_id=1)
    cache.give_up(1)
    cache.mark_durable(1)  # too late
    assert cache.score(current).tolist() == [0, np.inf, 0, 0, np.inf, 0]
    assert cache.changed(current).tolist() == [1, 4]
    assert cache.durable.commit.tolist() == [0] * 6
    cache.stage(current, ids(4), v(2), save_id=2)
    cache.mark_durable(2)
    assert cache.score(current).tolist() == [0, np.inf, 0, 0, 0, 0]
    assert cache.changed(current).tolist() == [1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("field", ["value", "m"])
def test_a_block_that_is_not_finite_is_never_staged(bad: float, field: str) -> None:
    current = blocks(ADAM)
    cache = cache_of(current)
    for f in current.fields.values():
        f += 1
    current.fields[field][3] = bad
    scores = cache.score(current)
    if field == "value":
        assert np.isnan(scores[3])
    assert np.isfinite(np.delete(scores, 3)).all()
    staged, left_out = cache.stage(current, ids(2, 3, 4), v(1), save_id=1)
    assert staged.ids.tolist() == [2, 4]
    assert left_out.tolist() == [3]
    assert np.isfinite(cache.saved.fields[field]).all()
    cache.mark_durable(1)
    assert cache.durable.commit.tolist() == [0, 0, 1, 0, 1, 0]


def test_only_blocks_that_are_not_finite() -> None:
    current = blocks()
    cache = cache_of(current)
    current.value[:] = np.nan
    staged, left_out = cache.stage(current, DENSE.all_ids, v(1), save_id=1)
    assert len(staged) == 0
    assert len(left_out) == 6


def test_all_fields_of_a_block_are_of_one_moment() -> None:
    current = blocks(ADAM)
    cache = cache_of(current)
    for moment in range(1, 5):
        for f in current.fields.values():
            f[...] = moment
        cache.stage(current, ids(moment), v(moment), save_id=moment)
        cache.mark_durable(moment)
    for name in ("value", "m", "step"):
        assert cache.saved.fields[name].tolist()[1:5] == [1, 2, 3, 4]
    current.fields["m"][2] = 7  # not part of the distance, but of the bytes
    assert cache.score(current)[2] == cache.score(current)[2]
    assert 2 in cache.changed(current)


def test_ragged_blocks() -> None:
    current = blocks(RAGGED)
    cache = cache_of(current)
    current.value[2:5] += 1  # block 2
    current.value[6:] += 2  # block 5
    assert cache.score(current).tolist() == [0, 0, pytest.approx(np.sqrt(3)), 0, 0, 4]
    staged, _ = cache.stage(current, ids(1, 2, 4), v(1), save_id=1)
    assert staged.value.tolist() == current.value[2:5].tolist()
    cache.mark_durable(1)
    assert cache.changed(current).tolist() == [5]
    staged, _ = cache.stage(current, ids(0, 5), v(2), save_id=2)  # more elements than before, in the same buffer
    assert staged.value.tolist() == current.value[[0, 1, 6, 7, 8, 9]].tolist()
    assert cache.changed(current).tolist() == [0, 5]


def test_staged_values_stay_while_training_goes_on() -> None:
    current = blocks()
    cache = cache_of(current)
    staged, _ = cache.stage(current, ids(0, 5), v(1), save_id=1)
    before = staged.value.copy()
    current.value[:] = -1
    cache.score(current)
    assert np.array_equal(staged.value, before)
    assert not np.shares_memory(staged.value, cache.saved.value)
    cache.adopt(blocks(DENSE, 50, [2, 3]), Versions.initial(2))
    assert np.array_equal(staged.value, before), "a save in flight does not see a recovery"
    cache.mark_durable(1)
    cache.stage(current, DENSE.all_ids, v(2), save_id=2)
    assert np.array_equal(staged.value, before), "a buffer that was given up in a recovery is not used again"


def test_memory_for_staging_is_kept() -> None:
    current = blocks()
    cache = cache_of(current)
    a, _ = cache.stage(current, ids(0, 1, 2), v(1), save_id=1)
    b, _ = cache.stage(current, ids(4, 5), v(2), save_id=2)
    assert np.shares_memory(a.value, b.value)


def test_adopted_blocks_stand_beside_those_held() -> None:
    mine = blocks(ids=[1, 4])
    cache = cache_of(mine)
    mine.value[:] += 1
    cache.stage(mine, ids(4), v(3), save_id=1)
    cache.mark_durable(1)
    cache.stage(mine, ids(1), v(4), save_id=2)
    cache.give_up(2)
    theirs = Versions(*(np.array([5, 6]) for _ in range(3)))
    cache.adopt(blocks(start=50, ids=[0, 2]), theirs)
    assert cache.ids.tolist() == [0, 1, 2, 4]
    assert cache.durable.commit.tolist() == [5, 0, 6, 3]
    assert cache.staged.commit.tolist() == [5, 4, 6, 3]
    assert cache.saved.value[:, 0].tolist() == [50, 1, 52, 3]
    now = cache.saved.copy()
    assert cache.score(now).tolist() == [0, np.inf, 0, 0]
    assert cache.changed(now).tolist() == [0, 1, 2], "a lost node's late segment may hold something newer of theirs"
    cache.stage(now, ids(0, 1, 2), v(9), save_id=3)
    cache.mark_durable(3)
    assert cache.changed(now).tolist() == []


def test_adopted_blocks_may_take_the_place_of_those_held() -> None:
    mine = blocks(ids=[1, 4])
    cache = cache_of(mine)
    cache.stage(mine, ids(1), v(4), save_id=2)
    cache.give_up(2)
    cache.adopt(blocks(start=50, ids=[1, 3]), Versions(*(np.array([7, 8]) for _ in range(3))))
    assert cache.ids.tolist() == [1, 3, 4]
    assert cache.durable.commit.tolist() == [7, 8, 0]
    assert cache.score(cache.saved.copy()).tolist() == [0, 0, 0]


def test_a_block_that_is_taken_back_while_it_is_in_a_save_in_flight_must_be_saved_again() -> None:
    mine = blocks(ids=[1, 4])
    cache = cache_of(mine)
    mine.value[:] += 1
    cache.stage(mine, ids(1, 4), v(4), save_id=2)
    cache.adopt(blocks(ids=[1]), Versions.initial(1))
    cache.mark_durable(2)  # the store now has the later value of block 1
    assert cache.durable.commit.tolist() == [0, 4]
    now = cache.saved.copy()
    assert cache.changed(now).tolist() == [1]
    assert cache.score(now).tolist() == [np.inf, 0]


def test_a_save_in_flight_survives_an_adoption() -> None:
    mine = blocks(ids=[1, 4])
    cache = cache_of(mine)
    cache.stage(mine, ids(4), v(3), save_id=1)
    cache.adopt(blocks(ids=[0, 5]), Versions.initial(2))
    cache.mark_durable(1)
    assert cache.durable.commit.tolist() == [0, 0, 3, 0]


def test_versions() -> None:
    a, b = Versions.initial(4), Versions.initial(4)
    a.set(ids(1, 2), Version(1, 5, 5))
    b.set(ids(2, 3), Version(2, 1, 1))
    assert a.is_older_than(b).tolist() == [False, False, True, True]
    assert b.is_older_than(a).tolist() == [False, True, False, False]
    assert Version(1, 9, 9) < Version(2, 0, 0)
    taken = a.take(ids(2))
    taken.set(ids(0), Version(9, 9, 9))
    assert a.commit.tolist() == [0, 5, 5, 0], "what is taken is a copy"
    a.put(ids(0), taken)
    assert a.term.tolist() == [9, 1, 1, 0]
    assert len(a) == 4


@pytest.mark.parametrize("encodings", [{"value": "int8", "m": "bfloat16"}, {"value": "bfloat16"}])
def test_rounding_counts_as_distance(encodings: dict[str, str]) -> None:
    current = blocks(ADAM, start=0.123)
    cache = BlockCache(current, Versions.initial(6), l2_distance, encodings)
    current.value[...] += 1.001
    staged, left_out = cache.stage(current, ids(1, 4), v(1), save_id=1)
    assert len(left_out) == 0
    rounded = {n: encoding_named(e).rounded(current.take(ids(1, 4)).fields[n], ids(1, 1)) for n, e in encodings.items()}
    for name, expected in rounded.items():
        assert staged.fields[name].tolist() == expected.tolist()
        assert cache.saved.take(ids(1, 4)).fields[name].tolist() == expected.tolist()
    error = np.abs(rounded["value"] - current.value[[1, 4]])
    assert (error > 0).any()
    assert cache.score(current)[[1, 4]] == pytest.approx(error)
    assert cache.changed(current).tolist() == [0, 1, 2, 3, 4, 5]


def test_an_exact_stage_leaves_nothing_changed() -> None:
    current = blocks(DENSE, start=0.123)
    cache = BlockCache(current, Versions.initial(6), l2_distance, {"value": "int8"})
    cache.stage(current, ids(0, 1, 2, 3, 4, 5), v(1), save_id=1)
    cache.mark_durable(1)
    staged, _ = cache.stage(current, cache.changed(current), v(1), save_id=2, exact=True)
    cache.mark_durable(2)
    assert staged.value.tolist() == current.value[staged.ids].tolist()
    assert cache.changed(current).tolist() == []


def test_a_block_that_rounding_makes_infinite_is_left_out() -> None:
    table = Table("w", 2, (Field("value", "float64"),))
    current = blocks(table)
    cache = BlockCache(current, Versions.initial(2), l2_distance, {"value": "float32"})
    current.value[:] = [1e300, 2]
    staged, left_out = cache.stage(current, ids(0, 1), v(1), save_id=1)
    assert (staged.ids.tolist(), left_out.tolist()) == ([1], [0])
    assert cache.saved.value.tolist() == [0, 2]


@pytest.mark.parametrize("table", [DENSE, RAGGED], ids=lambda t: t.name)
@pytest.mark.parametrize("some", [[], [3], [1, 2, 3], [0, 5], [0, 1, 2, 3, 4, 5]])
def test_some_blocks_are_scored_as_they_are_among_all(table: Table, some: list[int]) -> None:
    current = blocks(table)
    cache = cache_of(current)
    current.value[...] += np.arange(current.value.size, dtype=current.value.dtype).reshape(current.value.shape)
    cache.must_save(ids(1, 5))
    at = np.array(some, np.int64)
    assert cache.score(current.take(at)).tolist() == cache.score(current)[at].tolist()


def test_what_the_store_has_not_must_be_saved() -> None:
    current = blocks()
    cache = cache_of(current)
    cache.must_save(ids(1, 4))
    assert cache.changed(current).tolist() == [1, 4]
    assert np.isinf(cache.score(current)[[1, 4]]).all()
    cache.stage(current, ids(1, 4), v(1), save_id=1)
    cache.mark_durable(1)
    assert cache.changed(current).tolist() == []


def test_blocks_that_are_put_back_are_what_the_store_has() -> None:
    current = blocks()
    cache = cache_of(current)
    current.value[2] = 100
    cache.stage(current, ids(2), v(3), save_id=1)
    cache.give_up(1)
    old = blocks(start=50).take(ids(2, 3))
    versions = Versions.initial(2)
    versions.set(ids(0, 1), v(1))
    cache.put_back(old, versions)
    current.put(old)
    assert cache.changed(current).tolist() == []
    assert cache.score(current).tolist() == [0] * 6
    assert cache.durable.commit.tolist() == cache.staged.commit.tolist() == [0, 0, 1, 1, 0, 0]


def test_integers_beyond_their_bits_are_refused_when_they_are_staged() -> None:
    table = Table("n", 4, (Field("value", "int64", below=6),))
    current = blocks(table)
    cache = BlockCache(current, Versions.initial(4), l2_distance, {"value": "packed-3"})
    current.value[:] = [1, 2, 8, 7]
    staged, _ = cache.stage(current, ids(0, 1, 3), v(1), save_id=1)
    assert staged.value.tolist() == [1, 2, 7]
    with pytest.raises(ModelError, match="field 'value' of table 'n': values from 8 to 8 cannot be stored as packed-3"):
        cache.stage(current, ids(2), v(2), save_id=2)
    assert cache.stage(current, ids(2), v(2), save_id=2, exact=True)[0].value.tolist() == [8], "which is stored plain"

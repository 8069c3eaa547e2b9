"""Settings of checkpoints, and the choice of the blocks of one save after the other."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from scarml.checkpoint.selection import Checkpoint, SaveSelector
from scarml.core.block import Field, Table
from scarml.errors import UsageError

TWO = [Table("a", 6, (Field("value"),)), Table("b", 4, (Field("value", "float32", (3,)),))]


def sizes(picked: dict[str, Any]) -> dict[str, int]:
    return {name: len(ids) for name, ids in picked.items()}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"policy": "best"}, "--policy 'best' is unknown; choose one of priority, round, random, mfu, ssu, full"),
        ({"fraction": "much"}, "--fraction 'much' is not a number; expected for example 1/8 or 0.125"),
        ({"fraction": "1/0"}, "--fraction '1/0' is not a number"),
        ({"fraction": float("nan")}, "--fraction nan is not a number"),
        ({"fraction": 0}, "--fraction is 0; expected more than 0"),
        ({"fraction": 2}, "--fraction is 2; expected more than 0 and at most 1"),
        ({"fraction": "1/16"}, "asks for a save every 1/2 iterations"),
        ({"policy": "full"}, "--policy full saves everything, but --fraction is 1/8; expected 1"),
        ({"recovery": "full"}, "--recovery full needs complete checkpoints, but --policy is priority"),
        ({"recovery": "magic"}, "--recovery 'magic' is unknown; choose partial, repair or full"),
        ({"budget_in": "euro"}, "--budget-in 'euro' is unknown; choose blocks or bytes"),
        ({"encode": "int4"}, "encoding 'int4' is unknown; choose one of plain, .*, mxfp8, narrow"),
        ({"encode": ["int8"]}, r"--encode \['int8'\] is unknown; choose the name of an encoding, or a dict by table"),
        ({"phase_aware": "no"}, "phase_aware is 'no'; expected True or False"),
        ({"interval_iters": 8.5}, "--interval is 8.5; expected a whole number of iterations"),
        ({"interval_iters": "8"}, "--interval is '8'; expected a whole number of iterations"),
        ({"policy": None}, "--policy None is no name; choose one of priority"),
        ({"policy": ["priority"]}, "is no name; choose one of priority"),
        ({"rank_by": "age"}, "--rank-by 'age' is unknown; choose one of distance, distance-per-byte, weighted"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as error:
        Checkpoint(**settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("fraction", ["1/8", 0.125, Fraction(1, 8), "0.125"])
def test_fractions_are_exact(fraction: Any) -> None:
    assert Checkpoint(fraction=fraction).fraction == Fraction(1, 8)
    assert Checkpoint(fraction=1 / 3, interval_iters=3).schedule.period_iters == 1


def test_all_tables_compete() -> None:
    selector = SaveSelector(Checkpoint(fraction="3/10", interval_iters=10), TWO, seed=0)
    selector.earn()
    picked = selector.select({"a": np.array([1.0, 9, 1, 1, 1, 1]), "b": np.array([2.0, 1, 1, 8])})
    assert {n: ids.tolist() for n, ids in picked.items()} == {"a": [1], "b": [0, 3]}


def test_derived_tables_are_never_chosen() -> None:
    derived = Table("d", 50, (Field("value"),), derived=True)
    selector = SaveSelector(Checkpoint("round", 1, 1), [TWO[0], derived, TWO[1]], seed=0)
    selector.earn()
    assert sizes(selector.select()) == {"a": 6, "b": 4}


def test_what_is_not_spent_is_carried_over_up_to_twice_the_share() -> None:
    selector = SaveSelector(Checkpoint(fraction="1/5", interval_iters=5), TWO, seed=0)
    still = {"a": np.zeros(6), "b": np.zeros(4)}
    moved = {"a": np.arange(6.0) + 1, "b": np.arange(4.0) + 9}
    for _ in range(5):
        selector.earn()
        assert selector.select(still) == {}
    selector.earn()
    assert sum(sizes(selector.select(moved)).values()) == 4
    assert selector.select(moved) == {}, "nothing is left"


def test_a_budget_in_bytes() -> None:
    # 6 blocks of 4 bytes and 4 of 12: 72 bytes; a quarter of them is 18.
    selector = SaveSelector(Checkpoint(fraction="1/4", interval_iters=4, budget_in="bytes"), TWO, seed=0)
    moved = {"a": np.ones(6), "b": np.full(4, 2.0)}
    total = 0
    for n in range(1, 9):
        selector.earn()
        picked = sizes(selector.select(moved))
        total += 4 * picked.get("a", 0) + 12 * picked.get("b", 0)
        assert 18 * n - 12 < total <= 18 * n


def test_a_block_larger_than_two_shares_is_saved_in_the_end() -> None:
    tables = [Table("small", 10, (Field("value"),)), Table("large", 1, (Field("value", "float32", (990,)),))]
    selector = SaveSelector(Checkpoint(fraction="1/8", interval_iters=8, budget_in="bytes"), tables, seed=0)
    moved = {"small": np.ones(10), "large": np.array([5.0])}
    for n in range(1, 9):
        selector.earn()
        picked = selector.select(moved)
        assert ("large" in picked) == (n == 8)


def test_a_fraction_of_a_block_adds_up() -> None:
    selector = SaveSelector(Checkpoint("round", "1/4", 4), [Table("a", 6, (Field("value"),))], seed=0)
    n_chosen = []
    for _ in range(8):
        selector.earn()
        n_chosen.append(sum(sizes(selector.select()).values()))
    assert n_chosen == [1, 2, 1, 2, 1, 2, 1, 2]


def test_a_budget_in_bytes_is_of_plain_ones_and_pays_for_stored_ones() -> None:
    table = Table("w", 10, (Field("value", "float32", (12,)),))  # 48 bytes a block, 16 as int8, 13 as mxint8
    in_bytes = Checkpoint(fraction="1/5", budget_in="bytes")
    for encoding, n in [("plain", 2), ("int8", 6), ("mxint8", 7)]:
        selector = SaveSelector(replace(in_bytes, encode=encoding), [table], seed=0)
        selector.earn()
        assert len(selector.select({"w": np.arange(1.0, 11)})["w"]) == n
    in_blocks = SaveSelector(Checkpoint(fraction="1/5", encode="int8"), [table], seed=0)
    in_blocks.earn()
    assert len(in_blocks.select({"w": np.arange(1.0, 11)})["w"]) == 2


def test_weights_are_those_of_the_tables_and_one_where_a_table_has_none() -> None:
    heavy = Table("b", 4, TWO[1].fields, weights=np.array([1.0, 9, 1, 1]))  # three times as many bytes a block as in a
    checkpoint = Checkpoint(fraction="3/10", interval_iters=4, rank_by="weighted-distance-per-byte")
    selector = SaveSelector(checkpoint, [TWO[0], heavy], seed=0)
    selector.earn()
    picked = selector.select({"a": np.array([2.5, 0.5, 1, 1, 2, 1]), "b": np.ones(4)})
    assert {name: ids.tolist() for name, ids in picked.items()} == {"a": [0, 4], "b": [1]}


DEAD = [Table("L", 16, (Field("value"),), dead_at_boundary=True), Table("R", 16, (Field("value"),))]


@pytest.mark.parametrize("unit", ["blocks", "bytes"])
def test_what_the_next_phase_overwrites_gets_an_eighth_and_what_others_leave(unit: Any) -> None:
    def chosen(left: float, right: float, phase_aware: bool = True) -> dict[str, int]:
        checkpoint = Checkpoint(fraction="1/4", interval_iters=4, budget_in=unit, phase_aware=phase_aware)
        selector = SaveSelector(checkpoint, DEAD, seed=0)
        selector.earn()
        return sizes(selector.select({"L": np.full(16, left), "R": np.full(16, right)}))

    assert chosen(2, 1) == {"L": 1, "R": 7}
    assert chosen(1, 2) == {"R": 8}
    assert chosen(2, 0) == {"L": 8}
    assert chosen(2, 1, phase_aware=False) == {"L": 8}


def test_a_phase_aware_save_is_as_any_other_without_such_tables_and_full_saves_are_full() -> None:
    plain, aware = (SaveSelector(Checkpoint(phase_aware=aware), TWO, seed=0) for aware in (False, True))
    moved = {"a": np.arange(6.0), "b": np.arange(4.0) + 2.5}
    for _ in range(20):
        picked = []
        for selector in (plain, aware):
            selector.earn()
            picked.append({name: ids.tolist() for name, ids in selector.select(moved).items()})
        assert picked[0] == picked[1]
    whole = SaveSelector(Checkpoint("full", 1, 4, phase_aware=True), DEAD, seed=0)
    whole.earn()
    assert sizes(whole.select()) == {"L": 16, "R": 16}


def test_full_saves_are_full_even_where_short_blocks_take_more_bytes_in_a_narrower_form() -> None:
    table = Table("a", 16, (Field("value", "float32"),))  # int8: 5 bytes a block instead of 4
    checkpoint = Checkpoint("full", 1, 4, "full", budget_in="bytes", encode="int8")
    selector = SaveSelector(checkpoint, [table], seed=0)
    for _ in range(2):
        selector.earn()
        assert sizes(selector.select()) == {"a": 16}


@pytest.mark.parametrize("encode", [{"a": "int8"}, {"a": None}, {"a": {"value": ["int8"]}}])
def test_encodings_of_another_form_are_refused(encode: Any) -> None:
    with pytest.raises(UsageError, match=r"expected a dict by field, such as|is no name; expected text"):
        Checkpoint(encode=encode).encodings(TWO)


def test_presets_are_where_settings_begin() -> None:
    assert Checkpoint.preset("paper") == Checkpoint()
    general = Checkpoint.preset("general", encode="plain", fraction="1/4")
    assert (general.budget_in, general.encode, general.fraction) == ("bytes", "plain", Fraction(1, 4))
    with pytest.raises(UsageError, match="--preset 'best' is unknown; choose one of paper, general"):
        Checkpoint.preset("best")


def test_narrow_is_for_all_tables_that_are_saved() -> None:
    tables = [*TWO, Table("d", 2, (Field("value"),), derived=True), Table("n", 2, (Field("value", "int64"),))]
    tables += [Table("c", 3, (Field("value", "float64", (4, 8)), Field("m", "float64", (4, 8))))]
    assert Checkpoint(encode="narrow").encodings(tables) == {
        "a": {"value": "mxint8"},
        "b": {"value": "mxint8"},
        "c": {"value": "int8", "m": "bfloat16"},
    }


def test_an_encoding_by_name_is_for_values_that_are_floating_point_and_must_be_one_for_them() -> None:
    tables = [TWO[0], Table("n", 2, (Field("value", "int64"),))]
    assert Checkpoint(encode="int8").encodings(tables) == {"a": {"value": "int8"}}
    with pytest.raises(UsageError, match="cannot be stored as float32: it is for float64"):
        Checkpoint(encode="float32").encodings(tables)
    with pytest.raises(UsageError, match="there is no table 'V' to encode"):
        Checkpoint(encode={"V": {"value": "int8"}}).encodings(tables)

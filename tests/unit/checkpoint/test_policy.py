"""Scores of the policies, and the choice that a budget leaves."""

from __future__ import annotations

from fractions import Fraction
from typing import get_args

import numpy as np
import pytest

from scarml.checkpoint.policy import (
    POLICIES,
    Candidates,
    Full,
    MostFrequentlyUsed,
    Policy,
    Priority,
    Random,
    RankBy,
    Round,
    SubSampledUsed,
    choose,
    needs_of,
    policy_named,
)
from scarml.errors import UsageError


def candidates(distance: list[float], size_bytes: list[int] | None = None) -> Candidates:
    n = len(distance)
    return Candidates(np.array(size_bytes or [4] * n), np.array(distance, float), np.ones(n), np.zeros(n))


def chosen(
    policy: Policy, c: Candidates, balance: float | Fraction, unit: str = "blocks", cursor: int = 0
) -> list[int]:
    scores = policy.scores(c, 0, cursor, 0)
    return choose(scores, c.size_bytes, unit, Fraction(balance)).tolist()  # type: ignore[arg-type]


def test_priority_takes_what_has_moved_most() -> None:
    assert chosen(Priority(), candidates([1, 5, 3, 4, 0.5]), 2) == [1, 3]


def test_ties_go_to_the_first() -> None:
    assert chosen(Priority(), candidates([2, 3, 2, 2, 3, 2]), 4) == [0, 1, 2, 4]
    assert chosen(Priority(), candidates([2, 3, 2, 2, 3, 2]), 16, "bytes") == [0, 1, 2, 4]


def test_what_has_not_moved_is_not_saved_and_what_is_not_finite_neither() -> None:
    assert chosen(Priority(), candidates([0, np.nan, 1, 0, np.nan]), 4) == [2]
    assert chosen(Priority(), candidates([0, np.nan, 1, 0, np.nan]), 16, "bytes") == [2]
    assert chosen(Priority(), candidates([0, np.nan]), 2) == []


def test_what_was_given_up_comes_first() -> None:
    assert chosen(Priority(), candidates([9, np.inf, 8, np.inf, np.inf]), 3) == [1, 3, 4]
    assert chosen(Priority(), candidates([9, np.inf, 8, np.inf, np.inf]), 2) == [1, 3]
    assert chosen(Priority("distance-per-byte"), candidates([9, np.inf, 8], [1, 1000, 1]), 1001, "bytes") == [0, 1]


def test_distance_per_byte() -> None:
    c = candidates([10, 6, 1], [100, 20, 4])
    assert chosen(Priority("distance-per-byte"), c, 24, "bytes") == [1, 2]
    assert chosen(Priority(), c, 100, "bytes") == [0]
    assert chosen(Priority("distance-per-byte"), candidates([1, 2], [0, 0]), 0, "bytes") == [0, 1]  # empty documents


def test_a_large_block_is_not_overtaken_for_ever_by_small_ones() -> None:
    c = candidates([10, 6, 1], [100, 20, 4])
    assert chosen(Priority(), c, 99, "bytes") == []
    assert chosen(Priority(), c, 124, "bytes") == [0, 1, 2]


def test_a_part_of_a_block_is_not_saved() -> None:
    assert chosen(Priority(), candidates([1, 2, 3]), Fraction(5, 2)) == [1, 2]
    assert chosen(Priority(), candidates([1, 2, 3]), Fraction(1, 2)) == []
    assert chosen(Priority(), candidates([1, 2, 3]), -1) == []


def test_round_goes_round() -> None:
    c = candidates([0] * 5)
    assert chosen(Round(), c, 2) == [0, 1]
    assert chosen(Round(), c, 2, cursor=2) == [2, 3]
    assert chosen(Round(), c, 2, cursor=4) == [0, 4]
    assert chosen(Round(), c, 2, cursor=11) == [1, 2]
    assert chosen(Round(), c, 12, "bytes", cursor=3) == [0, 3, 4]


def test_random_depends_on_the_seed_and_on_which_save_it_is_alone() -> None:
    c = candidates([0] * 20)
    a = Random().scores(c, 3, 17, 5)
    assert np.array_equal(a, Random().scores(candidates([9] * 20), 3, 99, 5))
    assert not np.array_equal(a, Random().scores(c, 4, 17, 5))
    assert not np.array_equal(a, Random().scores(c, 3, 17, 6))
    assert ((a > 0) & (a <= 1)).all()


def used(n_uses: list[float]) -> Candidates:
    n = len(n_uses)
    return Candidates(np.full(n, 4), np.zeros(n), np.ones(n), np.array(n_uses, float))


def test_most_frequently_used_first_and_unused_ones_not_at_all() -> None:
    assert chosen(MostFrequentlyUsed(), used([3, 0, 7, 1]), 2) == [0, 2]
    assert chosen(MostFrequentlyUsed(), used([3, 0, 7, 1]), 4) == [0, 2, 3]
    assert chosen(MostFrequentlyUsed(), used([3, np.inf, 7, 1]), 2) == [1, 2]


def test_equally_used_ones_come_in_turn() -> None:
    assert chosen(MostFrequentlyUsed(), used([1, 1, 1, 1, 1]), 2, cursor=4) == [0, 4]
    assert chosen(MostFrequentlyUsed(), used([1, 1, 2, 1, 1]), 2, cursor=4) == [2, 4]


def test_what_a_sample_of_the_uses_has_hit() -> None:
    n_uses = np.repeat([0.0, 1.0, 2.0, 5.0, np.inf], 4000)
    for policy in (SubSampledUsed(), SubSampledUsed(period=4)):
        scores = policy.scores(used(n_uses.tolist()), 3, 0, 1)
        listed = (scores > 0).reshape(5, -1).mean(axis=1)
        expected = 1 - (1 - 1 / policy.period) ** np.array([0, 1, 2, 5, np.inf])
        assert listed == pytest.approx(expected, abs=0.03)
        assert (listed[0], listed[-1]) == (0, 1)
        assert scores.max() <= 1


def test_a_sample_depends_on_the_save_and_the_seed_alone() -> None:
    a, b, c, d = (
        SubSampledUsed().scores(used([2] * 50), n, cur, s) for n, cur, s in ((0, 0, 0), (0, 9, 0), (1, 0, 0), (0, 0, 1))
    )
    assert a.tolist() == b.tolist()
    assert a.tolist() != c.tolist()
    assert a.tolist() != d.tolist()


def test_of_the_sample_each_is_chosen_as_often_however_often_it_was_used() -> None:
    candidates_ = used([40.0] * 10 + [80.0] * 10)
    count = np.zeros(20)
    for n in range(2000):
        count[choose(SubSampledUsed().scores(candidates_, n, 0, 0), candidates_.size_bytes, "blocks", Fraction(4))] += 1
    assert count == pytest.approx(np.full(20, 400), abs=90)


def test_full_takes_everything() -> None:
    assert chosen(Full(), candidates([0, np.nan, 1]), 3) == [0, 1, 2]


@pytest.mark.parametrize("name", POLICIES)
def test_policies_by_name(name: str) -> None:
    assert policy_named(name).name == name
    expected = {"priority": ("distance",), "mfu": ("n_uses",), "ssu": ("n_uses",)}
    assert needs_of(policy_named(name)) == expected.get(name, ())


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(
        UsageError, match="--policy 'best' is unknown; choose one of priority, round, random, mfu, ssu, full"
    ):
        policy_named("best")


def test_distances_may_count_per_byte_and_by_weight() -> None:
    three = Candidates(np.array([4, 8, 8]), np.array([1.0, 3.0, 2.0]), np.array([8.0, 1.0, 4.0]), np.zeros(3))
    by = {name: Priority(name).scores(three, 0, 0, 0).tolist() for name in get_args(RankBy)}
    assert by == {
        "distance": [1, 3, 2],
        "distance-per-byte": [0.25, 0.375, 0.25],
        "weighted-distance-per-byte": [2, 0.375, 1],
    }

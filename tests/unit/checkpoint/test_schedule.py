"""When a save is due."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.checkpoint.schedule import Schedule
from scarml.errors import UsageError


@pytest.mark.parametrize(
    ("fraction", "interval", "due"),
    [
        (Fraction(1, 8), 8, list(range(1, 13))),
        (Fraction(1, 4), 8, [2, 4, 6, 8, 10, 12]),
        (Fraction(1), 8, [8]),
        (Fraction(1), 1, list(range(1, 13))),
        (Fraction(1, 2), 3, [2, 3, 5, 6, 8, 9, 11, 12]),  # every 1.5 iterations
        (Fraction(1, 3), 8, [3, 6, 8, 11]),
    ],
)
def test_due(fraction: Fraction, interval: int, due: list[int]) -> None:
    assert [k for k in range(13) if Schedule(fraction, interval).is_due(k)] == due


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 40))
def test_the_whole_state_is_written_every_interval(p: int, q: int, interval: int) -> None:
    fraction = Fraction(min(p, q), max(p, q))
    if fraction * interval < 1:
        return
    schedule = Schedule(fraction, interval)
    for start in range(0, 5 * interval, interval):
        n_saves = sum(schedule.is_due(k) for k in range(start + 1, start + interval + 1))
        assert abs(n_saves * fraction - 1) < fraction + Fraction(1, 10**9)
    n_saves = sum(schedule.is_due(k) for k in range(1, 20 * interval + 1))
    assert n_saves == int(20 / fraction), "no save is lost by rounding"


@pytest.mark.parametrize(
    ("fraction", "interval", "sentence"),
    [
        (Fraction(0), 8, "--fraction is 0; expected more than 0 and at most 1"),
        (Fraction(2), 8, "--fraction is 2; expected more than 0 and at most 1"),
        (Fraction(-1, 2), 8, "--fraction is -1/2; expected more than 0"),
        (Fraction(1), 0, "--interval is 0; expected at least 1 iteration"),
        (Fraction(1, 8), 4, "--fraction 1/8 of an --interval of 4 asks for a save every 1/2 iterations"),
    ],
)
def test_schedules_that_make_no_sense_are_refused(fraction: Fraction, interval: int, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Schedule(fraction, interval)


def test_saves_fall_due_between_boundaries_that_are_far_apart() -> None:
    schedule = Schedule(Fraction(1, 4), 12)  # every 3 iterations
    assert [schedule.n_due(k, after) for after, k in [(0, 2), (2, 4), (4, 10), (10, 10), (10, 12)]] == [0, 1, 2, 0, 1]

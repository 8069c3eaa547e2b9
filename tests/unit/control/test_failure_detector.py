"""The failure detector: who has been silent for too long, and when it is not they who were away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarml.control.failure_detector import FailureDetector
from scarml.errors import UsageError

WHY = "no sign of life for {:.1f} s; it hangs, is stopped, or is cut off"


def test_who_is_heard_is_not_suspected_and_who_is_silent_is() -> None:
    detector = FailureDetector(timeout_s=3.0)
    for now_s in (0.0, 1.0, 2.0, 3.0):
        detector.heard("server-1", now_s)
        assert detector.suspects(["server-0", "server-1"], now_s) == {}
    assert detector.suspects(["server-0", "server-1"], 3.25) == {"server-0": WHY.format(3.2)}


def test_a_silence_of_just_the_timeout_is_no_failure() -> None:
    detector = FailureDetector(timeout_s=1.0)
    for now_s in (0.0, 0.5, 1.0):
        assert detector.suspects(["server-0"], now_s) == {}
    assert detector.suspects(["server-0"], 1.001) == {"server-0": WHY.format(1.0)}


def test_without_a_timeout_silence_means_nothing() -> None:
    detector = FailureDetector(timeout_s=None)
    assert detector.suspects(["server-0"], 0.0) == {}
    assert detector.suspects(["server-0"], 1e9) == {}


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan")])
def test_the_timeout_must_be_positive(timeout_s: float) -> None:
    with pytest.raises(UsageError, match="cannot be a failure; expected a positive number of seconds"):
        FailureDetector(timeout_s)


def test_if_this_process_was_itself_away_nobody_is_suspected() -> None:
    detector = FailureDetector(timeout_s=3.0)
    nodes = ["server-0", "worker-0"]
    assert detector.suspects(nodes, 0.0) == {}
    assert detector.suspects(nodes, 60.0) == {}, "the driver was stopped for a minute"
    detector.heard("worker-0", 61.0)
    for now_s in (61.0, 62.0, 63.0):
        assert detector.suspects(nodes, now_s) == {}
    assert detector.suspects(nodes, 63.5) == {"server-0": WHY.format(3.5)}


def test_the_silence_of_one_that_joins_begins_when_it_is_first_asked_about() -> None:
    detector = FailureDetector(timeout_s=1.0)
    for i in range(20):
        assert detector.suspects([], i / 2) == {}
    assert detector.suspects(["server-9"], 10.0) == {}
    assert detector.suspects(["server-9"], 10.5) == {}
    assert detector.suspects(["server-9"], 11.0) == {}
    assert detector.suspects(["server-9"], 11.5) == {"server-9": WHY.format(1.5)}


def test_a_sign_of_life_that_comes_late_does_not_take_time_back() -> None:
    detector = FailureDetector(timeout_s=1.0)
    detector.heard("server-0", 5.0)
    detector.heard("server-0", 2.0)
    assert detector.suspects(["server-0"], 6.0) == {}


STEPS = st.lists(st.tuples(st.floats(0.001, 0.5), st.sets(st.sampled_from(["a", "b", "c"]))), min_size=1, max_size=40)
"""For each look how long after the last one (of a timeout of 1 s), and who has been heard in between."""


@given(STEPS)
def test_exactly_those_are_suspected_who_have_been_silent_for_the_timeout(
    steps: list[tuple[float, set[str]]],
) -> None:
    detector = FailureDetector(timeout_s=1.0)
    now_s = 0.0
    heard_s = dict.fromkeys("abc", 0.0)
    assert detector.suspects("abc", now_s) == {}
    for wait_s, heard in steps:
        before_s, now_s = now_s, now_s + wait_s
        for node in heard:
            heard_s[node] = now_s
            detector.heard(node, now_s)
        suspects = set(detector.suspects("abc", now_s))
        if now_s - before_s > 0.5:  # by rounding: it counts as having been away
            heard_s = dict.fromkeys("abc", now_s)
        assert suspects == {n for n in "abc" if now_s - heard_s[n] > 1.0}


@given(st.lists(st.floats(0.001, 100.0), min_size=1, max_size=40))
def test_nobody_heard_within_the_timeout_is_suspected_however_seldom_one_looks(waits_s: list[float]) -> None:
    detector = FailureDetector(timeout_s=1.0)
    now_s = 0.0
    for wait_s in waits_s:
        now_s += wait_s
        detector.heard("a", now_s - min(wait_s, 0.9))
        assert detector.suspects(["a"], now_s) == {}


@given(st.floats(0.1, 1000.0), st.floats(1e-3, 1e3))
def test_one_that_falls_silent_is_suspected_soon_after_the_timeout(start_s: float, timeout_s: float) -> None:
    detector = FailureDetector(timeout_s)
    looks = [start_s + i * timeout_s / 6 for i in range(9)]
    found = [bool(detector.suspects(["a"], now_s)) for now_s in looks]
    assert not any(found[:6])
    assert found[8]

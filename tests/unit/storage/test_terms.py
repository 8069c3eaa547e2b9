"""Two writers on one run, one step of the one between any two steps of the other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from tests.unit.storage.test_segment_reader import ALL, T, blocks, segment, values

from scarml.errors import RunInUseError, SupersededError
from scarml.storage.memory import MemoryStore
from scarml.storage.run_folder import RunFolder
from scarml.storage.store import Store


class Interrupted:
    """A store that does something else before its n-th operation."""

    def __init__(self, inner: Store, n: int, other: Callable[[], object]) -> None:
        self.inner, self.n_left, self.other = inner, n, other

    def __getattr__(self, name: str) -> object:
        self.n_left -= 1
        if self.n_left == 0:
            self.other()
        return getattr(self.inner, name)


def interrupted(run: RunFolder, n: int, other: Callable[[], object]) -> RunFolder:
    """The same run, in a process that is interrupted before its n-th operation."""
    return RunFolder(Interrupted(run.store, n, other), {})  # type: ignore[arg-type]  # a Store by __getattr__


def started() -> RunFolder:
    run = RunFolder.create(MemoryStore(), {})
    run.write_segment(segment(blocks(ALL, 1), term=run.claim_term("new"), commit=1))
    return run


def test_a_running_owner_takes_over_from_nobody():
    outcomes = set()
    for n in range(1, 20):
        run = started()
        rival: list[int] = []
        racing = interrupted(run, n, partial(claim, run, rival))
        try:
            own = racing.claim_term("new", after=1)
        except SupersededError:
            own = None
        assert own not in rival
        outcomes.add((own, *rival))
    assert outcomes == {(None, 2), (2, 3), (2,)}


def test_a_commit_reported_at_any_moment_of_a_claim_is_in_the_new_base():
    outcomes = set()
    for n in range(1, 20):
        run = started()
        reported: list[int] = []
        term = interrupted(run, n, partial(write, run, reported)).claim_term("parent")
        seen = values(run.reader(term).read_newest(T, ALL))[3]
        assert seen >= max(reported, default=1)
        outcomes.add((bool(reported), seen))
    assert outcomes == {(True, 2), (False, 2), (False, 1)}


def test_a_commit_reported_with_a_claim_at_any_moment_of_its_writing_is_in_the_new_base():
    outcomes = set()
    for n in range(1, 5):
        run = started()
        terms: list[int] = []
        reported: list[int] = []
        write(interrupted(run, n, partial(claim, run, terms)), reported)
        term = terms[0] if terms else run.claim_term("parent")
        seen = values(run.reader(term).read_newest(T, ALL))[3]
        assert seen == 2 or not reported
        outcomes.add((bool(reported), seen))
    assert outcomes == {(True, 2), (False, 2), (False, 1)}


def test_of_two_claims_at_any_moment_of_each_other_every_term_has_one_owner():
    for n in range(1, 20):
        run = started()
        terms: list[int] = []
        claim(interrupted(run, n, partial(claim, run, terms)), terms)
        assert terms
        assert len(set(terms)) == len(terms)
        assert values(run.reader(max(terms)).read_newest(T, ALL)) == [1] * 10


def claim(run: RunFolder, terms: list[int]) -> None:
    """Claim a term, and note it if it is won."""
    with suppress(RunInUseError):
        terms.append(run.claim_term("parent"))


def write(run: RunFolder, reported: list[int]) -> None:
    """Write commit 2 of term 1, and note it if it is reported."""
    with suppress(SupersededError):
        run.write_segment(segment(blocks([3], 2), commit=2))
        reported.append(2)

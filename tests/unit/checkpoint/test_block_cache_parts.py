"""Parts of a cache go along with their blocks: nothing that it knows of them is lost or made up on the way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from scarml.checkpoint.block_cache import BlockCache
from scarml.checkpoint.version_index import Version, Versions
from scarml.core.block import Blocks, Field, Table
from scarml.core.model import ALL
from scarml.core.norm import l2_distance
from scarml.errors import ModelError

N = 8
DENSE = Table("w", N, (Field("value"), Field("m")))
RAGGED = Table("docs", N, (Field("value", "uint8", ragged=True),), lengths=np.array([2, 0, 3, 1, 0, 4, 1, 2]))
NODES = ("a", "b")


def v(commit: int) -> Version:
    return Version(1, commit, commit)


def ids(numbers: Any) -> np.ndarray:
    return np.array(sorted(numbers), np.int64)


def filled(table: Table, values: dict[int, int]) -> Blocks:
    """Blocks that are full of one number each."""
    made = table.empty(ids(values))
    numbers = np.array([values[int(i)] for i in made.ids])
    for f in table.fields:
        made.fields[f.name][...] = np.repeat(numbers, made.lengths) if f.ragged else numbers
    return made


@dataclass
class Entry:
    """All that a cache knows of one block."""

    saved: int
    staged: int = 0
    durable: int = 0
    given_up: bool = False
    taken_over: bool = False
    n_uses: int = 0


@dataclass
class Plain:
    """A cache as a dictionary."""

    entries: dict[int, Entry]
    in_flight: dict[int, int] = field(default_factory=dict)
    save_id: int = 0


class CachesAgainstDictionaries(RuleBasedStateMachine):
    """Two nodes with a cache each, beside two dictionaries."""

    table = DENSE

    def __init__(self) -> None:
        super().__init__()
        self.now = 1
        self.current = {"a": dict.fromkeys(range(5), 0), "b": dict.fromkeys(range(5, N), 0)}
        self.caches = {
            n: BlockCache(filled(self.table, held), Versions.initial(len(held)), l2_distance)
            for n, held in self.current.items()
        }
        self.plain = {n: Plain({i: Entry(0) for i in held}) for n, held in self.current.items()}

    def _some(self, node: str, chosen: set[int]) -> list[int]:
        return sorted(chosen & set(self.current[node]))

    @rule(chosen=st.sets(st.integers(0, N - 1)))
    def train(self, chosen: set[int]) -> None:
        self.now += 1
        for node in NODES:
            some = self._some(node, chosen)
            self.current[node].update(dict.fromkeys(some, self.now))
            self.caches[node].use(ids(some), 2)
            self.caches[node].use(ALL, 1)
            for i, entry in self.plain[node].entries.items():
                entry.n_uses += 3 if i in some else 1

    @rule(node=st.sampled_from(NODES), chosen=st.sets(st.integers(0, N - 1)))
    def stage(self, node: str, chosen: set[int]) -> None:
        some = self._some(node, chosen)
        self.now += 1
        cache, plain = self.caches[node], self.plain[node]
        cache.stage(filled(self.table, self.current[node]), ids(some), v(self.now), save_id=self.now)
        for i in some:
            old = plain.entries[i]
            plain.entries[i] = replace(
                old, saved=self.current[node][i], staged=self.now, given_up=False, taken_over=False, n_uses=0
            )
        plain.in_flight, plain.save_id = dict.fromkeys(some, self.now), self.now

    @rule(node=st.sampled_from(NODES), is_current=st.booleans())
    def store(self, node: str, is_current: bool) -> None:
        plain = self.plain[node]
        self.caches[node].mark_durable(plain.save_id if is_current else plain.save_id - 1)
        if is_current:
            for i, commit in plain.in_flight.items():
                plain.entries[i].durable = commit
            plain.in_flight = {}

    @rule(node=st.sampled_from(NODES))
    def give_up(self, node: str) -> None:
        plain = self.plain[node]
        self.caches[node].give_up(plain.save_id)
        for i in plain.in_flight:
            plain.entries[i].given_up = True
        plain.in_flight = {}

    @rule(giver=st.sampled_from(NODES), chosen=st.sets(st.integers(0, N - 1)), keeps_rest=st.booleans())
    def hand_over(self, giver: str, chosen: set[int], keeps_rest: bool) -> None:
        """The giver may have a save in flight of blocks that it keeps; the taker of any."""
        taker = NODES[1 - NODES.index(giver)]
        gives, takes = self.plain[giver], self.plain[taker]
        some = [i for i in self._some(giver, chosen) if i not in gives.in_flight]
        self.caches[taker].join(self.caches[giver].part(ids(some)))
        self.current[taker].update({i: self.current[giver][i] for i in some})
        takes.entries.update({i: replace(gives.entries[i]) for i in some})
        for i in set(takes.in_flight) & set(some):
            del takes.in_flight[i]
            takes.entries[i].given_up = True
        if keeps_rest:
            rest = set(self.current[giver]) - set(some)
            self.caches[giver].keep(ids(rest))
            for i in some:
                del self.current[giver][i], gives.entries[i]

    @rule(node=st.sampled_from(NODES), chosen=st.sets(st.integers(0, N - 1)))
    def adopt(self, node: str, chosen: set[int]) -> None:
        """Blocks that were lost elsewhere, loaded from the store."""
        some = sorted(chosen - set(self.current[node]))
        self.caches[node].adopt(filled(self.table, dict.fromkeys(some, 7)), _versions(dict.fromkeys(some, 1)))
        self.current[node].update(dict.fromkeys(some, 7))
        self.plain[node].entries.update({i: Entry(7, 1, 1, taken_over=True) for i in some})

    @invariant()
    def agree(self) -> None:
        for node in NODES:
            cache, entries = self.caches[node], self.plain[node].entries
            order = sorted(entries)
            assert cache.ids.tolist() == order
            assert not cache.saved.differs_from(filled(self.table, {i: entries[i].saved for i in order})).any()
            assert cache.staged.commit.tolist() == [entries[i].staged for i in order]
            assert cache.durable.commit.tolist() == [entries[i].durable for i in order]
            part = cache.part(cache.ids)
            assert part.given_up.tolist() == [entries[i].given_up for i in order]
            assert part.taken_over.tolist() == [entries[i].taken_over for i in order]
            changed = [i for i in order if self._is_changed(node, i)]
            assert cache.changed(filled(self.table, self.current[node])).tolist() == changed
            assert cache.n_uses.tolist() == [entries[i].n_uses for i in order]
            assert cache.uses().tolist() == [np.inf if entries[i].given_up else entries[i].n_uses for i in order]
            score = cache.score(filled(self.table, self.current[node]))
            assert np.isinf(score).tolist() == [entries[i].given_up for i in order]

    def _is_changed(self, node: str, block: int) -> bool:
        entry = self.plain[node].entries[block]
        is_behind = entry.durable < entry.staged or entry.given_up or entry.taken_over
        has_values = self.table.lengths is None or self.table.lengths[block] > 0
        return is_behind or (has_values and self.current[node][block] != entry.saved)


class RaggedCachesAgainstDictionaries(CachesAgainstDictionaries):
    """The same with blocks of different lengths, some empty."""

    table = RAGGED


FEW = settings(max_examples=15, stateful_step_count=15, deadline=None)
TestDense = CachesAgainstDictionaries.TestCase
TestDense.settings = FEW
TestRagged = RaggedCachesAgainstDictionaries.TestCase
TestRagged.settings = FEW


def _versions(commits: dict[int, int]) -> Versions:
    made = Versions.initial(len(commits))
    for at, i in enumerate(sorted(commits)):
        made.set(np.array([at]), v(commits[i]))
    return made


def test_a_part_is_a_copy() -> None:
    current = filled(DENSE, {0: 1, 1: 2})
    cache = BlockCache(current, Versions.initial(2), l2_distance)
    part = cache.part(ids([0, 1]))
    current.value[...] = 9
    cache.stage(current, ids([0, 1]), v(3), save_id=1)
    cache.give_up(1)
    assert part.saved.value.tolist() == [1, 2]
    assert part.staged.commit.tolist() == [0, 0]
    assert part.given_up.tolist() == [False, False]


def test_a_save_in_flight_goes_on_for_the_blocks_that_are_kept() -> None:
    current = filled(DENSE, dict.fromkeys(range(4), 1))
    cache = BlockCache(current, Versions.initial(4), l2_distance)
    cache.stage(current, ids([0, 1, 2]), v(3), save_id=5)
    cache.keep(ids([1, 2, 3]))
    cache.mark_durable(5)
    assert cache.ids.tolist() == [1, 2, 3]
    assert cache.durable.commit.tolist() == [3, 3, 0]


def test_a_part_cannot_be_of_blocks_that_are_not_held() -> None:
    cache = BlockCache(filled(DENSE, {0: 1}), Versions.initial(1), l2_distance)
    with pytest.raises(ModelError, match=r"blocks \[3\] … of 'w' are not here"):
        cache.part(ids([0, 3]))


def test_nothing_can_be_given_and_taken() -> None:
    cache = BlockCache(filled(DENSE, {}), Versions.initial(0), l2_distance)
    cache.join(cache.part(ids([])))
    cache.keep(ids([]))
    assert cache.ids.tolist() == []

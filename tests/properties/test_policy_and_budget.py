"""What every policy keeps to: the budget, and its own promise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scarml.checkpoint.budget import BudgetAccount
from scarml.checkpoint.policy import choose
from scarml.checkpoint.selection import Checkpoint, SaveSelector
from scarml.core.block import Field, Table
from scarml.core.rng import stream

SCORES = st.lists(st.one_of(st.sampled_from([0.0, -1.0, np.nan, np.inf, -np.inf, 1.0]), st.floats(0, 9)), min_size=1)
FRACTIONS = st.sampled_from(["1/8", "1/4", "1/3", "1/2", "3/4", "1"])


def moves(rng: np.random.Generator, tables: list[Table]) -> dict[str, np.ndarray]:
    return {t.name: rng.random(t.n_blocks) + 0.1 for t in tables}


@given(SCORES, st.data())
def test_the_choice_is_that_of_a_plain_loop(scores: list[float], data: st.DataObject) -> None:
    n = len(scores)
    sizes = np.array(data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)))
    unit = data.draw(st.sampled_from(["blocks", "bytes"]))
    balance = Fraction(data.draw(st.integers(-10, 60)), data.draw(st.integers(1, 4)))
    wanted = sorted((i for i in range(n) if scores[i] > 0), key=lambda i: (-scores[i], i))
    expected, spent = [], 0
    for i in wanted:
        spent += 1 if unit == "blocks" else int(sizes[i])
        if spent > balance:
            break
        expected.append(i)
    assert choose(np.array(scores), sizes, unit, balance).tolist() == sorted(expected)


@given(
    st.integers(1, 200),
    st.integers(1, 5),
    FRACTIONS,
    st.integers(1, 3),
    st.sampled_from(["priority", "round", "random"]),
)
def test_a_whole_state_is_saved_per_interval(n_blocks: int, more: int, fraction: str, k: int, policy: str) -> None:
    tables = [Table("a", n_blocks, (Field("value"),)), Table("b", more, (Field("value"),))]
    n = n_blocks + more
    interval = k * Fraction(fraction).denominator
    checkpoint = Checkpoint(policy, fraction, interval)
    selector = SaveSelector(checkpoint, tables, seed=1)
    rng = stream(0, n)
    saved = 0
    for iteration in range(1, 3 * interval + 1):
        if not selector.is_due(iteration):
            continue
        selector.earn()
        picked = selector.select(moves(rng, tables))
        n_picked = sum(map(len, picked.values()))
        saved += n_picked
        assert n_picked <= 2 * Fraction(fraction) * n + 1
        for t in tables:
            ids = picked.get(t.name, np.zeros(0, int))
            assert (np.diff(ids) > 0).all()
            assert ((ids >= 0) & (ids < t.n_blocks)).all()
        if iteration % interval == 0:
            expected = int(Fraction(fraction) * n * int(iteration / checkpoint.schedule.period_iters))
            assert abs(saved - expected) <= 1


@given(st.integers(1, 60), FRACTIONS)
def test_round_saves_every_block_before_any_block_twice(n_blocks: int, fraction: str) -> None:
    table = Table("a", n_blocks, (Field("value"),))
    selector = SaveSelector(Checkpoint("round", fraction, 8), [table], seed=0)
    order: list[int] = []
    while len(order) < 3 * n_blocks:
        selector.earn()
        ids = selector.select().get("a", np.zeros(0, int)).tolist()
        at = len(order) % n_blocks
        order += sorted(ids, key=lambda i, at=at: (i - at) % n_blocks)
    assert order[: 3 * n_blocks] == list(range(n_blocks)) * 3


@given(st.integers(1, 60), FRACTIONS, st.integers(1, 5), st.sampled_from(["blocks", "bytes"]))
def test_mfu_is_round_where_all_are_used_equally_often(n_blocks: int, fraction: str, more: int, unit: str) -> None:
    tables = [Table("a", n_blocks, (Field("value"),)), Table("b", more, (Field("value", "float64", (3,)),))]
    mfu, by_turns = (
        SaveSelector(Checkpoint(p, fraction, 8, budget_in=unit), tables, seed=0)  # type: ignore[arg-type]
        for p in ("mfu", "round")
    )
    n_uses = {t.name: np.zeros(t.n_blocks) for t in tables}
    for _ in range(20):
        mfu.earn()
        by_turns.earn()
        n_uses = {name: n + 3 for name, n in n_uses.items()}
        chosen, in_turn = mfu.select(n_uses=n_uses), by_turns.select()
        assert {n: ids.tolist() for n, ids in chosen.items()} == {n: ids.tolist() for n, ids in in_turn.items()}
        for name, ids in chosen.items():
            n_uses[name][ids] = 0


def test_random_is_uniform() -> None:
    table = Table("a", 20, (Field("value"),))
    selector = SaveSelector(Checkpoint("random", "1/4", 4), [table], seed=0)
    count = np.zeros(20)
    n_saves = 1000
    for _ in range(n_saves):
        selector.earn()
        ids = selector.select()["a"]
        assert len(ids) == 5
        count[ids] += 1
    expected = n_saves / 4
    chi_squared = ((count - expected) ** 2 / (expected * (1 - 1 / 4))).sum() * (19 / 20)
    assert chi_squared < 43.8  # 99.9 % of 19 degrees of freedom


@given(st.integers(1, 100), st.integers(1, 100), st.lists(st.integers(0, 30), max_size=30))
def test_a_balance_is_never_more_than_two_shares_nor_spent_twice(share: int, largest: int, spends: list[int]) -> None:
    account = BudgetAccount(Fraction(share, 7), largest)
    earned, spent = Fraction(0), Fraction(0)
    for wish in spends:
        account = account.earn()
        earned += account.share
        amount = min(wish, int(account.balance))
        account = account.spend(amount)
        spent += amount
        assert 0 <= account.balance <= account.share + max(account.share, largest)
        assert spent + account.balance <= earned


@given(st.integers(1, 40), st.integers(0, 10**6), st.integers(1, 30))
def test_bytes_saved_follow_the_budget_however_blocks_differ(n_blocks: int, seed: int, n_saves: int) -> None:
    rng = stream(seed, "sizes")
    lengths = rng.integers(0, 50, n_blocks)
    table = Table("docs", n_blocks, (Field("value", "uint8", ragged=True),), lengths=lengths)
    selector = SaveSelector(Checkpoint(fraction="1/4", interval_iters=4, budget_in="bytes"), [table], seed=0)
    share, largest = Fraction(int(lengths.sum()), 4), int(lengths.max())
    total = 0
    for n in range(1, n_saves + 1):
        selector.earn()
        ids = selector.select(moves(rng, [table])).get("docs", np.zeros(0, int))
        total += int(lengths[ids].sum())
        assert total <= share * n
        assert total >= share * n - largest, "something of the budget was forfeited"

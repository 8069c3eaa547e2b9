"""The library as its users call it: a loop that is stopped, killed, resumed, and loses rows."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.running_checkpoint.loops import Sgd, bits, copy_of

import scarml as scar
from scarml.checkpoint.block_cache import BlockCache
from scarml.errors import ModelError, RecoveryError, RunExistsError, RunInUseError, SupersededError, UsageError
from scarml.storage.memory import MemoryStore
from scarml.storage.run_folder import RunFolder


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def numbered(n: int = 16, d: int = 2) -> np.ndarray:
    return np.zeros((n, d)) + np.arange(n)[:, None]


class CrashError(Exception):
    """Ends a loop as a defect of the user's own would."""


# ------------------------------------------------------------------------------------------------ stopping and going on
@pytest.mark.parametrize("settings", [{}, {"scoring": "background"}, {"policy": "full"}, {"policy": "round"}], ids=str)
@pytest.mark.parametrize("with_touched", [False, True])
def test_a_loop_that_ended_and_goes_on_is_bit_identical(
    store: MemoryStore, settings: dict[str, Any], with_touched: bool
) -> None:
    unbroken, first, second = Sgd(), Sgd(), Sgd()
    for _ in range(40):
        unbroken.step()
    assert first.run(store, 13, with_touched=with_touched, **settings) == 0
    assert second.run(store, 40, with_touched=with_touched, **settings) == 13
    assert bits(second.W, second.m) == bits(unbroken.W, unbroken.m)
    assert second.rng.bit_generator.state == unbroken.rng.bit_generator.state


def test_a_loop_goes_on_in_a_folder(tmp_path: Path) -> None:
    assert Sgd().run(tmp_path / "run", 5) == 0
    again = Sgd()
    assert again.run(tmp_path / "run", 5) == 5
    assert bits(scar.load(tmp_path / "run")["W"]["value"]) == bits(again.W)


@pytest.mark.parametrize("encoding", ["bfloat16", "int8", "float32"])
def test_narrow_encodings_round_during_the_run_but_not_at_its_end(store: MemoryStore, encoding: str) -> None:
    first, second = Sgd(), Sgd()
    first.run(store, 9, encodings={"W": {"value": encoding}})
    second.run(store, 9, encodings={"W": {"value": encoding}})
    assert bits(second.W, second.m) == bits(first.W, first.m)


def test_after_a_crash_every_row_is_one_that_was_there(store: MemoryStore) -> None:
    W = numbered()
    with scar.RunningCheckpoint(store, {"W": W}, resume="auto", fraction="1/4", interval=4) as ckpt:
        ckpt.restore()
        for k in range(1, 12):
            W += 1000.0  # a row says how many iterations it has seen
            ckpt.save(k)
            ckpt.wait()
        dead = copy_of(store)
    restored = np.full_like(W, -1)
    with scar.RunningCheckpoint(dead, {"W": restored}, resume="must") as ckpt:
        assert ckpt.restore() == 11
        found = ckpt.last_restore
        assert found is not None
        assert (found.restored, found.kept, found.newest, found.damaged) == (16, 0, 11, ())
        assert 11 - found.oldest <= 4, "equal rows take turns"
    iterations = (restored - numbered()) / 1000
    assert (iterations == iterations[:, :1]).all(), "no row is torn"
    assert set(iterations[:, 0]) <= set(range(12))
    assert int(iterations.min()) == found.oldest


def test_what_is_stored_is_what_was_staged_however_the_arrays_change(store: MemoryStore) -> None:
    W = np.zeros((64, 512))
    is_over = threading.Event()

    def hammer() -> None:
        while not is_over.is_set():
            np.add(W, 0.5, out=W)

    with scar.RunningCheckpoint(store, {"W": W}, policy="round", fraction="1/2", interval=2, resume="auto") as ckpt:
        ckpt.restore()
        for k in range(1, 20):
            W[...] = k
            ckpt.save(k)
            thread = threading.Thread(target=hammer)
            thread.start()
            ckpt.wait()
            is_over.set()
            thread.join()
            is_over.clear()
        dead = copy_of(store)
    rows = scar.load(dead)["W"]["value"]
    assert (rows == rows[:, :1]).all()
    assert set(rows[:, 0]) == {18, 19}


def test_leaving_by_an_exception_saves_nothing_more(store: MemoryStore) -> None:
    W = numbered()
    before = W.copy()

    def crash_in_the_loop() -> None:
        with scar.RunningCheckpoint(store, {"W": W}, resume="auto", fraction=1, interval=8) as ckpt:
            ckpt.restore()
            W[...] = -1
            ckpt.save(1)  # not due
            raise CrashError

    with pytest.raises(CrashError):
        crash_in_the_loop()
    assert bits(scar.load(store)["W"]["value"]) == bits(before)


def test_leaving_without_a_save_stores_nothing(store: MemoryStore) -> None:
    Sgd().run(store, 4)
    loop = Sgd()
    n_objects = len(store.list("segments/"))
    with scar.RunningCheckpoint(store, loop.tables, resume="must") as ckpt:
        ckpt.restore()
        loop.W += 1
    assert len(store.list("segments/")) == n_objects


def test_going_back_in_the_same_run(store: MemoryStore) -> None:
    W = numbered()
    with scar.RunningCheckpoint(store, {"W": W}, resume="auto", fraction=1, interval=1) as ckpt:
        ckpt.restore()
        for k in (1, 2, 3):
            W += 1000
            ckpt.save(k)
            ckpt.wait()
        good = W.copy()
        W[...] = np.nan
        ckpt.save(4)
        assert ckpt.restore() == 3, "rows that are not finite are never saved over finite ones"
        assert bits(W) == bits(good)
        W += 1
        assert ckpt.save(4).n_blocks == 16
    assert bits(scar.load(store)["W"]["value"]) == bits(W)


# --------------------------------------------------------------------------------------------------- when, and how much
def test_a_save_falls_due_for_loops_that_call_rarely(store: MemoryStore) -> None:
    W = numbered()
    with scar.RunningCheckpoint(store, {"W": W}, resume="auto", fraction="1/4", interval=16) as ckpt:
        ckpt.restore()
        outcomes = []
        for k in (1, 3, 4, 4, 10, 11, 40):
            W += 1
            report = ckpt.save(k)
            outcomes.append((k, report.outcome, report.n_blocks))
            ckpt.wait()
    assert outcomes == [
        (1, "not-due", 0),
        (3, "not-due", 0),
        (4, "staged", 4),
        (4, "not-due", 0),  # the same iteration: nothing falls due again
        (10, "staged", 4),
        (11, "not-due", 0),
        (40, "staged", 8),  # several fell due: twice the share at most
    ]


def test_a_save_while_one_is_in_flight_is_skipped_and_its_budget_carried() -> None:
    store = _Gated()
    W = numbered()
    with scar.RunningCheckpoint(store, {"W": W}, resume="auto") as ckpt:
        ckpt.restore()
        store.gate.clear()
        W += 1
        assert (ckpt.save(1).outcome, ckpt.save(2).outcome, ckpt.save(3).outcome) == ("staged", "skipped", "skipped")
        assert ckpt.status().save_in_flight
        store.gate.set()
        ckpt.wait()
        assert ckpt.save(4).n_blocks == 4
        ckpt.wait()
        status = ckpt.status()
        assert (status.n_skipped, status.n_saves, status.save_in_flight) == (2, 3, False)


class _Gated(MemoryStore):
    """Segments wait at a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def put(self, name: str, chunks: Any) -> None:
        if name.startswith("segments/"):
            assert self.gate.wait(20)
        super().put(name, chunks)


def test_everything_is_durable_when_the_call_returns(store: MemoryStore) -> None:
    W = numbered()
    with scar.RunningCheckpoint(store, {"W": W}, resume="auto") as ckpt:
        ckpt.restore()
        W[3] += 1
        W[8] += 1
        report = ckpt.save(1, everything=True)
        assert (report.outcome, report.saved["W"].tolist()) == ("durable", [3, 8])
        assert bits(scar.load(copy_of(store))["W"]["value"]) == bits(W)
        W[4] += 1
        assert ckpt.save(1, everything=True).saved["W"].tolist() == [4], "the same iteration: blocks are added"
        assert bits(scar.load(copy_of(store))["W"]["value"]) == bits(W)


def test_only_touched_rows_are_measured(store: MemoryStore) -> None:
    W = numbered()
    with scar.RunningCheckpoint(store, {"W": W}, resume="auto", fraction="1/4", interval=8) as ckpt:
        ckpt.restore()
        W[[2, 9]] += 1
        W[5] += 100  # not named
        assert ckpt.save(1, touched={"W": [9]}).outcome == "not-due"
        assert ckpt.save(2, touched={"W": np.arange(16) == 2}).saved["W"].tolist() == [2, 9], "accumulated"
        ckpt.wait()
        W[2] += 1
        assert ckpt.save(4, touched={"W": []}).outcome == "nothing-changed"
        assert ckpt.save(6).saved["W"].tolist() == [2, 5], "everything, if nothing is named"
        ckpt.wait()


def test_a_table_that_is_not_named_may_have_changed(store: MemoryStore) -> None:
    W, b = numbered(), np.zeros(4, np.float32)
    with scar.RunningCheckpoint(store, {"W": W, "b": b}, resume="auto", fraction="1/2", interval=2) as ckpt:
        ckpt.restore()
        W[3] += 1
        b[1] += 1
        assert {n: i.tolist() for n, i in ckpt.save(1, touched={"W": [3, 3]}).saved.items()} == {"W": [3], "b": [1]}


def test_scores_in_the_background_choose_the_rows_that_moved(store: MemoryStore) -> None:
    W = numbered()
    settings: dict[str, Any] = {"scoring": "background", "fraction": "1/4", "interval": 4}
    with scar.RunningCheckpoint(store, {"W": W}, resume="auto", **settings) as ckpt:
        ckpt.restore()
        W[[1, 7, 9]] += [[3], [2], [1]]
        assert ckpt.save(1).outcome == "nothing-changed", "nothing has been measured yet"
        ckpt.wait()
        ckpt.wait_for_scores()
        report = ckpt.save(2)
        assert report.saved["W"].tolist() == [1, 7, 9]
        ckpt.wait()
        dead = copy_of(store)
    assert bits(scar.load(dead)["W"]["value"]) == bits(W)


# ---------------------------------------------------------------------------------------------------------- losing rows
def test_recover_fills_in_only_the_lost_rows(store: MemoryStore) -> None:
    W, v = numbered(), numbered() * 2
    with scar.RunningCheckpoint(
        store, {"W": scar.rows(W, v=v)}, resume="auto", policy="round", fraction="1/2", interval=2
    ) as ckpt:
        ckpt.restore()
        for k in (1, 2, 3):
            W += 1
            ckpt.save(k)
            ckpt.wait()
        before, v_before = W.copy(), v.copy()
        durable = scar.load(copy_of(store))["W"]["value"]
        report = ckpt.recover({"W": [9, 0]})
        assert (report.restored, report.oldest, report.newest) == (2, 2, 3)
        assert bits(W[[0, 9]]) == bits(durable[[0, 9]])
        kept = np.delete(np.arange(16), [0, 9])
        assert bits(W[kept], v) == bits(before[kept], v_before)
        assert report.perturbation == pytest.approx(np.linalg.norm(durable[[0, 9]] - before[[0, 9]]))
        W[[1, 2]] = np.nan
        assert ckpt.recover({"W": [1, 2]}).perturbation is None
        assert bits(W[[1, 2]]) == bits(durable[[1, 2]])
        assert ckpt.save(4).n_blocks == 8
    W[3] = np.inf
    ckpt.recover({"W": [3]})
    assert W[3, 0] == 3 + 3, "also after the with block"


def test_rows_that_were_never_finite_cannot_be_recovered(store: MemoryStore) -> None:
    W = numbered()
    W[5] = np.nan
    told = pytest.warns(RuntimeWarning, match="blocks with NaN, .* or too large for their encoding")
    with told, scar.RunningCheckpoint(store, {"W": W}, resume="auto") as ckpt:
        ckpt.restore()
        before = W.copy()
        with pytest.raises(RecoveryError, match=r"no value of 1 of the lost blocks of table 'W', such as \[5\]"):
            ckpt.recover({"W": [4, 5]})
        assert bits(W) == bits(before)
    W2 = numbered()
    with scar.RunningCheckpoint(store, {"W": W2}, resume="auto") as ckpt:
        ckpt.restore()
        found = ckpt.last_restore
        assert found is not None
        assert (found.restored, found.kept) == (15, 1)
        assert W2[5, 0] == 5, "it keeps what the array held"
        ckpt.save(1)
    assert bits(scar.load(store)["W"]["value"]) == bits(W2)


def test_rows_beyond_their_encoding_are_told_of_once_and_saved_at_the_end(store: MemoryStore) -> None:
    W = numbered()
    with scar.RunningCheckpoint(store, {"W": W}, encodings="narrow", fraction="1/4", interval=4) as ckpt:
        ckpt.restore()
        W += 1
        W[3] = 3.4e38  # multiples of a power of two end at 3.376e38
        with pytest.warns(RuntimeWarning, match="1 in this save"):
            ckpt.save(1)
        ckpt.wait()
        W += 1
        ckpt.save(2)
        ckpt.wait()
        assert scar.load(store)["W"]["value"][3].max() < 3e38
    assert bits(scar.load(store)["W"]["value"]) == bits(W)


def test_integers_beyond_their_encoding_end_training(store: MemoryStore) -> None:
    n = np.zeros(8, np.int64)

    def count_to_nine() -> None:
        with scar.RunningCheckpoint(store, {"n": n}, encodings={"n": {"value": "packed-3"}}) as ckpt:
            ckpt.restore()
            for k in range(1, 10):
                n[2] += 1
                ckpt.save(k)
                ckpt.wait()

    with pytest.raises(ModelError, match="field 'value' of table 'n': values from 8 to 8 cannot be stored as packed-3"):
        count_to_nine()
    assert scar.load(store)["n"]["value"].tolist() == [0, 0, 7, 0, 0, 0, 0, 0]


# ----------------------------------------------------------------------------------------------------- what is not done
def test_calls_in_the_wrong_order_are_refused(store: MemoryStore) -> None:
    W = numbered()
    ckpt = scar.RunningCheckpoint(store, {"W": W})
    for call in (ckpt.restore, lambda: ckpt.save(1), ckpt.wait):
        with pytest.raises(UsageError, match="use the RunningCheckpoint in a with statement"):
            call()
    with pytest.raises(UsageError, match=r"call restore\(\) first"):
        ckpt.recover({"W": [1]})
    with ckpt:
        with pytest.raises(UsageError, match=r"save\(\) came before restore\(\)"):
            ckpt.save(1)
        with pytest.raises(UsageError, match=r"no status before restore\(\)"):
            ckpt.status()
        ckpt.restore()
        ckpt.save(5)
        with pytest.raises(UsageError, match=r"save\(4\) came after iteration 5; iterations only grow"):
            ckpt.save(4)
        with pytest.raises(TypeError):
            ckpt.save(5.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="can be entered once"):
        ckpt.__enter__()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"policy": "best"}, "--policy 'best' is unknown"),
        ({"fraction": "1/16"}, "asks for a save every 1/2 iterations"),
        ({"policy": "full", "fraction": "1/2"}, "--policy full saves everything, but --fraction is 1/2"),
        ({"resume": "yes"}, "resume is 'yes'; choose one of auto, must, never"),
        ({"scoring": "none"}, "scoring is 'none'; choose one of exact, background"),
        ({"on_error": "stop"}, "on_error is 'stop'; choose one of warn, raise"),
        ({"encodings": {"V": {}}}, r"there is no table 'V' to encode; there are \['W'\]"),
        ({"encodings": None}, "--encode None is unknown; choose the name of an encoding, or a dict by table"),
        ({"encodings": {"W": {"value": "packed-4"}}}, "cannot be stored as packed-4: it is for integers"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        scar.RunningCheckpoint(MemoryStore(), {"W": numbered()}, **settings)
    with pytest.raises(UsageError, match="no tables"):
        scar.RunningCheckpoint(MemoryStore(), {})
    with pytest.raises(UsageError, match="tables is ndarray; expected a dict of them by name"):
        scar.RunningCheckpoint(MemoryStore(), numbered())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("touched", "sentence"),
    [
        ({"V": [1]}, "touched names the table 'V'; there are 'W'"),
        ({"W": [3, 16]}, "table 'W' has no block 16; expected ids from 0 to 15"),
        ({"W": [-1]}, "table 'W' has no block -1"),
        ({"W": np.array([1 << 63], np.uint64)}, "table 'W' has no block 9223372036854775808"),
        ({"W": [0.5]}, "the ids of table 'W' are float64"),
        ({"W": [[1], [2, 3]]}, "the ids of table 'W' are object of shape"),
        ([1, 2], "touched is list; expected a dict by table, such as {'W': …}"),
        ("W", "touched is str; expected a dict by table, such as {'W': …}"),
    ],
)
def test_touched_rows_must_be_there(store: MemoryStore, touched: dict[str, Any], sentence: str) -> None:
    with scar.RunningCheckpoint(store, {"W": numbered()}) as ckpt:
        ckpt.restore()
        with pytest.raises(UsageError, match=sentence):
            ckpt.save(1, touched=touched)
        with pytest.raises(UsageError, match=sentence.replace("touched", "lost")):
            ckpt.recover(touched)
        with pytest.raises(UsageError, match="block 2 of table 'W' is given twice"):
            ckpt.recover({"W": [2, 0, 2]})


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ({"W": np.zeros((17, 2))}, r"table 'W' is 16 blocks of value float64\[2\] in .*; given was 17 blocks"),
        ({"W": np.zeros((16, 2), np.float32)}, r"given was 16 blocks of value float32\[2\]"),
        ({"W": scar.rows(numbered(), m=numbered())}, r"given was 16 blocks of value float64\[2\], m float64\[2\]"),
        ({"V": numbered()}, "table 'V' is not there in"),
        ({"W": numbered(), "V": numbered()}, "table 'V' is not there in"),
    ],
)
def test_a_run_of_other_tables_is_refused(store: MemoryStore, tables: dict[str, Any], sentence: str) -> None:
    with scar.RunningCheckpoint(store, {"W": numbered()}) as ckpt:
        ckpt.restore()
    n_objects = len(store.list())
    with pytest.raises(UsageError, match=sentence), scar.RunningCheckpoint(store, tables, resume="auto"):
        pass
    assert len(store.list()) == n_objects


def test_ragged_tables_of_other_lengths_are_refused(store: MemoryStore) -> None:
    values = np.arange(6)
    with scar.RunningCheckpoint(store, {"docs": scar.ragged(values, [3, 1, 2])}) as ckpt:
        ckpt.restore()
    other = {"docs": scar.ragged(values, [1, 3, 2])}
    with (
        pytest.raises(UsageError, match="with lengths of checksum"),
        scar.RunningCheckpoint(store, other, resume="auto"),
    ):
        pass


def test_folders_that_may_not_be_used(store: MemoryStore) -> None:
    tables = {"W": numbered()}
    with pytest.raises(UsageError, match="there is no run in"), scar.RunningCheckpoint(store, tables, resume="must"):
        pass
    with scar.RunningCheckpoint(store, tables) as ckpt:
        ckpt.restore()
        with (
            pytest.raises(RunInUseError, match="is in use by process"),
            scar.RunningCheckpoint(store, tables, resume="auto"),
        ):
            pass
    with pytest.raises(RunExistsError, match='continue it with resume="auto"'), scar.RunningCheckpoint(store, tables):
        pass
    other = MemoryStore()
    RunFolder.create(other, {"model": "mlr"})
    with pytest.raises(UsageError, match="was not made by"), scar.RunningCheckpoint(other, tables, resume="auto"):
        pass


def test_a_loop_whose_run_was_taken_over_stops(store: MemoryStore) -> None:
    W = numbered()

    def be_taken_over() -> None:
        with scar.RunningCheckpoint(store, {"W": W}, resume="auto") as ckpt:
            ckpt.restore()
            RunFolder.open(store).claim_term("parent")  # as one that did not wait would
            W[...] += 1
            ckpt.save(1)
            with pytest.raises(SupersededError):
                ckpt.wait()
            ckpt.save(2)

    with pytest.raises(SupersededError, match="another process has taken the run over"):
        be_taken_over()
    assert bits(scar.load(store)["W"]["value"]) == bits(numbered())


def test_a_start_that_died_before_x0_was_saved_begins_anew(store: MemoryStore) -> None:
    with scar.RunningCheckpoint(store, {"W": numbered()}, resume="auto"):
        pass
    with pytest.raises(UsageError, match="has not saved anything yet"):
        scar.load(store)
    with scar.RunningCheckpoint(store, {"W": numbered()}, resume="auto") as ckpt:
        assert ckpt.restore() == 0
        assert ckpt.last_restore is not None
        assert ckpt.last_restore.is_new
    assert bits(scar.load(store)["W"]["value"]) == bits(numbered())


# -------------------------------------------------------------------------------------------------------- cut short
@pytest.mark.parametrize("where", ["score", "stage"])
def test_a_save_that_an_exception_cut_short_does_not_hang_and_is_not_relied_on(
    store: MemoryStore, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    W = numbered()

    def cut_short(*_: object) -> None:
        raise KeyboardInterrupt  # as a signal does, at any moment

    def swallow_it() -> None:
        with scar.RunningCheckpoint(store, {"W": W}, resume="auto") as ckpt:
            ckpt.restore()
            W[...] += 1
            with monkeypatch.context() as patched:
                patched.setattr(BlockCache, where, cut_short)
                with pytest.raises(KeyboardInterrupt):
                    ckpt.save(1)
            with pytest.raises(UsageError, match="KeyboardInterrupt cut a save short"):
                ckpt.save(2)

    with pytest.raises(UsageError, match="go on with a new RunningCheckpoint"):
        swallow_it()
    assert bits(scar.load(store)["W"]["value"]) == bits(numbered())


def test_the_end_after_going_back_stores_nothing_of_before(store: MemoryStore) -> None:
    W, state = numbered(), {"k": 0}
    with scar.RunningCheckpoint(store, {"W": W}, resume="auto", fraction=1, interval=2) as ckpt:
        ckpt.restore(extra=state)
        for k in (1, 2, 3):
            W += 1
            ckpt.save(k, extra={"k": k})
            ckpt.wait()
        assert ckpt.restore(extra=state) == 2
    with scar.RunningCheckpoint(store, {"W": W}, resume="auto") as ckpt:
        assert ckpt.restore(extra=state) == 2
        assert state == {"k": 2}

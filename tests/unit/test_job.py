"""The runtime's front door: its arguments, the folder, signals, and what it gives back."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scarml as scar
from scarml.core.model import Shard
from scarml.data.registry import load
from scarml.engine.fault_plan import Kill
from scarml.errors import RunInUseError, UsageError
from scarml.storage.faulty import FaultyStore
from scarml.storage.local import LocalStore
from scarml.storage.memory import MemoryStore
from scarml.storage.rollback import roll_back
from scarml.storage.run_folder import RunFolder
from scarml.testing import tiny_problem

FIVE = scar.Stop(max_iters=5)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"servers": 0}, "--servers is 0; expected at least 1"),
        ({"workers": -1}, "--workers is -1; expected at least 1"),
        ({"shards": 0}, "--shards is 0; expected at least 1"),
        ({"threads": 0}, "--threads is 0; expected at least 1"),
        ({"servers": 10**20}, "--servers is 100000000000000000000; expected at most 10,000"),
        ({"workers": 10_001}, "--workers is 10001; expected at most 10,000"),
        ({"shards": 10**20}, "; expected at most 1,000,000"),
        ({"threads": 10**20}, "; expected at most 1,000"),
        ({"resume": "maybe"}, "--resume 'maybe' is unknown; choose auto, must or never"),
        ({"resume": "must"}, "--resume must needs a run folder to resume; name it with --run"),
        ({"checkpoint": "general"}, "checkpoint is .general.; expected scar.Checkpoint"),
        ({"fail_rate": 1}, "--fail-rate is 1; expected a probability per iteration"),
        ({"run": "x", "store": MemoryStore()}, "run and store both say where to save"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        scar.Job(scar.QP(), **settings)


def test_what_comes_of_a_run() -> None:
    model, data = tiny_problem("mlr")
    job = scar.Job(model, data, stop=scar.Stop(max_iters=6, eval_every_iters=2), kills=[Kill.parse("servers:2@3")])
    result = job.run()
    assert (result.outcome, result.converged, result.saved) == ("max-iters", False, True)
    assert (result.iteration, result.iterations) == (6, 6)
    assert [k for k, _ in result.losses] == [0, 2, 4, 6]
    assert [f["iteration"] for f in result.failures] == [3, 3]
    assert result.recoveries[0]["seconds"] > 0
    assert result.bytes_saved > 0
    assert result.stored_bytes > result.bytes_saved
    assert result.n_saves > 0
    assert result.resumed_from is None
    assert job.unfired_kills == []
    as_json = json.loads(json.dumps(result.to_json()))
    assert as_json["schema_version"] == 1
    assert as_json["digest"] == result.digest
    assert len(as_json["losses"]) == 4


def test_a_criterion_per_example() -> None:
    model, data = tiny_problem("mlr")
    losses = scar.Job(model, data, stop=FIVE).run().losses
    n_examples = len(data.labels)
    between = (losses[2][1] + losses[3][1]) / 2
    result = scar.Job(model, data, loss_mean_below=between / n_examples, stop=FIVE).run()
    assert (result.outcome, result.iteration) == ("converged", 3)


def test_kills_that_found_nobody_are_named() -> None:
    kills = [Kill.parse("server-3@2"), Kill.parse("server-3@3"), Kill.parse("servers:1@99")]
    job = scar.Job(scar.QP(), stop=FIVE, kills=kills)
    job.run()
    assert job.unfired_kills == kills[1:]


@pytest.mark.parametrize(
    ("kill", "sentence"),
    [
        ("server-4@2", "--kill server-4@2: there are server-0 to server-3"),
        ("worker-2@2", "--kill worker-2@2: there are worker-0 to worker-1"),
        ("servers:5@2", "--kill servers:5@2: there are 4 servers"),
        ("servers:1@0", r"--kill on x\(0\): nodes can be lost on x\(1\) at the earliest"),
    ],
)
def test_kills_that_cannot_happen_are_refused(kill: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        scar.Job(scar.QP(), kills=[Kill.parse(kill)])


def test_bytes_saved_by_a_full_save_are_those_of_the_state() -> None:
    model, data = tiny_problem("adam")
    result = scar.Job(model, data, stop=scar.Stop(max_iters=1), checkpoint=scar.Checkpoint("full", 1, 1)).run()
    assert result.bytes_saved == result.n_saves * model.tables(data)[0].block_bytes.sum()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_at_a_boundary_with_all_saved_and_resuming_goes_on(number: signal.Signals) -> None:
    model, data = tiny_problem("lda")
    store = MemoryStore()

    def on_event(record: scar.Record) -> None:
        if record.name == "iteration_committed" and record["iteration"] == 3:
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    result = scar.Job(model, data, store=store, on_event=on_event, handle_signals=True).run()
    assert signal.getsignal(number) is before
    assert (result.outcome, result.saved) == ("stopped", True)
    assert result.reason == f"signal {number.name}"
    assert result.iteration >= 3
    n = result.iteration + 2
    again = scar.Job(model, data, store=store, resume="must", stop=scar.Stop(max_iters=n)).run()
    assert again.digest == scar.Job(model, data, stop=scar.Stop(max_iters=n)).run().digest


def test_saved_values_that_are_gone_are_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, data = tiny_problem("mlr")
    scar.Job(model, data, run=tmp_path, stop=FIVE).run()
    for segment in (tmp_path / "segments").iterdir():
        segment.unlink()
    result = scar.Job(model, data, run=tmp_path, stop=FIVE, resume="must").run()
    assert result.resumed_from is None
    assert "values in" in caplog.text
    assert "are of x(0), but its event log tells of a save of x(5)" in caplog.text
    caplog.clear()
    scar.Job(model, data, run=tmp_path, stop=FIVE, resume="must").run()
    assert not caplog.text, "told once"


@pytest.mark.parametrize("damage", [b'{"event":"iteration_committed"}', b'{"event":"save_committed","iteration":"x"}'])
def test_a_damaged_event_log_does_not_stop_a_resume(tmp_path: Path, damage: bytes) -> None:
    scar.Job(scar.QP(), run=tmp_path, stop=FIVE).run()
    next((tmp_path / "events").iterdir()).write_bytes(damage)
    assert scar.Job(scar.QP(), run=tmp_path, stop=FIVE, resume="must").run().iteration == 5


@dataclass(frozen=True)
class Shaped(scar.QP):
    """A model with a parameter that JSON knows under another type, and one that it does not know."""

    sizes: tuple[int, ...] = (3, 4)
    place: Path = Path("somewhere")


def test_settings_survive_being_stored() -> None:
    store = MemoryStore()
    scar.Job(Shaped(), store=store, stop=FIVE).run()
    assert scar.Job(Shaped(), store=store, stop=FIVE, resume="must").run().iterations == 5
    with pytest.raises(UsageError, match=r"has hyper-parameter sizes \[3, 4\], this command has \[3, 5\]"):
        scar.Job(Shaped(sizes=(3, 5)), store=store, stop=FIVE, resume="must").run()


def test_data_of_another_shape_is_refused() -> None:
    store, (model, data) = MemoryStore(), tiny_problem("mlr")
    scar.Job(model, data, store=store, stop=FIVE).run()
    fewer = dataclasses.replace(data, features=data.features[:, :3])
    stored, given = (f"{d.n_features} blocks of value float32 [{d.n_classes}]" for d in (data, fewer))
    with pytest.raises(UsageError, match=re.escape(f"has table W: {stored}, this command has {given}; give the same")):
        scar.Job(model, fewer, store=store, stop=FIVE, resume="must").run()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    in_use = LocalStore(str(tmp_path / "run"))
    scar.Job(scar.QP(), run=tmp_path / "run", stop=FIVE).run()
    lock = in_use.lock("owner.lock", "process 1 on elsewhere")
    assert lock is not None
    with pytest.raises(RunInUseError, match="is in use by process 1 on elsewhere"):
        scar.Job(scar.QP(), run=tmp_path / "run", resume="auto").run()
    lock.release()
    assert scar.Job(scar.QP(), run=tmp_path / "run", resume="auto", stop=FIVE).run().iterations == 5


@pytest.mark.parametrize("seldom", [True, False])
def test_a_run_that_is_taken_over_ends(seldom: bool) -> None:
    """Whether a save finds out, or a beat of the owner between saves that are far apart."""
    model, data = tiny_problem("mlr")
    store = MemoryStore()

    def on_event(record: scar.Record) -> None:
        if record.name == "iteration_committed" and record["iteration"] == 3:
            RunFolder.open(store).claim_term("parent")
            if seldom:
                job._give_up("term 1 was superseded")

    checkpoint = scar.Checkpoint(interval_iters=1000, fraction="1/2") if seldom else None
    job = scar.Job(model, data, store=store, on_event=on_event, checkpoint=checkpoint)
    result = job.run()
    assert (result.outcome, result.saved) == ("superseded", False)
    assert "term 1" in result.reason
    again = scar.Job(model, data, store=store, resume="auto", stop=scar.Stop(max_iters=9)).run()
    assert (again.outcome, again.saved) == ("max-iters", True)


def test_of_two_first_starts_in_one_folder_the_slower_goes_on_with_what_the_faster_made() -> None:
    class Racing(MemoryStore):
        rival: scar.Job | None = None

        def create(self, name: str, chunks: Any) -> None:
            rival, self.rival = self.rival, None
            if rival is not None:
                assert rival.run().iterations == 5
            super().create(name, chunks)

    store = Racing()
    store.rival = scar.Job(scar.QP(), store=store, stop=FIVE)
    assert scar.Job(scar.QP(), store=store, resume="auto", stop=scar.Stop(max_iters=7)).run().iterations == 7


def test_a_folder_is_not_used_for_a_second_run(tmp_path: Path) -> None:
    scar.Job(scar.QP(), run=tmp_path / "run", stop=FIVE).run()
    before = sorted((tmp_path / "run").rglob("*"))
    with pytest.raises(UsageError, match="has a run in it; continue it with --resume auto"):
        scar.Job(scar.QP(), run=tmp_path / "run", stop=FIVE).run()
    with pytest.raises(UsageError, match="has seed 0, this command has 1"):
        scar.Job(scar.QP(), run=tmp_path / "run", stop=FIVE, seed=1, resume="auto").run()
    assert sorted((tmp_path / "run").rglob("*")) == before


def test_the_event_log_is_the_history(tmp_path: Path) -> None:
    records: list[scar.Record] = []
    scar.Job(scar.QP(), run=tmp_path / "run", stop=FIVE, on_event=records.append).run()
    lines = [json.loads(t) for f in sorted((tmp_path / "run" / "events").iterdir()) for t in f.read_text().splitlines()]
    assert [e["event"] for e in lines] == [r.name for r in records]


def test_an_error_of_the_users_hook_ends_the_run_with_it() -> None:
    def on_event(record: scar.Record) -> None:
        if record.name == "iteration_committed":
            raise RuntimeError("my hook")

    with pytest.raises(RuntimeError, match="my hook"):
        scar.Job(scar.QP(), stop=FIVE, on_event=on_event).run()


def test_a_killed_run_says_where_it_goes_on_from() -> None:
    """The process dies: nothing is saved at the end."""
    model, data = tiny_problem("mf")
    store = MemoryStore()
    committed = [0]

    def on_event(record: scar.Record) -> None:
        if record.name == "iteration_committed":
            committed.append(record["iteration"])
        if record.name == "save_committed" and record["iteration"] >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scar.Job(model, data, store=store, on_event=on_event).run()
    end = committed[-1] + 5
    result = scar.Job(model, data, store=FaultyStore(store), resume="auto", stop=scar.Stop(max_iters=end)).run()
    assert result.resumed_from is not None
    assert 4 <= result.resumed_from["iteration"] <= committed[-1]
    assert result.resumed_from["oldest"] <= result.resumed_from["newest"] <= result.resumed_from["iteration"]
    assert (result.outcome, result.saved, result.iteration) == ("max-iters", True, end)


def test_more_shards_than_there_is_data_for() -> None:
    model, data = tiny_problem("mlr")
    result = scar.Job(model, data, shards=90, stop=FIVE, kills=[Kill.parse("workers:1@2")]).run()
    assert result.outcome == "max-iters"
    shards: list[Shard] = list(model.shards(data, 90))
    assert sum(s.n_examples for s in shards) == len(data.labels)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"metrics_every": 0}, "--metrics-every is 0; expected at least 1"),
        ({"metrics_every": 1}, "and none is given; hold out a share of it with --held-out 0.1"),
        ({"held_out": 0.0}, "the held-out share is 0.0; expected a number above 0 and below 1"),
        ({"held_out": 1.5}, "the held-out share is 1.5"),
        ({"held_out": 0.001}, "a share of 0.001 of 50 examples leaves nothing to train on, or nothing to judge by"),
        ({"held_out": "test"}, "only data sets with a name have a test part"),
        ({"held_out": 0.5, "stop": scar.Stop(patience=1, metric="f1")}, "the model has cross_entropy, accuracy"),
    ],
)
def test_held_out_data_that_cannot_be_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        scar.Job(*tiny_problem("mlr"), **settings)


def test_a_model_without_metrics_says_so() -> None:
    with pytest.raises(UsageError, match=r"QP has no held-out metrics; see Model\.metrics"):
        scar.Job(scar.QP(), metrics_every=5)


def test_a_data_set_with_a_test_part_is_judged_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    test = load("mnist-10k").take(np.arange(50))
    monkeypatch.setattr("scarml.data.held_out.load_test", lambda name: test)
    monkeypatch.setattr("scarml.job.has_test", lambda name: True)
    monkeypatch.setattr("scarml.data.held_out.load", lambda name: load(name).take(np.arange(200)))
    job = scar.Job(scar.MLR(), "mnist-10k", stop=scar.Stop(max_iters=1), metrics_every=1)
    plain = scar.Job(scar.MLR(), "mnist-10k", stop=scar.Stop(max_iters=1)).run()
    result = job.run()
    assert result.digest == plain.digest
    zeros = [k for k, values in result.metrics if values["accuracy"] == (test.labels == 0).mean()]
    assert zeros[0] == 0, "W = 0 takes everything for the first class"


def test_a_run_goes_on_with_the_same_held_out_data_only() -> None:
    model, data = tiny_problem("mf")
    for before, after, is_refused in [
        (None, 0.25, True),
        (0.25, None, True),
        (0.25, 0.5, True),
        (0.25, 0.25, False),
        (None, data, False),
        (data, None, False),
    ]:
        store = MemoryStore()
        scar.Job(model, data, store=store, held_out=before, stop=scar.Stop(max_iters=2)).run()
        again = scar.Job(model, data, store=store, held_out=after, stop=FIVE, resume="must")
        if is_refused:
            with pytest.raises(UsageError, match="has held-out data "):
                again.run()
        else:
            assert again.run().iteration == 5


def test_going_back_to_a_full_save_takes_back_what_early_stopping_knew(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"held_out": 0.25, "run": tmp_path / "r", "checkpoint": scar.Checkpoint("full", 1, 2)}
    stop = scar.Stop(max_iters=5, patience=50, min_delta=0.1)
    straight = scar.Job(*tiny_problem("mf"), stop=stop, **settings).run()
    store = LocalStore(str(tmp_path / "r"))
    for name in store.list("units/"):  # that of the end, x(5), and of x(4): only x(2) is left to go back to
        if not name.endswith("000000000004.json"):
            store.delete(name)
    done = roll_back(RunFolder.open(store), lambda _: True)
    assert done.unit.iteration == 2
    again = scar.Job(*tiny_problem("mf"), stop=stop, resume="must", **settings).run()
    assert (again.resumed_from or {})["iteration"] == 2
    assert again.metrics[1:] == [(k + 3, values) for k, values in straight.metrics[3:]]
    assert again.early_stopping == straight.early_stopping


def test_what_is_told_of_held_out_data() -> None:
    stop = scar.Stop(max_iters=4, patience=9, metric="accuracy")
    result = scar.Job(*tiny_problem("mlr"), held_out=0.25, metrics_every=3, stop=stop).run()
    as_json = json.loads(json.dumps(result.to_json()))
    assert [m["iterations"] for m in as_json["metrics"]] == [0, 3, 4]
    assert set(as_json["metrics"][0]["metrics"]) == {"cross_entropy", "accuracy"}
    assert as_json["early_stopping"]["stops_by"] == "accuracy"
    plain = scar.Job(*tiny_problem("mlr"), stop=FIVE).run().to_json()
    assert (plain["metrics"], plain["early_stopping"]) == ([], None)

"""Failures of real processes at bad moments: on Ray, training goes on, and what was saved is never lost."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.ci.ray_models import Breaks, CannotReadElsewhere, Deadly, Heavy, PeculiarError
from tests.ci.ray_runs import ON_RAY, SEED, CommandedRun, LiveRun, ends_within, is_at, nothing_is_damaged, reference

import scarml as scar
from scarml.core.block import Blocks
from scarml.data.classification import Classification
from scarml.errors import ClusterError, DataError, ScarError
from scarml.storage.local import LocalStore
from scarml.testing import tiny_problem

if TYPE_CHECKING:
    from scarml.engine.ray.connection import RayCluster

pytestmark = ON_RAY


class Survivors:
    """Sees that a recovery leaves what survivors hold as it is."""

    def __init__(self, run: LiveRun) -> None:
        self.n_compared = 0
        self._run = run
        self._before: dict[str, dict[str, Blocks]] = {}

    def look(self, record: scar.Record) -> None:
        if record.name == "recovery_started":
            self._before = self._run.blocks_of([n for nodes in self._run.view for n in nodes])
        elif record.name == "recovery_completed" and record["kind"] != "start":
            after = self._run.blocks_of(list(self._before))
            for node, tables in after.items():
                for table, held in self._before[node].items():
                    assert not tables[table].take(held.ids).differs_from(held).any(), (node, table)
                    self.n_compared += len(held)


# ------------------------------------------------------------------------------------------------------------ SIGKILL
@pytest.mark.parametrize("kind", ["server", "worker"])
def test_a_node_killed_while_metrics_are_evaluated_is_recovered_from(
    ray_cluster: RayCluster, tmp_path: Path, kind: str
) -> None:
    stop = scar.Stop(max_iters=6, patience=50)
    run = LiveRun(ray_cluster, "lda", held_out=0.25, stop=stop, run=tmp_path / "run", servers=2, workers=2)

    def strike(record: scar.Record) -> None:
        if record.name == "loss_evaluated" and record["iteration"] == 2 and not run.of("node_lost"):
            run.remote_nodes.kill(run.view[kind == "worker"][0])

    run.at = strike
    result = run.run()
    assert (result.outcome, result.saved, result.iteration) == ("max-iters", True, 6)
    assert len(result.failures) == 1
    assert sorted({k for k, _ in result.metrics}) == list(range(7))
    assert nothing_is_damaged(tmp_path / "run")


@pytest.mark.parametrize("problem", ["mf", "lda"])
def test_servers_and_workers_killed_at_random_moments_are_recovered_from(
    ray_cluster: RayCluster, tmp_path: Path, base_seed: int, problem: str
) -> None:
    rng = random.Random(f"{base_seed} {problem}")
    run = LiveRun(ray_cluster, problem, stop=scar.Stop(max_iters=14), run=tmp_path / "run")
    survivors = Survivors(run)
    blows = [("server", 1), ("worker", 1), ("server", 2)][: 3 if problem == "mf" else 2]
    n_lost = sum(n for _, n in blows)

    def strike(record: scar.Record) -> None:
        survivors.look(record)
        if record.name == "iteration_committed" and record["iteration"] in (2, 5, 8) and blows:
            kind, n = blows.pop(0)
            nodes = run.view[0 if kind == "server" else 1]
            run.kill_soon(rng.sample(nodes, n), delay_s=rng.uniform(0, 0.1))

    run.at = strike
    result = run.run()
    assert (result.outcome, result.saved, result.iteration) == ("max-iters", True, 14)
    assert len(result.failures) == n_lost
    assert all("has died" in f["reason"] for f in result.failures)
    assert survivors.n_compared
    assert nothing_is_damaged(tmp_path / "run")
    again = LiveRun("inprocess", problem, stop=scar.Stop(max_iters=14), run=tmp_path / "run", resume="must").run()
    assert (again.resumed_from["iteration"], again.digest) == (14, result.digest)  # type: ignore[index]


@pytest.mark.parametrize(
    "moment",
    [
        "recovery_started",
        "handover_started",
        *(pytest.param(m, marks=pytest.mark.soak) for m in ("save_started", "save_staged")),
    ],
)
def test_a_failure_while_something_is_under_way_is_recovered_from(
    ray_cluster: RayCluster, tmp_path: Path, moment: str
) -> None:
    run = LiveRun(ray_cluster, "mf", stop=scar.Stop(max_iters=8), run=tmp_path / "run")
    begun = False

    def strike(record: scar.Record) -> None:
        nonlocal begun
        if is_at(record, 2):
            begun = True
            if moment == "recovery_started":
                run.signal("server-0")
            elif moment == "handover_started":
                from scarml.control import messages as m

                run.job._engine.post(m.DrainRequested("server-1", "asked to"))  # type: ignore[union-attr]
        if begun and record.name == moment and not any(r["node"] == "server-1" for r in run.of("node_lost")):
            run.signal("server-1")
            begun = False

    run.at = strike
    result = run.run()
    assert (result.outcome, result.saved, result.iteration) == ("max-iters", True, 8)
    lost, left = ({r["node"] for r in run.of(f"node_{what}")} for what in ("lost", "left"))
    assert "server-1" in lost | left
    assert "server-1" not in run.of("view_changed")[-1]["servers"]
    assert nothing_is_damaged(tmp_path / "run")


@pytest.mark.soak
def test_the_last_server_but_one_may_go(ray_cluster: RayCluster) -> None:
    run = LiveRun(ray_cluster, "mlr", servers=2, workers=1, stop=scar.Stop(max_iters=6))
    run.at = lambda r: run.signal("server-0") and None if is_at(r, 2) else None
    result = run.run()
    assert (result.outcome, result.saved) == ("max-iters", True)
    assert run.view == (["server-1"], ["worker-0"])


def test_the_last_server_and_the_last_worker_are_replaced_and_training_goes_on(ray_cluster: RayCluster) -> None:
    from scarml.control import messages as m

    run = LiveRun(ray_cluster, "mf", servers=1, workers=1, replace=True, stop=scar.Stop(max_iters=100_000))

    def strike(record: scar.Record) -> None:
        if is_at(record, 2):
            run.signal("server-0")
        if (
            record.name == "iteration_committed"
            and len(run.of("recovery_completed")) == 2
            and len(run.of("node_lost")) == 1
        ):
            run.signal("worker-0")
        if record.name == "iteration_committed" and run.view == (["server-1"], ["worker-1"]):
            run.job._engine.post(m.StopRequested("seen enough"))  # type: ignore[union-attr]

    run.at = strike
    result = run.run()
    assert (result.outcome, result.saved) == ("stopped", True)
    assert [r["node"] for r in run.of("node_joined")] == ["server-1", "worker-1"]
    assert [r["kind"] for r in run.of("waiting_for_node")] == ["server", "worker"]


@pytest.mark.soak
def test_a_worker_that_dies_over_and_over_is_not_replaced_for_ever(ray_cluster: RayCluster) -> None:
    problem = (Deadly(batch_size=20), tiny_problem("mlr")[1])
    run = LiveRun(ray_cluster, problem, servers=1, workers=1, replace=True, stop=scar.Stop(max_iters=6))
    result = run.run()
    assert (result.outcome, result.saved, result.iteration) == ("nodes-lost", False, 2)
    (refused,) = run.of("request_refused")
    assert "new workers in a row were lost before they had done an iteration" in refused["reason"]


# --------------------------------------------------------------------------------------------------- SIGSTOP, SIGTERM
def test_a_server_that_is_stopped_is_lost_and_when_it_goes_on_it_ends_itself(
    ray_cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scarml.engine.ray.remote_nodes import RemoteNodes

    end = RemoteNodes._end
    stopped: int | None = None

    def out_of_reach(self: Any, member: Any) -> None:
        if member.pid != stopped:  # as if it were on a machine that is cut off
            end(self, member)

    monkeypatch.setattr(RemoteNodes, "_end", out_of_reach)
    run = LiveRun(ray_cluster, "mf", stop=scar.Stop(max_iters=1_000), silence_s=1.5, run=tmp_path / "run")
    store = LocalStore(str(tmp_path / "run"))
    before: set[str] = set()

    def strike(record: scar.Record) -> None:
        nonlocal stopped
        lost_at = next((r["iteration"] for r in run.of("recovery_completed") if r["kind"] != "start"), None)
        if is_at(record, 2):
            stopped = run.signal("server-1", signal.SIGSTOP)
        elif record.name == "iteration_committed" and lost_at is not None and record["iteration"] == lost_at + 2:
            before.update(n for n in store.list("segments/") if "server-1" in n)
            assert stopped is not None
            os.kill(stopped, signal.SIGCONT)
            assert ends_within(stopped, 10)
            from scarml.control import messages as m

            run.job._engine.post(m.StopRequested("seen enough"))  # type: ignore[union-attr]

    run.at = strike
    try:
        result = run.run()
    finally:
        if stopped is not None and not ends_within(stopped, 0):
            os.kill(stopped, signal.SIGKILL)
    (lost,) = (r for r in run.of("node_lost") if r["node"] == "server-1")
    assert "no sign of life for" in lost["reason"]
    assert (result.outcome, result.saved) == ("stopped", True)
    assert {n for n in store.list("segments/") if "server-1" in n} <= before, "it stores nothing any more"
    assert nothing_is_damaged(tmp_path / "run")


@pytest.mark.soak
def test_a_server_that_is_stopped_here_is_ended(ray_cluster: RayCluster) -> None:
    run = LiveRun(ray_cluster, "mlr", stop=scar.Stop(max_iters=6), silence_s=1.5)
    stopped: list[int] = []
    run.at = lambda r: stopped.append(run.signal("server-1", signal.SIGSTOP)) if is_at(r, 2) else None
    result = run.run()
    assert (result.outcome, result.saved) == ("max-iters", True)
    assert "server-1" in [r["node"] for r in run.of("node_lost")]
    assert ends_within(stopped[0], 5)


def test_sigterm_drains_a_server_and_nothing_is_perturbed(ray_cluster: RayCluster) -> None:
    from scarml.control import messages as m

    run = LiveRun(ray_cluster, "lda", stop=scar.Stop(max_iters=1_000))

    def strike(record: scar.Record) -> None:
        if is_at(record, 2):
            run.signal("server-1", signal.SIGTERM)
            run.signal("worker-0", signal.SIGTERM)
        if record.name == "node_left" and len(run.of("node_left")) == 2:
            run.job._engine.post(m.StopRequested("seen enough"))  # type: ignore[union-attr]

    run.at = strike
    result = run.run()
    assert {r["node"] for r in run.of("node_left")} == {"server-1", "worker-0"}
    assert all("got SIGTERM" in r["reason"] for r in run.of("drain_requested"))
    assert [r["kind"] for r in run.of("recovery_completed")] == ["start"]
    assert result.digest == reference("lda", result.iteration)


# ----------------------------------------------------------------------------------------------------------- commands
@pytest.fixture(params=["inprocess", "ray"])
def engine(request: pytest.FixtureRequest) -> Any:
    return "inprocess" if request.param == "inprocess" else request.getfixturevalue("ray_cluster")


def test_a_live_run_is_scaled_and_drained_by_commands(engine: Any, tmp_path: Path) -> None:
    folder, answers, failed = tmp_path / "run", [], []
    asked = [
        ("scale", {"servers": 3, "workers": 3}),
        ("drain", {"node": "server-0"}),
        ("drain", {"node": "server-77"}),
        ("scale", {"servers": 1, "workers": 1}),
        ("stop", {}),
    ]

    def ask() -> None:
        try:
            commanded = CommandedRun(folder)
            for kind, arguments in asked:
                answers.append(commanded.ask(kind, arguments).done)  # type: ignore[arg-type]
        except BaseException as e:  # noqa: BLE001 - shown by the test
            failed.append(e)
            run.job._engine.post(m.StopRequested("the test has failed"))  # type: ignore[union-attr]

    from scarml.control import messages as m

    run = LiveRun(engine, "mf", servers=2, workers=2, stop=scar.Stop(max_iters=100_000), run=folder)
    person = threading.Thread(target=ask)
    pace = threading.Event()

    def at(record: scar.Record) -> None:
        if is_at(record, 1):
            person.start()
        if record.name == "iteration_committed":
            pace.wait(0.02)

    run.at = at
    result = run.run()
    person.join()
    assert not failed
    assert answers == [True, True, False, True, True]
    assert (result.outcome, result.saved) == ("stopped", True)
    assert [len(nodes) for nodes in run.view] == [1, 1]
    assert {"server-2", "worker-2"} <= {r["node"] for r in run.of("node_joined")}
    assert "server-0" in {r["node"] for r in run.of("node_left")}
    assert [r["kind"] for r in run.of("recovery_completed")] == ["start"]
    assert result.digest == reference("mf", result.iteration)


# ------------------------------------------------------------------------------------------------------------- errors
def test_an_error_of_a_model_in_a_worker_reaches_the_caller_as_it_was(ray_cluster: RayCluster) -> None:
    problem = (Breaks(batch_size=20), tiny_problem("mlr")[1])
    with pytest.raises(PeculiarError, match="7, 'compute'") as raised:
        LiveRun(ray_cluster, problem, servers=1).run()
    assert raised.value.code == 7
    assert "In the process of a node" in raised.value.__notes__[0]
    assert "ray_models.py" in raised.value.__notes__[0]


def test_an_error_that_cannot_leave_its_process_is_told_of(ray_cluster: RayCluster) -> None:
    problem = (Breaks(batch_size=20, how="stubborn"), tiny_problem("mlr")[1])
    with pytest.raises(ScarError, match=r"StubbornError in the process of a node(.|\n)*code 7 in compute"):
        LiveRun(ray_cluster, problem, servers=1).run()


def test_an_error_in_reading_the_data_in_a_worker_reaches_the_caller(ray_cluster: RayCluster) -> None:
    problem = (CannotReadElsewhere(batch_size=20, pid=os.getpid()), tiny_problem("mlr")[1])
    with pytest.raises(DataError, match=r"ratings.csv is not on this machine"):
        LiveRun(ray_cluster, problem, servers=1, workers=1).run()


def test_large_updates_are_held_back_and_arrive(ray_cluster: RayCluster) -> None:
    rng = np.random.default_rng(SEED)
    data = Classification(rng.random((60, 20_000), dtype=np.float32), rng.integers(0, 60, 60), 60)
    problem = (Heavy(batch_size=60), data)
    run = LiveRun(ray_cluster, problem, servers=1, workers=1, stop=scar.Stop(max_iters=2))
    assert run.run().digest == reference(problem, 2)


# ------------------------------------------------------------------------------------------------- the driver is killed
BESIDE = """
import numpy as np
import scarml as scar
from scarml.data.classification import Classification

class Beside(scar.MLR):
    pass

def make_data():
    rng = np.random.default_rng(3)
    return Classification(rng.random((120, 12), dtype=np.float32), rng.integers(0, 3, 120), 3)
"""


@pytest.fixture
def script(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A user's script in a folder of its own, with a model in a module beside it."""
    (tmp_path / "model_beside.py").write_text(BESIDE)
    (tmp_path / "script.py").write_text((Path(__file__).parent / "ray_script.py").read_text())
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    with subprocess.Popen(
        [sys.executable, "script.py", "run"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        yield process
        process.kill()
    for told in (tmp_path / "folder").read_text().split():
        shutil.rmtree(told, ignore_errors=True)


def test_a_script_stops_at_sigterm_and_when_it_is_killed_its_nodes_end_nothing_is_said_of_ray_and_the_run_goes_on(
    ray_cluster: RayCluster, script: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    import model_beside  # type: ignore[import-not-found]
    import ray.cloudpickle

    assert script.stdout is not None
    assert script.stderr is not None
    told: list[dict[str, Any]] = []
    for line in script.stdout:
        told.append(json.loads(line))
        if told[-1].get("iteration") == 3 and "first" not in [t["event"] for t in told]:
            os.killpg(script.pid, signal.SIGTERM)  # as a service manager does: to the driver, its nodes, and Ray
        second = list(dropwhile(lambda t: t["event"] != "first", told))
        if "save_committed" in [t["event"] for t in second] and any(t.get("iteration", 0) >= 7 for t in second):
            break
    script.kill()
    last_words, noise = script.communicate()
    pids = [pid for t in told for pid in t.get("pids", ())]
    assert len(pids) == 8
    assert all(ends_within(pid, 5) for pid in pids)
    assert noise == ""
    assert all(json.loads(line) for line in last_words.splitlines() if line.endswith("}"))
    (first,) = (t for t in told if t["event"] == "first")
    assert first["outcome"] == "stopped"
    assert first["digest"] == reference((scar.MLR(batch_size=20), model_beside.make_data()), first["n_iters"])
    assert [t["event"] for t in told].count("node_lost") == 2
    problem = (model_beside.Beside(batch_size=20), model_beside.make_data())
    stop = scar.Stop(max_iters=1_000_000)
    rest: dict[str, Any] = {"servers": 2, "workers": 1, "stop": stop, "run": tmp_path / "run", "resume": "auto"}
    with pytest.raises(
        ClusterError, match=r"cannot make use of the model or its data: .*No module named 'model_beside'"
    ):
        LiveRun(ray_cluster, problem, **rest).run()
    ray.cloudpickle.register_pickle_by_value(model_beside)
    try:
        again = LiveRun(ray_cluster, problem, **{**rest, "stop": scar.Stop(max_iters=200)}).run()
    finally:
        ray.cloudpickle.unregister_pickle_by_value(model_beside)
    assert again.resumed_from is not None
    assert (again.outcome, again.saved, again.iteration) == ("max-iters", True, 200)
    assert nothing_is_damaged(tmp_path / "run")

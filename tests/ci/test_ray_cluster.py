"""The Ray under a run: one that is not there, one for many jobs, one that dies; and processes that die early."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.ci.ray_runs import ON_RAY, LiveRun, ends_within, is_at, nothing_is_damaged, reference

import scarml as scar
from scarml.cli.main import main
from scarml.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from scarml.engine.ray.connection import RayCluster

pytestmark = ON_RAY


# ------------------------------------------------------------------------------------------------ one that is not there
def test_no_ray_at_an_address_is_said_in_one_sentence() -> None:
    text = """
import sys
from scarml.engine.ray.connection import RayCluster
from scarml.errors import ClusterError
for address in sys.argv[1:]:
    try:
        RayCluster(address).open()
    except ClusterError as e:
        print(e)
"""
    with socket.create_server(("127.0.0.1", 0)) as another:

        def serve() -> None:
            with another.accept()[0] as connection:
                connection.recv(1 << 10)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        not_ray = f"127.0.0.1:{another.getsockname()[1]}"
        addresses = ["nonsense", "127.0.0.1:1", not_ray, "ray://localhost:1", "http://localhost:8265"]
        command = [sys.executable, "-c", text, *addresses]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(addresses)
    for address, line in zip(addresses[:3], lines, strict=False):
        assert re.match(rf"there is no Ray at {address}: .*[^.]\. Start one with: ray start --head; or leave", line)
    assert "not Ray's GCS" in lines[2]
    for address, line in zip(addresses[3:], lines[3:], strict=True):
        assert line.startswith(f"a run cannot join Ray at {address}: start this command on a machine of the cluster")
    assert done.stderr == ""


def test_without_ray_one_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from scarml.engine.ray.connection import RayCluster

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'scarml\[ray\]'"):
        RayCluster().open()


# ----------------------------------------------------------------------------------- one Ray, and one job after another
@pytest.mark.soak
def test_a_ray_of_ones_own_is_used_and_left_as_it_is(ray_cluster: RayCluster) -> None:
    import ray

    result = LiveRun("ray", "qp", servers=1, workers=1, stop=scar.Stop(max_iters=2)).run()
    assert result.digest == reference("qp", 2)
    assert ray.is_initialized()


def test_what_comes_late_from_an_earlier_job_is_neither_obeyed_nor_answered(ray_cluster: RayCluster) -> None:
    import ray

    run = LiveRun(ray_cluster, "qp", servers=1, workers=1, stop=scar.Stop(max_iters=20))
    answers: list[Any] = []

    def disturb(record: scar.Record) -> None:
        if is_at(record, 2):
            for member in run.remote_nodes._members.values():
                process = member.process
                late = [
                    process.poll.remote("earlier", 1_000, 1_000),
                    process.read.remote("earlier", 1, 2, {"x": None}),
                    process.give.remote("earlier", "controller", 0, ["an order"]),
                    process.hand_over.remote("earlier", 2, {}),
                    process.blocks.remote("earlier", "x"),
                ]
                answers.extend(ray.get(late))

    run.at = disturb
    assert run.run().digest == reference("qp", 20)
    assert answers == [[], None, None, None, None] * 2


@pytest.mark.soak
def test_a_process_that_died_between_two_jobs_is_not_used_again(ray_cluster: RayCluster) -> None:
    first = LiveRun(ray_cluster, "qp", servers=2, workers=1, stop=scar.Stop(max_iters=1))
    pids: list[int] = []
    first.at = lambda r: pids.append(first.pid("server-0")) if is_at(r, 1) else None
    first.run()
    os.kill(pids[0], signal.SIGKILL)
    assert ends_within(pids[0], 5)
    second = LiveRun(ray_cluster, "qp", servers=2, workers=1, stop=scar.Stop(max_iters=2)).run()
    assert second.digest == reference("qp", 2)


@pytest.mark.soak
def test_many_jobs_leave_neither_threads_nor_open_files_behind(ray_cluster: RayCluster) -> None:
    def sizes() -> tuple[int, int]:
        run = LiveRun(ray_cluster, "qp", servers=1, workers=1, stop=scar.Stop(max_iters=1))
        counted: list[tuple[int, int]] = []

        def count(record: scar.Record) -> None:
            if is_at(record, 1):
                processes = [Path(f"/proc/{run.pid(n)}") for n in ("server-0", "worker-0")]
                counted.append(tuple(sum(len(list((p / w).iterdir())) for p in processes) for w in ("task", "fd")))  # type: ignore[arg-type]

        run.at = count
        run.run()
        return counted[0]

    n_here = threading.active_count()
    first, *_, last = [sizes() for _ in range(8)]
    assert threading.active_count() <= n_here
    assert last[0] <= first[0] + 2
    assert last[1] <= first[1] + 8


# ------------------------------------------------------------------------------------- processes that die as they start
class _DeadOnArrival:
    """The first ``n`` processes of a cluster die before they begin to host a node."""

    def __init__(self, cluster: RayCluster, n: int) -> None:
        self.n_acquired = 0
        self._n = n
        self._acquire = cluster.acquire

    def __call__(self) -> Any:
        import ray

        process = self._acquire()
        self.n_acquired += 1
        if self.n_acquired <= self._n:
            ray.kill(process)
        return process


def test_a_process_that_dies_as_it_starts_is_started_again(
    ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    acquire = _DeadOnArrival(ray_cluster, 2)
    monkeypatch.setattr(ray_cluster, "acquire", acquire)
    result = LiveRun(ray_cluster, "qp", servers=1, workers=1, stop=scar.Stop(max_iters=3)).run()
    assert (result.outcome, result.failures, acquire.n_acquired) == ("max-iters", [], 4)
    assert result.digest == reference("qp", 3)
    assert [r.getMessage() for r in caplog.records if "died while it started" in r.getMessage()] == [
        f"the process of {node} has died while it started; another one is started" for node in ("server-0", "worker-0")
    ]


def test_processes_that_die_as_they_start_over_and_over_end_the_run(
    ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "acquire", _DeadOnArrival(ray_cluster, 100))
    with pytest.raises(ClusterError, match=r"the process of server-0 has died while it started, 3 times\. Is there"):
        LiveRun(ray_cluster, "qp", servers=1, workers=1, stop=scar.Stop(max_iters=3)).run()


# ------------------------------------------------------------------------------------------ a Ray that dies under a run
def _child(pid: int, name: str) -> int:
    """The process ``name`` that another one has started."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, rest = stat.read_text().split(" (", 1)
        except OSError:
            continue
        command, _, fields = rest.rpartition(") ")
        if command == name and int(fields.split()[1]) == pid:
            return int(number)
    raise LookupError(name)


@pytest.mark.parametrize(
    ("victim", "says"),
    [
        pytest.param("raylet", "the Ray on this machine has died .*; what was saved is safe", id="raylet"),
        pytest.param(
            "gcs_server",
            r"the head of Ray is gone \(its GCS, .*\); training has stopped at x\(\d+\), and everything is saved",
            id="gcs",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_when_ray_dies_the_run_ends_in_order_and_can_be_resumed(tmp_path: Path, victim: str, says: str) -> None:
    command = [sys.executable, "-m", "scarml.cli", "train", "qp", "--engine", "ray", "--servers", "1", "--workers", "1"]
    command += ["--replace", "--pace", "0.05", "--max-iters", "100000", "--stop-loss-sum", "0", "--run", "run"]
    environment = {k: v for k, v in os.environ.items() if k not in ("RAY_ADDRESS", "PYTHONPATH")}
    environment["PYTHONPATH"] = os.pathsep.join(str(Path(p).absolute()) for p in sys.path if p)
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if re.search(r" x\([1-9]\d*\): ", line):
                os.kill(_child(process.pid, victim), signal.SIGKILL)
                break
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 1, rest
    *_, error, to_go_on = rest.splitlines()
    assert re.fullmatch(f"scarml: error: {says}", error)
    assert to_go_on.startswith("To go on: scarml train qp --engine ray")
    assert "[2" not in rest, "Ray itself has said something"
    assert nothing_is_damaged(tmp_path / "run")
    with pytest.raises(SystemExit) as end:
        main(["train", "qp", "--run", str(tmp_path / "run"), "--resume", "must", "-q"])
    assert end.value.code == 0

"""What real processes cost: an iteration on Ray against the same one in one process, and the data path by itself.

Both engines compute the same bits with as many threads: two workers with one each, or two threads. All time is wall
time, since it passes in several processes. An iteration is divided where the controller sees it: until all nodes are
prepared (what workers read, compute and push), until all have committed, and until the loss is there.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from side_by_side import Row, alternate, main, ratio_row

import scarml as scar
from scarml.control import messages as m
from scarml.core.block import Blocks, Field, Table
from scarml.data.registry import load
from scarml.engine.cluster import Cluster

SERVERS, WORKERS = 4, 2
JOB = "benchmark"
NEVER = scar.Checkpoint(policy="full", fraction=1, interval_iters=1_000_000)


def measure(quick: bool) -> list[Row]:
    from scarml.engine.ray.connection import RayCluster

    with RayCluster() as ray_cluster:
        rows = []
        for name, model, data, n_iters in _problems(quick):
            rows += _iterations(ray_cluster, name, model, data, n_iters)
        for size_bytes in (10_000, 1_000_000) if quick else (10_000, 1_000_000, 16_000_000):
            rows += _data_path(ray_cluster, size_bytes, 5 if quick else 40)
        return [*rows, _memory(ray_cluster, 8 << 20 if quick else 256 << 20)]


def _problems(quick: bool) -> list[tuple[str, Any, Any, int]]:
    if quick:
        return [("QP: no work at all", scar.QP(), None, 5)]
    mnist = load("mnist")
    return [
        ("QP: no work at all", scar.QP(), None, 40),
        ("MF, 20 factors, MovieLens", scar.MF(), load("movielens"), 30),
        ("MLR, MNIST, batches of 10,000", scar.MLR(), mnist, 30),
        ("MLR, MNIST, batches of 60,000", scar.MLR(batch_size=60_000), mnist, 30),
    ]


# ---------------------------------------------------------------------------------------------------------- iterations
class _Stopwatch:
    """When the controller saw which event: wraps `Cluster.handle`."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, str]] = []

    def __enter__(self) -> _Stopwatch:
        self._handle: Callable[..., None] = Cluster.handle
        seen, handle = self.seen, self._handle

        def timed(cluster: Cluster, event: m.Event) -> None:
            before = cluster.controller.state.name
            handle(cluster, event)
            after = cluster.controller.state.name
            if after != before or isinstance(event, m.Committed):
                seen.append((time.perf_counter(), f"{before}>{after}"))

        Cluster.handle = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Cluster.handle = self._handle  # type: ignore[method-assign]

    def parts(self) -> dict[str, np.ndarray]:
        """Seconds of each part, one value an occurrence."""
        began: dict[str, float] = {}
        parts: dict[str, list[float]] = {"COMPUTING": [], "COMMITTING": [], "EVALUATING": []}
        for at_s, change in self.seen:
            before, after = change.split(">")
            if before in parts and before in began and after != before:
                parts[before].append(at_s - began[before])
            if after != before:
                began[after] = at_s
        return {name: np.array(seconds) for name, seconds in parts.items() if seconds}


def _iterations(ray_cluster: Any, name: str, model: Any, data: Any, n_iters: int) -> list[Row]:
    seconds, parts = {}, {}
    for engine in ("inprocess", ray_cluster):
        times: list[float] = []

        def note(record: scar.Record, times: list[float] = times) -> None:
            if record.name == "iteration_committed":
                times.append(time.perf_counter())

        with _Stopwatch() as stopwatch:
            scar.Job(
                model,
                data,
                servers=SERVERS,
                workers=WORKERS,
                threads=WORKERS,
                engine=engine,
                checkpoint=NEVER,
                stop=scar.Stop(max_iters=n_iters),
                on_event=note,
            ).run()
        which = "inprocess" if engine == "inprocess" else "ray"
        seconds[which] = np.diff(times)[2:]
        parts[which] = stopwatch.parts()
    n = min(len(s) for s in seconds.values())
    rows = [ratio_row(f"{name}: an iteration on Ray", "in one process", seconds["ray"][:n], seconds["inprocess"][:n])]
    extra_ms = float(np.median(seconds["ray"]) - np.median(seconds["inprocess"])) * 1e3
    rows.append(Row(f"{name}: what Ray adds to an iteration", "", extra_ms, extra_ms, extra_ms, unit="ms"))
    for part, words in (
        ("COMPUTING", "a phase, read, compute and push"),
        ("COMMITTING", "a commit"),
        ("EVALUATING", "the loss"),
    ):
        if part in parts["ray"] and part in parts["inprocess"]:
            ours, theirs = parts["ray"][part][3:], parts["inprocess"][part][3:]
            k = min(len(ours), len(theirs))
            rows.append(ratio_row(f"{name}: of it, {words}", "in one process", ours[:k], theirs[:k]))
    return rows


# ----------------------------------------------------------------------------------------------------------- data path
class _Big:
    """A model with one table of a given size, and no algorithm."""

    n_phases = 1

    def __init__(self, size_bytes: int) -> None:
        self.n_rows = max(size_bytes // 1000, 1)

    def tables(self, data: Any) -> list[Table]:
        return [Table("x", self.n_rows, (Field("value", "float32", (250,)),))]

    def shards(self, data: Any, n_shards: int) -> list[scar.Shard]:
        return [scar.Shard(i, None, 1) for i in range(n_shards)]

    def groups(self, table: Table) -> Any:
        return table.all_ids

    def init(self, table: Table, ids: Any, seed: int) -> dict[str, Any]:
        return {"value": np.ones((len(ids), 250), np.float32)}

    def combine(self, table: Table) -> str:
        return "add"

    def distance(self, a: Blocks, b: Blocks) -> Any:
        return np.zeros(len(a))


def _hosted(ray_cluster: Any, folder: str, size_bytes: int) -> tuple[Any, Any, int]:
    """A server in a process of its own that holds everything; its handle, its table, its process."""
    import ray

    from scarml.control.view import Layout, first_view
    from scarml.engine.ray.setup import Setup
    from scarml.storage.open_store import open_store
    from scarml.storage.run_folder import RunFolder

    model: Any = _Big(size_bytes)
    run = RunFolder.create(open_store(folder), {})
    run.claim_term("new")
    layout = Layout.of(model, model.tables(None), model.shards(None, 2), 0)
    process = ray_cluster.acquire()
    setup = ray.put(Setup(model, layout, seed=0, encodings={}, url=folder, data=None, held_out=None, silence_s=600.0))
    pid, _ = ray.get(process.begin.remote(JOB, "server-0", "server", setup))
    view = first_view(layout, ["server-0"], ["worker-0"])
    order = m.InstallView(view, 1, 0, {"x": view.blocks_of("server-0", layout, "x")})
    process.give.remote(JOB, "controller", 0, [order])
    while not ray.get(process.poll.remote(JOB, 0, 1)):
        pass
    return process, model.tables(None)[0], pid


class _Obeys:
    """Stands in for the node of `ActorLinks`: all reads are wanted."""

    class holder:  # noqa: N801 - as the attribute of a node
        @staticmethod
        def obeys(view: int) -> bool:
            return True


def _data_path(ray_cluster: Any, size_bytes: int, rounds: int) -> list[Row]:
    import tempfile

    import ray

    from scarml.core.model import Context, Update
    from scarml.engine.ray.actor_links import ActorLinks

    with tempfile.TemporaryDirectory() as folder:
        process, table, _ = _hosted(ray_cluster, folder, size_bytes)
        links = ActorLinks(JOB, "worker-0", lambda event: None, lambda: False)
        links.node = _Obeys()  # type: ignore[assignment]
        links.meet({"server-0": process})
        values = np.ones((table.n_blocks, 250), np.float32)
        out = np.empty_like(values)
        n_pushed = 0

        def pull() -> None:
            got = links.read(1, 0, {"server-0": {"x": None}})
            assert got is not None
            np.copyto(out, got["server-0"]["x"].value)

        def push() -> None:
            nonlocal n_pushed
            update = Update("x", table.all_ids, values)
            # A commit that the server is not at: the message is taken in and dropped, nothing is folded.
            links.forward("worker-0", "server-0", m.Push(1, 99, Context(0, 1), n_pushed % 2, (update,)))
            n_pushed += 1
            links._flush("server-0")
            ray.get(links._sent[-1][1] if links._sent else process.n_folded.remote(JOB, 1))

        def put_and_get() -> None:
            np.copyto(out, ray.get(ray.put(values)))

        def copy() -> None:
            np.copyto(out, values)

        seconds = alternate(
            {"pull": pull, "push": push, "ray": put_and_get, "memcpy": copy},
            rounds,
            warm_ups=3,
            clock_s=time.perf_counter,
        )
        ray.kill(process)
    size = f"{size_bytes / 1e6:g} MB"
    return [
        ratio_row(f"{size}: a worker reads a whole table", "ray.put and ray.get", seconds["pull"], seconds["ray"]),
        ratio_row(f"{size}: a worker pushes updates", "ray.put and ray.get", seconds["push"], seconds["ray"]),
        ratio_row(f"{size}: a worker reads a whole table", "memcpy", seconds["pull"], seconds["memcpy"]),
    ]


def _memory(ray_cluster: Any, size_bytes: int) -> Row:
    import tempfile

    import ray

    with tempfile.TemporaryDirectory() as folder:
        small, _, pid = _hosted(ray_cluster, folder, 1000)
        before = _own_bytes(pid)
        ray.kill(small)
    with tempfile.TemporaryDirectory() as folder:
        large, table, pid = _hosted(ray_cluster, folder, size_bytes)
        figure = (_own_bytes(pid) - before) / (table.n_blocks * 1000)
        ray.kill(large)
    what = f"{size_bytes >> 20} MiB of blocks: memory of a server's process beyond an empty one's {before >> 20} MiB"
    return Row(what, "its blocks (there are two copies: one is the cache)", figure, figure, figure)


def _own_bytes(pid: int) -> int:
    """Memory that a process has for itself (USS)."""
    with open(f"/proc/{pid}/smaps_rollup") as f:
        kb = [int(line.split()[1]) for line in f if line.startswith(("Private_Clean", "Private_Dirty"))]
    return sum(kb) << 10


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.modules.setdefault("ray_engine", sys.modules["__main__"])  # where the processes find `_Big` by name
    main(measure, __file__)

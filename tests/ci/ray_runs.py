"""Runs on real processes that a test can watch, kill and command while they go on."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import scarml as scar
from scarml.core.block import Blocks
from scarml.core.sequential import Sequential, digest
from scarml.storage.command_delivery import Delivery
from scarml.storage.commands import Answer, CommandKind
from scarml.storage.local import LocalStore
from scarml.storage.ownership import Timing
from scarml.storage.verification import verify
from scarml.testing import tiny_problem

SEED = 3
SHARDS = 6
ON_RAY = [
    pytest.mark.ci,
    pytest.mark.xdist_group("ray"),  # one Ray for all of them
    pytest.mark.usefixtures("single_threaded_blas"),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'scarml[ray]'"),
]
"""Marks of tests that need Ray."""
OFTEN = scar.Checkpoint("priority", "1/4", 4)


class LiveRun:
    """A job whose records a test sees as they come. `at` is asked at each of them, in the thread that decides.

    Args:
        engine: as of `scarml.Job`.
        problem: the name of a tiny problem, or a model and its data.
    """

    def __init__(self, engine: Any, problem: str | tuple[Any, Any], **settings: Any) -> None:
        self.records: list[scar.Record] = []
        self.at: Callable[[scar.Record], None] = lambda _: None
        defaults = {"seed": SEED, "shards": SHARDS, "checkpoint": OFTEN, "servers": 4, "workers": 2}
        whole = tiny_problem(problem) if isinstance(problem, str) else problem
        self.job = scar.Job(*whole, engine=engine, on_event=self._take_in, **{**defaults, **settings})

    def run(self) -> scar.Result:
        return self.job.run()

    def _take_in(self, record: scar.Record) -> None:
        self.records.append(record)
        self.at(record)

    # --------------------------------------------------------------------------------------------------------- a look
    def of(self, *names: str) -> list[scar.Record]:
        return [r for r in self.records if r.name in names]

    @property
    def view(self) -> tuple[list[str], list[str]]:
        """Servers and workers."""
        view = self.job._controller.view  # type: ignore[union-attr]
        return list(view.servers), list(view.workers)

    @property
    def remote_nodes(self) -> Any:
        return self.job._engine._nodes  # type: ignore[union-attr]

    def pid(self, node: str) -> int:
        number, _ = self.job._engine.place(node)  # type: ignore[union-attr]
        assert number is not None
        return number

    def blocks_of(self, nodes: list[str]) -> dict[str, dict[str, Blocks]]:
        """By node and table, what its process holds now."""
        found: dict[str, dict[str, Blocks]] = {}
        for name, table in self.job._controller._layout.tables.items():  # type: ignore[union-attr]
            for node in nodes:
                if node.startswith(table.home) and not table.derived:
                    blocks = self.remote_nodes._blocks_of(node, name)
                    if blocks is not None:
                        found.setdefault(node, {})[name] = blocks
        return found

    # ------------------------------------------------------------------------------------------------------- the blow
    def signal(self, node: str, number: signal.Signals = signal.SIGKILL) -> int:
        pid = self.pid(node)
        os.kill(pid, number)
        return pid

    def kill_soon(self, nodes: list[str], delay_s: float) -> None:
        """From another thread, whatever the run is doing then."""
        pids = [self.pid(n) for n in nodes]

        def kill() -> None:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)

        timer = threading.Timer(delay_s, kill)
        timer.daemon = True
        timer.start()


class CommandedRun:
    """Commands to a run that goes on in this process, by the way that `scarml scale` and its like take."""

    def __init__(self, folder: Path) -> None:
        self._store = LocalStore(str(folder))

    def ask(self, kind: CommandKind, arguments: Mapping[str, Any]) -> Answer:
        """Wait for the answer."""
        answer = Delivery.post(self._store, kind, arguments, Timing()).answer(60.0)
        assert answer is not None
        return answer


def ends_within(pid: int, seconds: float) -> bool:
    """Whether a process has ended, or does so soon."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], seconds)[0])
    finally:
        os.close(process)


def is_at(record: scar.Record, iteration: int) -> bool:
    """Whether this is the commit of x(iteration)."""
    return record.name == "iteration_committed" and record["iteration"] == iteration


def reference(problem: str | tuple[Any, Any], n_iters: int) -> str:
    """The digest of a run without losses."""
    run = Sequential(*(tiny_problem(problem) if isinstance(problem, str) else problem), seed=SEED, n_shards=SHARDS)
    for _ in range(n_iters):
        run.step()
    return digest(run.state)


def nothing_is_damaged(folder: Path) -> bool:
    found = verify(LocalStore(str(folder)))
    assert not found.damaged
    return True

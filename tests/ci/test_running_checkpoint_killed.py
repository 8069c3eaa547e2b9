"""Real SIGKILL of a real training process at random moments; the same command again each time.

That tests the death of processes. The loss of power is what the simulated disk tests (tests/properties).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ci import killed_loop

import scarml as scar
from scarml.errors import UsageError
from scarml.storage.local import LocalStore
from scarml.storage.verification import verify

UNTIL = 100_000
DONE_SOON = 30


class Witness:
    """What the processes said of their saves, and whether the folder agrees."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.committed = np.zeros(killed_loop.N_ROWS)
        self.newest = 0
        self.n_commits = 0
        self._chosen: dict[int, list[int]] = {}

    def listen(self, says: Connection, seconds: float | None) -> bool:
        """Take in what is said, for so long or until there is nobody to say anything; whether it was done."""
        until_s = None if seconds is None else time.monotonic() + seconds
        try:
            while says.poll(None if until_s is None else max(0.0, until_s - time.monotonic())):
                if self._take_in(*says.recv()):
                    return True
        except (EOFError, OSError, ValueError):  # killed in the middle of a word
            pass
        return False

    def _take_in(self, what: str, k: int, more: Any = None) -> bool:
        match what:
            case "restored":
                assert k >= self.newest, "nothing that was committed is lost"
                assert more == k, "extra state is of the same save"
                self._chosen = {}
            case "chosen":
                self._chosen[k] = more
            case "committed":
                self.newest = max(self.newest, k)
                self.n_commits += 1
        for committed in [k for k in self._chosen if k <= self.newest]:
            self.committed[self._chosen.pop(committed)] = committed
        return what == "done"

    def check(self) -> None:
        """See that the folder is whole, and has everything that was committed."""
        if not (self.folder / "SCAR-RUN").exists():
            return
        result = verify(LocalStore(str(self.folder)))
        assert not result.damaged
        try:
            found = scar.load(self.folder)["versions"]["value"]
        except UsageError:
            assert self.newest == 0, "x(0) had not been saved"
            return
        assert (found == found[:, :1]).all(), "no row is torn"
        assert (found[:, 0] >= self.committed).all(), "nothing that was committed is lost"


@pytest.mark.parametrize(
    ("n_kills", "scoring"),
    [
        pytest.param(14, "exact", marks=pytest.mark.ci),
        pytest.param(6, "background", marks=pytest.mark.ci),
        pytest.param(200, "exact", marks=[pytest.mark.soak, pytest.mark.timeout(1800)]),
    ],
)
def test_killed_at_random_moments(tmp_path: Path, base_seed: int, n_kills: int, scoring: str) -> None:
    rng = np.random.default_rng([base_seed, n_kills])
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.ci.killed_loop", "scarml.running_checkpoint.running_checkpoint"])
    witness = Witness(tmp_path / "run")

    def start(until: int) -> tuple[Any, Connection]:
        mine, theirs = processes.Pipe(duplex=False)
        process = processes.Process(target=killed_loop.train, args=(str(tmp_path / "run"), until, theirs, scoring))
        process.start()
        theirs.close()
        return process, mine

    for n in range(n_kills):
        process, says = start(UNTIL)
        if n % 4:  # one in four is killed while it opens the folder, or restores
            assert says.poll(60), "the process does not come to training"
        witness.listen(says, float(rng.uniform(0, 0.4)))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        witness.listen(says, None)
        says.close()
        witness.check()
    assert witness.n_commits > n_kills
    process, says = start(witness.newest + DONE_SOON)
    assert witness.listen(says, 60)
    process.join()
    assert process.exitcode == 0
    loaded = scar.load(tmp_path / "run")
    assert (loaded["versions"]["value"] == loaded["versions"]["value"][0, 0]).all()
    assert killed_loop.loss(loaded["theta"]["value"]) < 0.5 * killed_loop.loss(np.zeros_like(loaded["theta"]["value"]))

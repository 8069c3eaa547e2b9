"""Real processes that start on one run folder at the same time, and owners that get a real SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scarml.storage.local import LocalStore
from scarml.storage.run_folder import RunFolder

pytestmark = pytest.mark.ci

N_RACES = 20

# Told a folder, a process starts on it; if it wins, it saves until it is told to end.
CHILD = """
import sys, numpy as np
from scarml.core.block import Field, Table
from scarml.errors import RunExistsError, RunInUseError, StoreError
from scarml.storage.local import LocalStore
from scarml.storage.ownership import Timing
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment import Segment

class WithoutLocks(LocalStore):
    def lock(self, name, note=""):
        raise StoreError("this store has no locks")

TABLE = Table("W", 4, (Field("value", "int64"),))
kind = LocalStore if sys.argv[1] == "locks" else WithoutLocks

def start(path):
    store = kind(path)
    try:
        run = RunFolder.create(store, {"seed": 1})
    except RunExistsError:
        run = RunFolder.open(store)
    try:
        with run.owned(timing=Timing(lease_s=0.6)):
            term = run.claim_term("new" if run.last_term() is None else "parent")
            print("won", term, flush=True)
            for commit in range(1, 1 + int(sys.stdin.readline())):
                tables = {"W": TABLE.empty(TABLE.all_ids)}
                run.write_segment(Segment(term, commit, commit, "server-0", commit, False, tables))
            print("saved", flush=True)
            sys.stdin.readline()
        print("ended", flush=True)
    except RunInUseError as e:
        print("in use:", e, flush=True)

print("ready", flush=True)
for line in sys.stdin:
    start(line.strip())
"""


class Child:
    """A process that starts on run folders."""

    def __init__(self, kind: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self.hear() == "ready"

    def tell(self, line: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture
def children(request: pytest.FixtureRequest) -> Iterator[list[Child]]:
    started = [Child(request.param) for _ in range(2)]
    yield started
    for child in started:
        child.process.kill()
        child.process.communicate()


@pytest.mark.parametrize("children", ["locks", "lease"], indirect=True)
@pytest.mark.parametrize("run_is_new", [True, False])
def test_of_two_starts_exactly_one_wins_and_is_not_disturbed(
    children: list[Child], run_is_new: bool, tmp_path: Path
) -> None:
    for race in range(N_RACES):
        path = tmp_path / f"run-{race}"
        if not run_is_new:
            run = RunFolder.create(LocalStore(str(path)), {"seed": 1})
            with run.owned():
                run.claim_term("new")
        for child in children:
            child.tell(path)
        heard = {child: child.hear() for child in children}
        winners = [c for c, word in heard.items() if word == f"won {1 if run_is_new else 2}"]
        losers = [word for word in heard.values() if "in use" in word or "another process claimed term" in word]
        assert (len(winners), len(losers)) == (1, 1), heard
        winners[0].tell(5)
        assert winners[0].hear() == "saved"
        winners[0].tell("")
        assert winners[0].hear() == "ended"
        names = LocalStore(str(path)).list()
        assert sum(n.startswith("segments/") for n in names) == 5
        assert sum(n.endswith(".claim") for n in names) == (1 if run_is_new else 2)
        assert RunFolder.open(LocalStore(str(path))).description == {"seed": 1}


@pytest.mark.parametrize(("children", "limit_s"), [("locks", 1.0), ("lease", 5.0)], indirect=["children"])
def test_a_killed_owner_does_not_block_the_next_start(children: list[Child], limit_s: float, tmp_path: Path) -> None:
    killed, following = children
    killed.tell(tmp_path / "run")
    assert killed.hear() == "won 1"
    killed.tell(5)
    assert killed.hear() == "saved"
    os.kill(killed.process.pid, signal.SIGKILL)
    killed.process.wait()
    since_s = time.monotonic()
    following.tell(tmp_path / "run")
    assert following.hear() == "won 2"
    assert time.monotonic() - since_s < limit_s

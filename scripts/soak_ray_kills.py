"""How long training stands still when real processes are killed: ``python scripts/soak_ray_kills.py --kills 100``.

Every kill is a SIGKILL at a random moment to one or two of four servers, or to one of two workers, of a job on Ray on
this machine. Afterwards the cluster is scaled back to four and two, and a few iterations pass undisturbed before the
next one. Each job ends with everything saved; its run folder is then verified and resumed.

Writes ``kills.csv`` (a row a kill) and ``README.md`` to ``docs/results/ray-kills``. The times of a kill:

* detection: from SIGKILL until the controller knows (the last of two);
* view: from there until the others are told of a new view, after the commit that is under way;
* load: until all obey it and what was lost is read from the running checkpoint;
* again: until the next commit;
* over: from SIGKILL to that commit, minus an undisturbed iteration (the median of those before) and minus the load.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import random
import signal
import statistics
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any

import scarml as scar
from scarml.control import messages as m
from scarml.engine.ray.connection import RayCluster
from scarml.storage.local import LocalStore
from scarml.storage.verification import verify

SERVERS, WORKERS = 4, 2
UNDISTURBED = 4
KINDS = (("server", 1), ("server", 2), ("worker", 1))
HERE = Path("docs/results/ray-kills")


@dataclass(frozen=True, slots=True)
class Row:
    """One kill."""

    kill: int
    job: int
    killed: str
    at_iter: int
    lost_blocks: int
    detection_s: float
    view_s: float
    load_s: float
    again_s: float
    to_next_commit_s: float
    undisturbed_s: float
    over_s: float
    load_average: float

    @property
    def over_with_load_s(self) -> float:
        """How much later the next commit comes than it would have."""
        return self.to_next_commit_s - self.undisturbed_s


class Round:
    """One job, and the kills in it."""

    def __init__(self, number: int, n_kills: int, first_kill: int, rng: random.Random) -> None:
        self.rows: list[Row] = []
        self._number = number
        self._n_kills = n_kills
        self._first_kill = first_kill
        self._rng = rng
        self._commits: list[float] = []
        self._undisturbed_s = 0.0
        self._killed: list[str] = []
        self._killed_at_s = 0.0
        self._at: dict[str, float] = {}
        self._n_lost = 0
        self._lost_blocks = 0
        self._asked_for_more = False
        self.job: scar.Job

    def __call__(self, record: scar.Record) -> None:
        """Something has happened in the job."""
        now_s = monotonic()
        match record.name:
            case "node_lost":
                self._n_lost += 1
                self._at["lost"] = now_s
            case "recovery_started":
                self._at["view"] = now_s
                self._lost_blocks = record["lost_blocks"]
            case "recovery_completed":
                self._at["loaded"] = now_s
            case "handover_started" if not self._killed:
                self._commits = []
            case "iteration_committed":
                self._committed(record["iteration"], now_s)

    def _committed(self, iteration: int, now_s: float) -> None:
        if self._killed and self._n_lost == len(self._killed) and "loaded" in self._at:
            self._measure(iteration, now_s)
            return
        if self._killed:
            return
        self._commits.append(now_s)
        servers, workers = self._view
        if len(self.rows) == self._n_kills:
            self._post(m.StopRequested("enough kills"))
        elif (len(servers), len(workers)) != (SERVERS, WORKERS):
            if not self._asked_for_more:
                self._asked_for_more = True
                self._post(m.ScaleRequested(SERVERS, WORKERS))
        elif len(self._commits) > UNDISTURBED:
            self._asked_for_more = False
            self._strike(servers, workers)

    def _strike(self, servers: list[str], workers: list[str]) -> None:
        kind, n = self._rng.choice(KINDS)
        self._killed = self._rng.sample(servers if kind == "server" else workers, n)
        self._n_lost, self._at = 0, {}
        self._undisturbed_s = statistics.median(b - a for a, b in pairwise(self._commits))
        pids = [self._place(node) for node in self._killed]

        def kill() -> None:
            self._killed_at_s = monotonic()
            for pid in pids:
                os.kill(pid, signal.SIGKILL)

        timer = threading.Timer(self._rng.uniform(0, 2 * self._undisturbed_s), kill)
        timer.daemon = True
        timer.start()

    def _measure(self, iteration: int, now_s: float) -> None:
        at = self._at
        load_s = at["loaded"] - at["view"]
        whole_s = now_s - self._killed_at_s
        kind = self._killed[0].split("-")[0]
        row = Row(
            kill=self._first_kill + len(self.rows),
            job=self._number,
            killed=f"{len(self._killed)} {kind}{'s' if len(self._killed) > 1 else ''}",
            at_iter=iteration - 1,
            lost_blocks=self._lost_blocks,
            detection_s=round(at["lost"] - self._killed_at_s, 5),
            view_s=round(at["view"] - at["lost"], 5),
            load_s=round(load_s, 5),
            again_s=round(now_s - at["loaded"], 5),
            to_next_commit_s=round(whole_s, 5),
            undisturbed_s=round(self._undisturbed_s, 5),
            over_s=round(whole_s - self._undisturbed_s - load_s, 5),
            load_average=os.getloadavg()[0],
        )
        self.rows.append(row)
        print(row, file=sys.stderr, flush=True)
        self._killed, self._commits = [], []

    @property
    def _view(self) -> tuple[list[str], list[str]]:
        view = self.job._controller.view  # type: ignore[union-attr]
        return list(view.servers), list(view.workers)

    def _post(self, event: m.Event) -> None:
        self.job._engine.post(event)  # type: ignore[union-attr]

    def _place(self, node: str) -> int:
        pid, _ = self.job._engine.place(node)  # type: ignore[union-attr]
        assert pid is not None
        return pid


def live(one: Round, settings: dict[str, Any], engine: Any) -> None:
    """One job with its kills; then nothing that it said was saved may be lost."""
    with tempfile.TemporaryDirectory() as folder:
        common = {**settings, "run": folder, "stop": scar.Stop(max_iters=10_000_000)}
        one.job = scar.Job(**common, engine=engine, servers=SERVERS, workers=WORKERS, resume="auto", on_event=one)
        result = one.job.run()
        assert (result.outcome, result.saved) == ("stopped", True), result
        assert len(result.failures) == sum(int(row.killed.split()[0]) for row in one.rows), "nobody else was lost"
        found = verify(LocalStore(folder))
        assert not found.damaged, found.damaged
        common["stop"] = scar.Stop(max_iters=result.iteration)
        again = scar.Job(**common, servers=1, workers=1, resume="must").run()
        assert again.resumed_from is not None
        assert (again.resumed_from["iteration"], again.digest) == (result.iteration, result.digest)


def in_words(rows: list[Row], options: argparse.Namespace, ray_version: str) -> str:
    """The table."""
    model_name = Path("/proc/cpuinfo").read_text().split("model name")[1].split("\n")[0].strip("\t :")
    loads = sorted(row.load_average for row in rows)
    lines = [
        "# A killed process, and training goes on",
        "",
        f"`python scripts/soak_ray_kills.py --kills {options.kills} --seed {options.seed}`: {len(rows)} times SIGKILL,",
        f"at random moments, to one or two of {SERVERS} servers or one of {WORKERS} workers of a job on Ray",
        f"({options.problem}, priority 1/8 per 8 iterations). Not once was anything lost that had been reported saved:",
        "after every job its folder was verified, and resumed to the same bits.",
        "",
        f"Machine: {os.cpu_count()} cores ({model_name}), shared with other work: load average",
        f"{loads[0]:.1f} to {loads[-1]:.1f}, median {statistics.median(loads):.1f}.",
        f"Python {platform.python_version()}, Ray {ray_version}.",
        "What is measured is said in the script; a row a kill in `kills.csv`. The read is all that lies between the",
        "new view and the moment when all obey it.",
        "",
    ]
    columns = {
        "detection_s": "SIGKILL → known",
        "view_s": "→ new view",
        "load_s": "→ all obey it, lost blocks read",
        "again_s": "→ next commit",
        "to_next_commit_s": "SIGKILL → next commit",
        "undisturbed_s": "an undisturbed iteration",
        "over_with_load_s": "next commit − iteration",
        "over_s": "**over: next commit − iteration − read**",
    }
    for what in ("all", *sorted({row.killed for row in rows})):
        some = [row for row in rows if what in ("all", row.killed)]
        lines += [
            f"## {what[0].upper() + what[1:]} ({len(some)})",
            "",
            "| ms | median | p95 | max |",
            "| --- | --: | --: | --: |",
        ]
        for column, words in columns.items():
            values = sorted(1000 * getattr(row, column) for row in some)
            p95 = values[max(0, -(-95 * len(values) // 100) - 1)]
            lines.append(f"| {words} | {statistics.median(values):.0f} | {p95:.0f} | {values[-1]:.0f} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Kill, measure, write."""
    import ray

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--kills-per-job", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--problem", choices=["mlr mnist-10k", "mf movielens-small"], default="mlr mnist-10k")
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    name, data = options.problem.split()
    model: Any = scar.MLR() if name == "mlr" else scar.MF()
    settings: dict[str, Any] = {"model": model, "data": data, "seed": options.seed}
    settings["checkpoint"] = scar.Checkpoint("priority", "1/8", 8)
    rng = random.Random(options.seed)
    rows: list[Row] = []
    with RayCluster() as engine:
        while len(rows) < options.kills:
            n_kills = min(options.kills_per_job, options.kills - len(rows))
            one = Round(1 + len(rows) // options.kills_per_job, n_kills, 1 + len(rows), rng)
            live(one, settings, engine)
            rows += one.rows
            options.out.mkdir(parents=True, exist_ok=True)
            with (options.out / "kills.csv").open("w", newline="") as f:
                writer = csv.DictWriter(f, [field.name for field in fields(Row)])
                writer.writeheader()
                writer.writerows(asdict(row) for row in rows)
            (options.out / "README.md").write_text(in_words(rows, options, ray.__version__))
    print((options.out / "README.md").read_text())


if __name__ == "__main__":
    main()

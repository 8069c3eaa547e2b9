"""A user's own script: `model` is of this file or of a module beside it. Run by test_ray_failures."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scarml as scar


@dataclass(frozen=True)
class Here(scar.MLR):
    """A class of `__main__`."""

    def compute(self, *args: Any) -> Any:
        return super().compute(*args)


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def tell(record: scar.Record) -> None:
    if record.name in ("run_started", "node_joined", "node_lost"):
        pids = [pid_of(n) for n in [*record.fields.get("servers", ()), *record.fields.get("workers", ())]]
        say(event=record.name, pids=pids)
    elif record.name == "iteration_committed":
        say(event=record.name, iteration=record["iteration"])
    elif record.name == "save_committed":
        say(event=record.name)


def pid_of(node: str) -> Any:
    return job._engine.place(node)[0]  # type: ignore[union-attr]


if __name__ == "__main__":
    from model_beside import Beside, make_data  # lies beside this file where it is run

    from scarml.engine.ray.connection import RayCluster

    with RayCluster() as cluster:
        Path("folder").write_text(str(cluster._folder))
        common: dict[str, Any] = {"engine": cluster, "shards": 6, "seed": 3, "on_event": tell}
        job = scar.Job(
            Here(batch_size=20),
            make_data(),
            servers=2,
            workers=1,
            stop=scar.Stop(max_iters=1_000_000),
            handle_signals=True,
            **common,
        )
        result = job.run()
        say(event="first", outcome=result.outcome, n_iters=result.iteration, digest=result.digest)
        kills = [scar.Kill.parse("servers:1@2"), scar.Kill.parse("workers:1@4")]
        job = scar.Job(
            Beside(batch_size=20),
            make_data(),
            servers=3,
            workers=2,
            checkpoint=scar.Checkpoint("priority", "1/4", 4),
            stop=scar.Stop(max_iters=1_000_000),
            run=sys.argv[1],
            kills=kills,
            **common,
        )
        job.run()

"""Live as many simulated lives as the time allows: ``python scripts/soak_lives.py --minutes 40 --first-seed 100000``.

Each process takes every n-th seed. Prints one JSON object: lives, seeds, failures (with their seeds), faults, checks.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import time
from collections import Counter
from typing import Any

PROBLEMS = ("mlr", "mf", "lda", "adam", "qp")


def live_until(end_s: float, first_seed: int, stride: int) -> dict[str, Any]:
    """One process's share."""
    from scarml.engine.simulation import live
    from scarml.testing import tiny_problem

    lives, faults, checks, failures = 0, Counter[str](), Counter[str](), {}
    seed = first_seed
    while time.time() < end_s:
        try:
            life = live(seed, tiny_problem(PROBLEMS[seed % len(PROBLEMS)]))
            faults += life.faults
            checks += life.checks
        except Exception as error:  # noqa: BLE001 - whatever goes wrong in a life is what is looked for
            failures[seed] = f"{type(error).__name__}: {error}"[:500]
        lives += 1
        seed += stride
    return {"lives": lives, "last_seed": seed - stride, "faults": faults, "checks": checks, "failures": failures}


def main() -> None:
    """Run the processes, and add up what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--first-seed", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    end_s = time.time() + 60 * options.minutes
    with multiprocessing.Pool(options.processes) as pool:
        shares = pool.starmap(
            live_until, [(end_s, options.first_seed + i, options.processes) for i in range(options.processes)]
        )
    summary = {
        "minutes": options.minutes,
        "processes": options.processes,
        "python": platform.python_version(),
        "first_seed": options.first_seed,
        "last_seeds": [s["last_seed"] for s in shares],
        "lives": sum(s["lives"] for s in shares),
        "failures": {seed: text for s in shares for seed, text in s["failures"].items()},
        "faults": dict(sum((s["faults"] for s in shares), Counter[str]())),
        "checks": dict(sum((s["checks"] for s in shares), Counter[str]())),
    }
    print(json.dumps(summary, indent=2))


if __name__ == "__main__":
    main()

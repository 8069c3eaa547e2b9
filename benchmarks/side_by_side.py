"""Measures things next to each other: the same run, the same machine, turn by turn, and only ratios are compared.

Absolute times of one run say little about another machine, or about the same one an hour later. So every benchmark here
measures a reference beside what it is about, in alternation, and reports the median of the ratios of each round, with
its middle half. A benchmark is a function ``measure(quick) -> list[Row]``, and a script that hands it to `main`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

Task = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One line of a benchmark's table.

    Args:
        what: was measured.
        reference: what it is compared with.
        figure: the ratio, or another figure if `unit` says so.
        low, high: its middle half over the rounds.
        target: in words; empty if there is none.
        met: whether the figure meets the target; None if there is none.
        unit: of the figure; a ratio by default.
        seconds, reference_seconds: medians, if it is a ratio of times.
    """

    what: str
    reference: str
    figure: float
    low: float
    high: float
    target: str = ""
    met: bool | None = None
    unit: str = "×"
    seconds: float | None = None
    reference_seconds: float | None = None


def alternate(
    tasks: Mapping[str, Task], rounds: int, *, warm_ups: int = 1, clock_s: Callable[[], float] = time.process_time
) -> dict[str, np.ndarray]:
    """Seconds of every task in every round, shape (rounds,) each. The order changes from round to round.

    The clock is the processor time of this process, which other programs on the machine disturb least. What waits for a
    disk or for other threads needs ``time.perf_counter``.
    """
    for task in list(tasks.values()) * warm_ups:
        task()
    seconds = {name: np.empty(rounds) for name in tasks}
    names = list(tasks)
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            start_s = clock_s()
            tasks[name]()
            seconds[name][i] = clock_s() - start_s
    return seconds


def ratio_row(
    what: str, reference: str, seconds: np.ndarray, reference_s: np.ndarray, *, at_most: float | None = None
) -> Row:
    """Time ÷ reference time, with a target that it may not exceed."""
    ratios = seconds / reference_s
    figure = float(np.median(ratios))
    return Row(
        what,
        reference,
        figure,
        float(np.quantile(ratios, 0.25)),
        float(np.quantile(ratios, 0.75)),
        target=f"≤ {at_most:g}" if at_most is not None else "",
        met=figure <= at_most if at_most is not None else None,
        seconds=float(np.median(seconds)),
        reference_seconds=float(np.median(reference_s)),
    )


def speed_row(
    what: str, reference: str, seconds: np.ndarray, reference_s: np.ndarray, *, at_least: float | None = None
) -> Row:
    """Speed ÷ reference speed, that is reference time ÷ time, with a target that it has to reach."""
    speeds = reference_s / seconds
    figure = float(np.median(speeds))
    return Row(
        what,
        reference,
        figure,
        float(np.quantile(speeds, 0.25)),
        float(np.quantile(speeds, 0.75)),
        target=f"≥ {at_least:g}" if at_least is not None else "",
        met=figure >= at_least if at_least is not None else None,
        unit="× speed",
        seconds=float(np.median(seconds)),
        reference_seconds=float(np.median(reference_s)),
    )


def machine() -> str:
    """The machine in one line, with how busy it is: timings mean nothing without."""
    model = next((s.split(":")[1].strip() for s in _lines("/proc/cpuinfo") if s.startswith("model name")), "")
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{model or platform.processor() or platform.machine()}, {os.cpu_count()} cores{load}, {platform.system()} "
        f"{platform.release().split('-')[0]}, Python {platform.python_version()}, NumPy {np.__version__}"
    )


def to_markdown(rows: Sequence[Row]) -> str:
    """A table for people."""
    lines = ["| what | reference | figure | middle half | target | time |", "| --- | --- | --- | --- | --- | --- |"]
    for r in rows:
        target = {None: r.target, True: f"{r.target}, met", False: f"{r.target}, **missed**"}[r.met]
        times = f"{_time(r.seconds)} : {_time(r.reference_seconds)}" if r.seconds and r.reference_seconds else ""
        figure = f"{r.figure:.3g} {r.unit}"
        lines.append(f"| {r.what} | {r.reference} | {figure} | {r.low:.3g} … {r.high:.3g} | {target} | {times} |")
    return "\n".join(lines)


def main(measure: Callable[[bool], list[Row]], file: str) -> None:
    """Run one benchmark as a command."""
    parser = argparse.ArgumentParser(description=file)
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    start_s = time.perf_counter()
    rows = measure(options.quick)
    name = Path(file).stem
    if options.json:
        about = {"benchmark": name, "quick": options.quick, "machine": machine(), "date": time.strftime("%Y-%m-%d")}
        print(json.dumps({**about, "rows": [asdict(r) for r in rows]}))
        return
    print(f"{name}: {machine()}; {time.perf_counter() - start_s:.0f} s\n\n{to_markdown(rows)}\n")


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []

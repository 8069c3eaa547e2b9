"""Every benchmark runs, and its figures are figures. Their sizes are not judged: machines that run tests are busy."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PARTS = {"side_by_side", "stepped_job", "save_tasks", "run_all"}
NEEDS = {"lda_sampler": "tomotopy", "mf_iteration": "implicit", "library_saves": "torch", "ray_engine": "ray"}
NAMES = sorted(f.stem for f in BENCHMARKS.glob("*.py") if f.stem not in PARTS)


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.ci
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.xdist_group("ray")) if n == "ray_engine" else n for n in NAMES]
)
def test_benchmark_gives_figures(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason="pip install -e '.[bench]'")
    result = json.loads(run(f"{name}.py", "--quick", "--json"))
    assert result["quick"]
    assert result["rows"]
    for row in result["rows"]:
        figure = f"{row['figure']:.3g} {row['unit']} (target {row['target'] or 'none'})"
        print(f"{row['what']} ÷ {row['reference']}: {figure}")  # noqa: T201 - seen with -s, and when a test fails
        assert math.isfinite(row["figure"])
        assert row["low"] <= row["high"]
        if row["unit"].startswith("×"):
            assert 1e-4 < row["figure"] < 1e4


@pytest.mark.ci
def test_all_benchmarks_are_run_by_make_bench() -> None:
    shown = run("-c", "import run_all; print(*sorted(run_all.BENCHMARKS))")
    assert shown.split() == NAMES


@pytest.mark.ci
def test_a_table_for_people() -> None:
    assert "| what | reference | figure |" in run("engine_overhead.py", "--quick")

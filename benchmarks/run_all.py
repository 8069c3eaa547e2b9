"""Runs every benchmark, each in a process of its own, and puts the tables into docs/benchmarks.md if asked to."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from side_by_side import Row, to_markdown

from scarml.errors import UsageError
from scarml.experiments.marked_page import replace_marked

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
BENCHMARKS = (
    "saving_in_memory",
    "training_with_saves",
    "saving_on_disk",
    "library_saves",
    "mlr_iteration",
    "mf_iteration",
    "lda_sampler",
    "engine_overhead",
    "ray_engine",
)


def run(name: str, quick: bool) -> str:
    """A benchmark's table, with command, machine and date."""
    command = [sys.executable, str(HERE / f"{name}.py"), "--json", *(["--quick"] if quick else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name} failed: see above")
    result = json.loads(done.stdout)
    rows = [Row(**row) for row in result["rows"]]
    shown = f"python benchmarks/{name}.py{' --quick' if quick else ''}"
    return f"`{shown}`, {result['date']}. {result['machine']}.\n\n{to_markdown(rows)}\n"


def write(page: Path, name: str, table: str) -> None:
    """Put a table between its marks on the page."""
    try:
        page.write_text(replace_marked(page.read_text(), name, table.rstrip("\n")))
    except UsageError as error:
        sys.exit(f"{page}: {error}")


def main() -> None:
    """Run the benchmarks that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="which; all by default")
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds: do they work at all?")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    for name in options.names or BENCHMARKS:
        table = run(name, options.quick)
        print(f"== {name}\n\n{table}", flush=True)
        if options.write:
            write(PAGE, name, table)


if __name__ == "__main__":
    main()

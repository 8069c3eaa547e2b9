"""Write the table of mutations in docs/testing.md: which life notices each, and what it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "testing.md"
BEGIN, END = "<!-- generated: mutation table -->", "<!-- end of generated: mutation table -->"


def rows() -> list[str]:
    """One row a mutation, each the first life that notices it."""
    sys.path.insert(0, str(ROOT))
    from tests.simulation.mutations import MUTATIONS
    from tests.simulation.test_mutations import first_noticed

    lines = ["| mutation | noticed in life | what it says |", "| --- | --- | --- |"]
    for mutation in MUTATIONS:
        with pytest.MonkeyPatch.context() as patch:
            mutation.concentrate(patch)
            mutation.apply(patch)
            seed, story = first_noticed(mutation)
        story = re.sub(r"^seed \d+: ", "", story).replace("|", "\\|")
        lines.append(f"| {mutation.name} | {seed} | {story} |")
    return lines


def main() -> None:
    """Replace what stands between the markers."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text("\n".join([before + BEGIN, *rows(), END + after]))


if __name__ == "__main__":
    main()

"""Check that the docs name what the code offers, and that their links lead somewhere.

Prints every gap and exits 1 if there is one. Looked for:

* every name of ``scarml.__all__`` and ``scarml.theory.__all__`` in docs/reference/python.md;
* every command of ``scarml`` in docs/reference/cli.md;
* every class of ``scarml.errors`` in docs/reference/errors.md;
* every event of a run in docs/reference/events.md, every data set in docs/reference/data.md;
* every relative link in README.md, CONTRIBUTING.md and docs/.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

import scarml
import scarml.cli
import scarml.errors
import scarml.theory
from scarml.control.history import RECORD_NAMES
from scarml.data.registry import list_data_sets

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")


def command_names(command: Any, prefix: str = "scarml") -> Iterator[str]:
    """Full names of all commands that do something, hidden ones left out, for example ``scarml data list``."""
    children = getattr(command, "commands", {})
    if not children:
        yield prefix
    for name, child in sorted(children.items()):
        if not child.hidden:
            yield from command_names(child, f"{prefix} {name}")


def missing_names(page: Path, names: Iterable[str]) -> Iterator[str]:
    """One line for each name that the page does not show as code."""
    text = page.read_text()
    for name in names:
        if not re.search(rf"`[^`\n]*(?<![\w-]){re.escape(name)}(?![\w-])", text):
            yield f"{page.relative_to(ROOT)}: does not mention `{name}`"


def dead_links() -> Iterator[str]:
    """One line for each relative link to a file that is not there."""
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in LINK.findall(page.read_text()):
            if "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists():
                yield f"{page.relative_to(ROOT)}: link to {target}, which is not there"


def main() -> None:
    """Print every gap; exit 1 if there is one."""
    gaps = [
        *missing_names(REFERENCE / "python.md", [n for n in scarml.__all__ if not n.startswith("_")]),
        *missing_names(REFERENCE / "python.md", scarml.theory.__all__),
        *missing_names(REFERENCE / "cli.md", command_names(typer.main.get_command(scarml.cli.app))),
        *missing_names(REFERENCE / "errors.md", scarml.errors.__all__),
        *missing_names(REFERENCE / "events.md", list(RECORD_NAMES)),
        *missing_names(REFERENCE / "data.md", [data_set.name for data_set in list_data_sets()]),
        *dead_links(),
    ]
    for gap in gaps:
        print(gap)
    if gaps:
        sys.exit(1)
    print("docs: all names mentioned, all links alive")


if __name__ == "__main__":
    main()

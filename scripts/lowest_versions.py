"""Print the lower bounds of SCAR's dependencies as pins, for pip's ``-c``: ``numpy>=2.0`` becomes ``numpy==2.0``.

Extras are left out: their tools may be as new as they like.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def main() -> None:
    """Print one pin a line."""
    for requirement in tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]:
        print(requirement.replace(">=", "=="))


if __name__ == "__main__":
    main()

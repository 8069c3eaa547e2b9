"""Rules about the source that import-linter cannot state; the layers themselves are checked by `make check`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import scarml

SOURCE = Path(next(iter(scarml.__path__)))
PURE = ("core", "theory", "checkpoint", "control")
ALLOWED_IN_PURE = {  # standard library and packages that read no clock, do no I/O and start no thread
    *(
        "__future__",
        "abc",
        "bisect",
        "collections",
        "dataclasses",
        "enum",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
    ),
    *("itertools", "math", "numbers", "operator", "string", "struct", "textwrap", "types", "typing", "zlib"),
    *("llvmlite", "numba", "numpy", "scipy", "scarml"),  # llvmlite: what numba generates code with
}
IO_BUILTINS = {"breakpoint", "exec", "eval", "input", "open", "print"}


def violations(code: str, path: str) -> Iterator[str]:
    """What a pure module does that it must not."""
    for node in ast.walk(ast.parse(code)):
        where = f"{path}:{getattr(node, 'lineno', 0)}"
        for module in _imported(node):
            if module.partition(".")[0] not in ALLOWED_IN_PURE:
                yield f"{where}: imports {module}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IO_BUILTINS:
            yield f"{where}: calls {node.func.id}()"
        if isinstance(node, ast.Global):
            yield f"{where}: keeps global state {node.names}"
        if isinstance(node, ast.Attribute) and ast.unparse(node) in _UNSEEDED:
            yield f"{where}: {ast.unparse(node)}; take randomness from scarml.core.rng"


_UNSEEDED = {"np.random.default_rng", "np.random.seed", "np.random.rand", "np.random.randn", "np.random.random"}


@pytest.mark.parametrize("package", PURE)
def test_pure_packages_do_no_io(package: str) -> None:
    found = [v for f in sorted((SOURCE / package).rglob("*.py")) for v in violations(f.read_text(), f.name)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "def f():\n    from threading import Thread",
        "import os.path",
        "x = open('file')",
        "print(1)",
        "def f():\n    global n\n    n = 1",
        "import numpy as np\nr = np.random.default_rng()",
    ],
)
def test_a_violation_is_seen(code: str) -> None:
    assert list(violations(code, "x.py"))


def test_nothing_that_is_read_can_run_code() -> None:
    # `testing` reads no files: it pickles models and shards to see whether they could be sent to another process.
    files = (f for f in SOURCE.rglob("*.py") if f.relative_to(SOURCE).parts[0] != "testing")
    for file in sorted(files):
        text = file.read_text()
        if not any(word in text for word in ("pickle", "marshal", "shelve")):
            continue
        for node in ast.walk(ast.parse(text)):
            assert not {"pickle", "marshal", "shelve"} & set(_imported(node)), f"{file}: imports pickle or its kin"
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert ast.unparse(node.value) == "False", f"{file}:{node.value.lineno}: allow_pickle"


def test_logging_is_left_to_the_program() -> None:
    for file in sorted(SOURCE.rglob("*.py")):
        if "cli" not in file.relative_to(SOURCE).parts:
            assert "basicConfig(" not in file.read_text(), f"{file}: only the command line sets up logging"


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []

"""What users see: names, docstrings, and how little `import scarml` costs."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import scarml

SUBMODULES = {module.name for module in pkgutil.iter_modules(scarml.__path__)}
PACKAGES = sorted(f"scarml.{m.name}" for m in pkgutil.iter_modules(scarml.__path__) if m.ispkg)
MODULES = sorted(m.name for m in pkgutil.walk_packages(scarml.__path__, "scarml."))
ON_DEMAND = {"torch", "ray", "matplotlib", "typer", "rich"}
SLOW_TO_LOAD = ON_DEMAND | {"numba", "scipy"}
OPTIONAL = ("torch", "ray")  # modules that need them are skipped where they are not installed


def test_all_is_exactly_what_is_visible() -> None:
    for name in scarml.__all__:
        getattr(scarml, name)  # lazy names become attributes
    visible = {name for name in dir(scarml) if not name.startswith("_")}
    assert visible - SUBMODULES == {n for n in scarml.__all__ if not n.startswith("_")} - SUBMODULES
    assert len(set(scarml.__all__)) == len(scarml.__all__)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = scarml.no_such_name


@pytest.mark.parametrize("name", [n for n in scarml.__all__ if not n.startswith("_")])
def test_public_names_are_documented(name: str) -> None:
    thing = getattr(scarml, name)
    if inspect.isclass(thing) or inspect.isroutine(thing) or isinstance(thing, ModuleType):
        is_own = inspect.isroutine(thing) or "__doc__" in vars(thing)  # inherited does not count
        doc = inspect.getdoc(thing) if is_own else None
        first_line = (doc or "").partition("\n")[0]
        assert first_line.endswith((".", "?")), f"scarml.{name} needs a docstring whose first line is a sentence"


@pytest.mark.parametrize("name", ["scarml", *MODULES])
def test_names_in_all_exist(name: str) -> None:
    module = _import(name)
    exported = list(getattr(module, "__all__", []))
    missing = [n for n in exported if not hasattr(module, n)]
    assert not missing, f"{name}.__all__ lists {missing}, which are not there"
    assert len(set(exported)) == len(exported)


@pytest.mark.parametrize("name", PACKAGES)
def test_packages_say_what_they_are_for(name: str) -> None:
    assert (_import(name).__doc__ or "").strip(), f"{name} needs a docstring"


def test_heavy_libraries_are_loaded_on_demand() -> None:
    # Each of these may be used by somebody who has no picture to draw and no terminal to write to.
    names = ("control", "data", "engine", "experiments", "job", "models", "storage", "testing")
    scarml_alone, public_names, packages = _loaded_after(
        "import scarml",
        "[getattr(scarml, name) for name in scarml.__all__]",
        "; ".join(f"import scarml.{name}" for name in names),
    )
    assert not scarml_alone & SLOW_TO_LOAD, f"`import scarml` loads {sorted(scarml_alone & SLOW_TO_LOAD)}"
    assert not public_names & ON_DEMAND, f"SCAR's public names load {sorted(public_names & ON_DEMAND)}"
    assert not packages & ON_DEMAND, f"importing SCAR's packages loads {sorted(packages & ON_DEMAND)}"


def _loaded_after(*statements: str) -> list[set[str]]:
    """Top-level packages that one fresh interpreter has loaded after each of the statements."""
    say = "import json, sys; print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"
    code = "\n".join(f"{statement}\n{say}" for statement in statements)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [set(json.loads(line)) for line in done.stdout.splitlines()]


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name in OPTIONAL:
            pytest.skip(f"{name} needs {error.name}, which is not installed")
        raise

"""`scarml.theory` exports on purpose: what its modules make public, and nothing else."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import scarml.theory

INTERNAL = {"assumptions", "exponential_fit"}
"""Modules that only other modules of the package use."""

RESULTS = {scarml.theory.Interval, scarml.theory.RateEstimate, scarml.theory.RunTime}
"""What functions return; the examples are theirs."""


def test_all_is_what_the_modules_export() -> None:
    modules = {m.name for m in pkgutil.iter_modules(scarml.theory.__path__)} - INTERNAL
    exported = {n for m in modules for n in importlib.import_module(f"scarml.theory.{m}").__all__}
    assert set(scarml.theory.__all__) == exported


@pytest.mark.parametrize("name", scarml.theory.__all__)
def test_every_name_is_there_with_a_docstring(name: str) -> None:
    thing = getattr(scarml.theory, name)
    if inspect.isroutine(thing) or inspect.isclass(thing):
        doc = inspect.getdoc(thing) or ""
        assert doc.partition("\n")[0].endswith((".", "?"))
        assert "Example:" in doc or thing in RESULTS

"""``scarml data list``: which data sets there are, and which are present."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from scarml.data.registry import DataSet

__all__ = ["app"]

SCHEMA_VERSION = 1

app = typer.Typer(no_args_is_help=True, help="Data sets.")


@app.callback()
def data() -> None:
    """Data sets."""


@app.command("list")
def list_data(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Show every data set: what it is, and where it is or how to get it."""
    from scarml.data.registry import list_data_sets

    described = [_describe(d) for d in list_data_sets()]
    if as_json:
        print(json.dumps({"schema_version": SCHEMA_VERSION, "data_sets": described}, indent=2))
        return
    for d in described:
        print(f"{d['name']:<12} {d['description']}")
        for label in ("shape", "where", "terms", "source"):
            _print_wrapped(label, d[label])
        print()


def _describe(data_set: DataSet) -> dict[str, Any]:
    return {
        "name": data_set.name,
        "description": data_set.description,
        "shape": data_set.shape,
        "present": data_set.present,
        "where": _where(data_set),
        "source": data_set.source,
        "files": [f"{data_set.folder}/{f}" for f in data_set.files],
        "terms": data_set.terms,
    }


def _where(data_set: DataSet) -> str:
    import os

    if not data_set.folder:
        return "present: comes with SCAR"
    base = os.environ.get("SCAR_DATA_DIR")
    if data_set.present:
        return f"present: {base}/{data_set.folder}"
    files = ", ".join(f"{data_set.folder}/{f}" for f in data_set.files)
    place = f"in {base} (SCAR_DATA_DIR)" if base else "in a folder of your choice, and name that in SCAR_DATA_DIR"
    return f"missing: get it from the source below, and put {files} {place}"


def _print_wrapped(label: str, text: str) -> None:
    indent = " " * 13
    wrapper = textwrap.TextWrapper(
        100,
        initial_indent=indent,
        subsequent_indent=indent + " " * 9,
        break_long_words=False,  # paths and addresses stay whole
        break_on_hyphens=False,
    )
    print(wrapper.fill(f"{label + ':':<8} {text}"))

"""``scarml data list``: which data sets there are, and which are present."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scarml.storage.json_text import to_json_text

if TYPE_CHECKING:
    from scarml.data.registry import DataSet

__all__ = ["app"]

SCHEMA_VERSION = 1

_NAME_WIDTH = 15
_LABEL_WIDTH = 10

app = typer.Typer(no_args_is_help=True, help="Data sets.")


@app.callback()
def data() -> None:
    """Data sets."""


@app.command("list")
def list_data(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Show every data set: what it is, and where it is or how to get it; and which files of your own can be read."""
    from scarml.data.own_file import READERS
    from scarml.data.registry import list_data_sets

    described = [_describe(d) for d in list_data_sets()]
    own = [{"suffix": suffix, "holds": holds} for suffix, (holds, _) in READERS.items()]
    if as_json:
        print(to_json_text({"schema_version": SCHEMA_VERSION, "data_sets": described, "own_files": own}, indent=2))
        return
    for d in described:
        print(f"{d['name']:<{_NAME_WIDTH}} {d['description']}")
        for label in ("shape", "where", "terms", "source"):
            _print_wrapped(label, d[label])
        print()
    print(f"{'PATH':<{_NAME_WIDTH}} a file of your own: what has a / or a . in it is a path")
    for o in own:
        _print_wrapped(o["suffix"], o["holds"])


def _describe(data_set: DataSet) -> dict[str, Any]:
    return {
        "name": data_set.name,
        "description": data_set.description,
        "shape": f"{data_set.shape}; with a test part" if data_set.read_test is not None else data_set.shape,
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
    files = (" or " if data_set.any_of else ", ").join(f"{data_set.folder}/{f}" for f in data_set.files)
    place = f"in {base} (SCAR_DATA_DIR)" if base else "in a folder of your choice, and name that in SCAR_DATA_DIR"
    return f"missing: get it from the source below, and put {files} {place}"


def _print_wrapped(label: str, text: str) -> None:
    indent = " " * (_NAME_WIDTH + 1)
    wrapper = textwrap.TextWrapper(
        100,
        initial_indent=indent,
        subsequent_indent=indent + " " * (_LABEL_WIDTH + 1),
        break_long_words=False,  # paths and addresses stay whole
        break_on_hyphens=False,
    )
    print(wrapper.fill(f"{label + ':':<{_LABEL_WIDTH}} {text}"))

"""``scarml export``: the newest durable state of a run as one safetensors file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scarml.storage.json_text import to_json_text

if TYPE_CHECKING:
    from scarml.storage.export import NewestState

__all__ = ["export"]

SCHEMA_VERSION = 1


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of the run.")],
    out: Annotated[str, typer.Argument(metavar="FILE", help="The safetensors file to write.")],
    table: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this table; repeatable.")] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="module:Class", help="The run's own model, for blocks that were never saved."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Write the newest durable value of every block to one safetensors file, which needs no SCAR to be read.

    Example: scarml export runs/mf mf.safetensors

    The values may be of different iterations; the output and the file's metadata say of which. Blocks that were never
    saved stand at x(0), which the model makes. May be used while the run is going on.
    """
    from scarml.cli.open_run import open_run
    from scarml.cli.origin import origin_of
    from scarml.storage.export import read_newest_state, write_safetensors

    _check_target(Path(out), force)
    folder = open_run(run)
    sys.path.insert(0, "")  # a model of the user's own may lie in the current folder
    state = read_newest_state(folder, table or (), lambda: origin_of(folder.description, model))
    n_bytes = write_safetensors(out, state.tensors(), _metadata(folder.description, state), replace=force)
    for damage in state.damaged:
        print(f"scarml: warning: not used: {damage}", file=sys.stderr)
    print(to_json_text(_to_json(run, out, state, n_bytes)) if as_json else _in_words(out, state, n_bytes))


def _check_target(out: Path, force: bool) -> None:
    """Before a long run is read: whether the file can be written at all."""
    from scarml.errors import UsageError

    if out.is_dir():
        raise UsageError(f"{out} is a folder; expected a file to write")
    if not out.parent.is_dir():
        raise UsageError(f"there is no folder {out.parent} to write {out.name} in")
    if out.exists() and not force:
        raise UsageError(f"{out} is there already; name another file, or replace it with --force")


def _metadata(description: dict[str, Any], state: NewestState) -> dict[str, str]:
    made_by = description.get("model")
    return {
        "made_by": "scarml export",
        "model": json.dumps(made_by) if made_by is not None else "",
        "oldest_iteration": str(state.oldest),
        "newest_iteration": str(state.newest),
        "blocks_at_x0": json.dumps(dict(state.n_initial)),
    }


def _in_words(out: str, state: NewestState, n_bytes: int) -> str:
    from scarml.cli.wording import counted, joined

    tables = joined([f"{name} ({counted(len(b), 'block')})" for name, b in state.tables.items()])
    span = f"iteration {state.newest}" if state.oldest == state.newest else f"{state.oldest} to {state.newest}"
    of = "of" if state.oldest == state.newest else "of iterations"
    initial = sum(state.n_initial.values())
    at_start = f"; {counted(initial, 'block')} at x(0), never saved" if initial else ""
    return f"{out}: {tables}, {n_bytes:,} bytes, values {of} {span}{at_start}"


def _to_json(run: str, out: str, state: NewestState, n_bytes: int) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "run": run,
        "file": out,
        "size_bytes": n_bytes,
        "tables": {
            name: {"n_blocks": len(b), "n_at_x0": state.n_initial[name], "fields": sorted(b.fields)}
            for name, b in state.tables.items()
        },
        "oldest_iteration": state.oldest,
        "newest_iteration": state.newest,
        "damaged": [str(d) for d in state.damaged],
    }

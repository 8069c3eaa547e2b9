"""``scarml figure``: the experiments of the paper, run again, with a table of results and a picture of each."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scarml.storage.json_text import to_json_text

if TYPE_CHECKING:
    from scarml.cli.figure_progress import TrialProgress
    from scarml.experiments.figures import Figure, Wanted
    from scarml.experiments.processes import Processes

__all__ = ["figure"]

SCHEMA_VERSION = 1


def figure(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which; all: one after the other.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show which there are.")] = False,
    panel: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run this panel only; may be repeated (default: all).")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Of each panel (default: the figure's own number).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller: seconds instead of minutes.")] = False,
    seed: Annotated[int, typer.Option(help="Of the perturbations; the training has its own.")] = 1,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Gets a folder of results for each figure.")] = Path(
        "scar-figures"
    ),
    pictures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Of the pictures (default: beside the results).")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 1,
    backend: Annotated[str, typer.Option(help="Of the processes: local, or ray (RAY_ADDRESS names the cluster).")] = (
        "local"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")] = False,
) -> int:
    """Run the paper's experiments again: a tidy table of all trials, and a picture.

    What is there already is kept: after an interrupt the same command goes on, and a larger --trials adds to it.
    """
    from scarml.cli.exit_codes import DONE, STOPPED_AND_SAVED
    from scarml.cli.figure_progress import TrialProgress
    from scarml.errors import UsageError
    from scarml.experiments import figures
    from scarml.experiments.processes import Processes

    if show_list:
        _list([figures.figure(n) for n in figures.NAMES], as_json)
        return DONE
    if name is None:
        raise UsageError(f"which figure? Expected one of {', '.join(figures.NAMES)}, or all")
    chosen = [figures.figure(n) for n in (figures.NAMES if name == "all" else (name,))]
    if panel and len(chosen) > 1:
        raise UsageError("--panel is for one figure; name it instead of all")
    wanted = figures.Wanted(quick, tuple(panel or ()), trials, seed)
    processes = Processes(jobs, backend)  # type: ignore[arg-type]  # checked there
    _check_folder("--out", out)
    if pictures is not None:
        _check_folder("--pictures", pictures)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    done = []
    with TrialProgress(quiet) as progress:
        try:
            for one in chosen:
                folder = out / (f"{one.file_name}-quick" if quick else one.file_name)
                done.append(_make(one, folder, pictures or folder, wanted, processes, progress))
                if not as_json:
                    _print(done[-1])
        except KeyboardInterrupt:
            progress.say("interrupted; every trial that was done is kept: the same command goes on")
            return STOPPED_AND_SAVED
    if as_json:
        made = [{key: value for key, value in one.items() if key != "words"} for one in done]
        print(to_json_text({"schema_version": SCHEMA_VERSION, "figures": made}))
    return DONE


def _make(
    one: Figure, folder: Path, pictures: Path, wanted: Wanted, processes: Processes, progress: TrialProgress
) -> dict[str, Any]:
    from scarml.errors import StoreError
    from scarml.plots.figures import draw

    began_s = time.monotonic()
    try:
        rows = one.run(folder, wanted, processes, progress.tell)
        drawn = draw(one.name, [asdict(row) for row in rows], pictures, one.file_name)
    except OSError as e:
        if not _is_of_output(e, folder, pictures):
            raise
        raise StoreError(
            f"{e.filename or folder} cannot be written: {e.strerror}; every trial that was written is kept, and the "
            "same command goes on"
        ) from e
    return {
        "figure": one.name,
        "settings": one.summary(rows),
        "words": one.words(rows),
        "results": str(folder),
        "pictures": [str(p) for p in drawn],
        "seconds": round(time.monotonic() - began_s, 1),
    }


def _check_folder(option: str, folder: Path) -> None:
    """Before hours of trials: whether a folder of results can be made or written in."""
    from scarml.errors import UsageError

    try:
        there = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    except OSError as e:
        raise UsageError(f"{option} {folder} cannot be used: {e.strerror}") from None
    if not there.is_dir():
        raise UsageError(f"{option} {folder}: {there} is a file; expected a folder, or a path where one can be made")
    if not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        raise UsageError(f"{option} {folder}: {there} cannot be read and written by this user; check its permissions")


def _is_of_output(e: OSError, *folders: Path) -> bool:
    """Whether a file in one of the folders could not be written; a full disk does not say which."""
    if e.filename is None:
        return e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
    path = Path(os.fsdecode(e.filename)).absolute()
    return any(path.is_relative_to(f.absolute()) or f.absolute().is_relative_to(path) for f in folders)


def _print(made: dict[str, Any]) -> None:
    print(f"{made['figure']}, {made['seconds']:,.0f} s; results: {made['results']}")
    for line in made["words"]:
        print(f"  {line}")
    for path in made["pictures"]:
        print(f"  picture: {path}")


def _list(figures: Sequence[Figure], as_json: bool) -> None:
    if as_json:
        described = [{"name": f.name, "description": f.description, "panels": list(f.panels)} for f in figures]
        print(to_json_text({"schema_version": SCHEMA_VERSION, "figures": described}))
        return
    for f in figures:
        print(f"{f.name:<21} {f.description}")
        print(f"{'':<21} panels: {', '.join(f.panels)}")

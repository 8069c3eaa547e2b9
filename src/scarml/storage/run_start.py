"""Starting a run: on a new folder, or going on with one; and from where."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from scarml.checkpoint.selection import Checkpoint
from scarml.checkpoint.version_index import Version
from scarml.control import messages as m
from scarml.control.early_stopping import BestSoFar
from scarml.core.block import Table
from scarml.errors import RunExistsError, UsageError
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment_reader import SegmentReader
from scarml.storage.store import Store
from scarml.storage.unit import FullSave

__all__ = ["Resume", "check_same_settings", "claim_start", "describe", "open_run", "start_from"]

_log = logging.getLogger(__name__)

Resume = Literal["auto", "must", "never"]


def describe(
    model: Any, data_name: str | None, seed: int, n_shards: int, tables: Sequence[Table], checkpoint: Checkpoint
) -> dict[str, Any]:
    """What is kept of a run's settings, JSON-ready: a start that goes on must have the same, see `open_run`.

    Where data is held out there is ``held_out`` besides: the share of the data, or where other data comes from.
    """
    is_data = dataclasses.is_dataclass(model) and not isinstance(model, type)
    parameters = dataclasses.asdict(model) if is_data else {}
    description = {
        "model": {"class": f"{type(model).__module__}:{type(model).__qualname__}", "parameters": parameters},
        "data": data_name,
        "seed": seed,
        "shards": n_shards,
        "tables": [_describe(t) for t in tables],
        "checkpoint": {f.name: str(getattr(checkpoint, f.name)) for f in dataclasses.fields(checkpoint) if f.init},
    }
    as_stored: dict[str, Any] = json.loads(json.dumps(description, default=str))
    return as_stored


def open_run(
    store: Store,
    description: Mapping[str, Any],
    resume: Resume,
    where: str,
    *,
    check_same: Callable[[Mapping[str, Any]], None],
    to_go_on: str,
) -> tuple[RunFolder, bool]:
    """The folder of a run, and whether it is new.

    Args:
        store: where it is, or is to be.
        description: kept with a new one.
        resume: whether to go on with a run that is there.
        where: the store as the user named it.
        check_same: given the description of a run that is there, raises UsageError unless it can be gone on with.
        to_go_on: what the user may write to go on with one that is there.

    Raises:
        RunExistsError: there is a run, and ``resume`` is ``never``.
        UsageError: there is none, and ``resume`` is ``must``; or it is a run of something else.
    """
    if resume == "never":
        try:
            return RunFolder.create(store, description), True
        except RunExistsError:
            raise RunExistsError(
                f"{where} has a run in it; continue it with {to_go_on}, or name another folder"
            ) from None
    is_run = RunFolder.is_run(store)
    if resume == "must" and not is_run:
        raise UsageError(f"there is no run in {where}; check the path, or start one with {to_go_on}")
    if not is_run:
        with suppress(RunExistsError):  # another start was faster: go on with what it made, if it is gone
            return RunFolder.create(store, description), True
    folder = RunFolder.open(store)
    check_same(folder.description)
    return folder, False


def check_same_settings(where: str, here: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    """See that two descriptions as of `describe` are of the same training.

    Raises:
        UsageError: the first difference.
    """
    difference = next(_differences(there, here), None)
    if difference is not None:
        what, stored, given = difference
        raise UsageError(
            f"the run in {where} has {what} {stored}, this command has {given}; give the same, or use another "
            "--run folder"
        )


def claim_start(folder: RunFolder, is_new: bool, recovery: str, where: str) -> m.Start:
    """Claim the next term of a run, and find where training goes on.

    Args:
        folder: owned by this process.
        is_new: it was just made.
        recovery: ``full`` goes back to the newest complete full save.
        where: the store as the user named it.
    """
    last = None if is_new else folder.last_term()
    if last is None:
        return m.Start(folder.claim_term("new"))
    unit = folder.last_unit(last)
    term = folder.claim_term((unit or "new") if recovery == "full" else "parent")
    start = start_from(folder.reader(term), term, unit)
    events = folder.read_events()
    executed = max((_count(e, "executed") for e in events if e["event"] == "iteration_committed"), default=0)
    saved = _last_reported_save(events)
    if saved > start.iteration and recovery != "full":  # full recovery goes back on purpose
        _log.warning(
            "the newest values in %s are of x(%d), but its event log tells of a save of x(%d): "
            "files of the run have been damaged or deleted",
            where,
            start.iteration,
            saved,
        )
    return dataclasses.replace(start, executed=max(executed, start.iteration))


def start_from(reader: SegmentReader, term: int, unit: FullSave | None) -> m.Start:
    """Where training goes on, from what is stored; what was done before is counted as if nothing had been repeated.

    Args:
        reader: the store as ``term`` sees it.
        term: just claimed.
        unit: the newest complete full save.
    """
    newest = reader.newest_version() or Version(0, 0, 0)
    extra = reader.newest_extra()
    best = BestSoFar.from_extra(extra[1]) if extra is not None else None
    version = Version(unit.term, unit.commit, unit.iteration) if unit else None
    return m.Start(term, newest.commit, newest.iteration, newest.iteration, version, best)


def _last_reported_save(events: Iterable[Mapping[str, Any]]) -> int:
    """The iteration of the newest save that was reported since the run last started, or was set back."""
    saved = 0
    for event in events:
        match event["event"]:
            case "save_committed":
                saved = max(saved, _count(event, "iteration"))
            case "rolled_back":
                saved = _count(event, "iteration")
            case "recovery_completed" if event.get("kind") == "start":
                saved = _count(event, "iteration")
    return saved


def _count(event: Mapping[str, Any], name: str) -> int:
    """A number in an event; 0 if it is none: events have no checksums, and a flipped bit may be in any of them."""
    value = event.get(name)
    return value if isinstance(value, int) else 0


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What must be the same and is not: its name, and its two values."""
    for key in ("model", "data", "seed", "shards", "tables"):
        if there.get(key) == here[key]:
            continue
        model, other = there.get("model"), here["model"]
        if key == "model" and isinstance(model, dict) and model.get("class") == other["class"]:
            ours, theirs = other["parameters"], dict(model.get("parameters", {}))
            for name in sorted({*theirs, *ours}):
                if theirs.get(name) != ours.get(name):
                    yield f"hyper-parameter {name}", theirs.get(name), ours.get(name)
        elif key == "model":
            yield key, model["class"] if isinstance(model, dict) else model, other["class"]
        elif key == "tables":
            stored, given = _by_name(there.get(key)), _by_name(here[key])
            differ = [name for name in sorted({*stored, *given}) if stored.get(name) != given.get(name)]
            yield from ((f"table {name}:", _in_words(stored.get(name)), _in_words(given.get(name))) for name in differ)
            if not differ:
                yield key, there.get(key), here[key]
        else:
            yield key, there.get(key), here[key]
    # Metrics may begin later; but what is trained on stays the same, and so does what best values were found on.
    held_out, wanted = there.get("held_out"), here.get("held_out")
    is_share = isinstance(held_out, float) or isinstance(wanted, float)
    if held_out != wanted and (is_share or None not in (held_out, wanted)):
        yield "held-out data", held_out, wanted
    # Full recovery sees complete saves only: it would silently drop what another policy has saved.
    policy, new_policy = dict(there.get("checkpoint") or {}).get("policy"), here["checkpoint"]["policy"]
    if (policy == "full") != (new_policy == "full"):
        yield "policy", policy, new_policy


def _by_name(tables: Any) -> dict[str, Any]:
    """Described tables; a description may have been changed by anybody."""
    listed = tables if isinstance(tables, list) else []
    return {str(t.get("name")): t for t in listed if isinstance(t, Mapping)}


def _in_words(table: Any) -> str:
    if table is None:
        return "none"
    try:
        fields = ", ".join(f"{f['name']} {f['dtype']} {f['shape']}" for f in table["fields"])
        return f"{table['n_blocks']:,} blocks of {fields}"
    except (KeyError, TypeError, ValueError):
        return str(table)


def _describe(table: Any) -> dict[str, Any]:
    return {
        "name": table.name,
        "n_blocks": table.n_blocks,
        "home": table.home,
        "derived": table.derived,
        "ragged": table.lengths is not None,
        "fields": [{"name": f.name, "dtype": f.dtype, "shape": list(f.shape)} for f in table.fields],
    }

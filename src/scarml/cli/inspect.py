"""``scarml inspect``: what is in a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scarml.storage.json_text import to_json_text

if TYPE_CHECKING:
    from scarml.storage.inspection import Inspection, OwnerState, SegmentState, TableState
    from scarml.storage.run_history import RunHistory

__all__ = ["inspect"]

SCHEMA_VERSION = 1
_BAR_CHARS = 40
_MOST_TERMS = 10
_MOST_UNITS = 3


def inspect(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of the run.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Show what is in a run: tables and how old their saved values are, segments, terms, history, owner.

    Example: scarml inspect runs/mf

    Changes nothing, and may be used while the run is going on.
    """
    from scarml.cli.open_run import store_of_run
    from scarml.storage.inspection import inspect

    found = inspect(store_of_run(run))
    if as_json:
        print(to_json_text({"schema_version": SCHEMA_VERSION, "run": run, **dataclasses.asdict(found)}))
        return
    for label, text in _rows(run, found):
        print(f"{label:<11} {text}".rstrip())


def _rows(run: str, x: Inspection) -> Iterator[tuple[str, str]]:
    yield "run", run
    yield from _described(x.description, len(x.terms))
    yield "owner", _owner(x.owner)
    saved = f"iteration {x.iteration}" if x.iteration is not None else "nothing yet"
    yield "saved", f"{saved}{f', in term {x.term}' if x.term is not None else ''}"
    for table in x.tables:
        yield from _table(table)
    yield from _segments(x.segments)
    for unit in x.units[:_MOST_UNITS]:
        state = f"cannot be used: {unit.problem}" if unit.problem else f"complete, {unit.n_segments} segments"
        yield "full save", f"of iteration {unit.iteration} (term {unit.term}, commit {unit.commit}): {state}"
    if len(x.units) > _MOST_UNITS:
        yield "", f"and {len(x.units) - _MOST_UNITS} older ones"
    yield from _terms(x)
    yield from _history(x.history)


def _described(d: dict[str, Any], n_terms: int) -> Iterator[tuple[str, str]]:
    model = d.get("model")
    if isinstance(model, dict):
        parameters = model.get("parameters")
        words = [f"{k}={v}" for k, v in parameters.items()] if isinstance(parameters, dict) else []
        yield "model", " ".join([str(model.get("class")), *words])
    elif model is not None:
        yield "model", str(model)
    if d.get("data") is not None:
        yield "data", str(d["data"])
    yield from ((key, str(d[key])) for key in ("seed", "shards") if key in d)
    if d.get("held_out") is not None:
        yield "held out", str(d["held_out"])
    if isinstance(d.get("checkpoint"), dict):
        settings = " ".join(f"{k}={v}" for k, v in d["checkpoint"].items())
        yield "checkpoint", f"{settings}{' (of the first start; later ones may differ)' if n_terms > 1 else ''}"


def _owner(owner: OwnerState | None) -> str:
    if owner is None:
        return "none"
    if owner.state == "ended":
        return f"none; the last was {owner.name}"
    heard = "gave no sign of life" if owner.silent_s is None else f"last sign of life {owner.silent_s:,.0f} s ago"
    return f"{owner.name}: {heard}{'' if owner.state == 'alive' else '; it is probably dead'}"


def _table(t: TableState) -> Iterator[tuple[str, str]]:
    fields = ", ".join(_field(name, f) for name, f in t.fields.items())
    yield "table", f"{t.name}: {t.n_blocks:,} blocks of {fields or 'unknown form'}"
    if t.derived:
        yield "", "derived from other state, never saved"
        return
    never = f"; {t.n_blocks - t.n_saved:,} never, they stand at x(0)" if t.n_saved < t.n_blocks else ""
    yield "", f"{t.n_saved:,} saved, {t.live_bytes:,} bytes{never}"
    if t.median is None:
        return
    yield "", f"as of iteration {t.oldest:,} (oldest), {t.median:,.0f} (median), {t.newest:,} (newest)"
    widest = max(b.n_blocks for b in t.ages)
    labels = [f"{b.youngest}" if b.youngest == b.oldest else f"{b.youngest}–{b.oldest}" for b in t.ages]
    for label, b in zip(labels, t.ages, strict=True):
        bar = "█" * round(_BAR_CHARS * b.n_blocks / widest) or ("▏" if b.n_blocks else "")
        yield "", f"{label:>{max(map(len, labels))}} old {b.n_blocks:>11,} {bar}"


def _field(name: str, f: dict[str, Any]) -> str:
    shape = f.get("shape")
    form = "[…]" if shape is None else "×".join(map(str, shape)) or "1"
    stored = [e for e in f.get("encodings", {}) if e != "plain"]
    return f"{name} {f.get('dtype')} {form}{f' stored as {chr(44).join(stored)}' if stored else ''}"


def _segments(s: SegmentState) -> Iterator[tuple[str, str]]:
    compacted = f", {s.n_compacted:,} of them compacted" if s.n_compacted else ""
    yield "segments", f"{s.n:,}{compacted}: {s.size_bytes:,} bytes, of these {s.live_bytes:,} of newest values"
    if s.n_not_counting:
        yield "", f"{s.n_not_counting:,} more that do not count: {s.not_counting_bytes:,} bytes"
    for problem in s.unreadable.values():
        yield "", f"DAMAGED: {problem}"


def _terms(x: Inspection) -> Iterator[tuple[str, str]]:
    if len(x.terms) > _MOST_TERMS:
        yield "terms", f"{len(x.terms)}, the last {_MOST_TERMS} of them:"
    for t in x.terms[-_MOST_TERMS:]:
        base = {
            "new": "from x(0)",
            "parent": f"went on from term {t.parent}",
            "unit": f"went back to a full save of term {t.parent}",
            None: "never did anything",
        }[t.kind]
        yield f"term {t.term}", f"{base}{f'; {t.owner}' if t.owner else ''}"


def _history(h: RunHistory) -> Iterator[tuple[str, str]]:
    from scarml.cli.wording import counted, metrics_in_words

    rollbacks = f", {counted(h.rollbacks, 'rollback')}" if h.rollbacks else ""
    yield "history", f"{counted(h.starts, 'start')}{rollbacks}, {counted(h.executed, 'iteration')} done in all"
    if h.nodes_lost or h.recoveries:
        recoveries = counted(h.recoveries, "recovery").replace("recoverys", "recoveries")
        yield "", f"{counted(h.nodes_lost, 'node')} lost, {recoveries}"
    saves = [f"{n:,} {what}" for what, n in (
        ("failed", h.saves_failed), ("given up", h.saves_given_up), ("skipped", h.saves_skipped),
    ) if n]  # fmt: skip
    yield "", ", ".join([f"{counted(h.saves_committed, 'save')} done", *saves])
    if h.loss_sum is not None:
        yield "", f"last loss_sum {h.loss_sum:,.6g}"
    if h.metrics:
        yield "", f"last held-out {metrics_in_words(h.metrics, h.metrics_iteration)}"
    if h.outcome is not None:
        yield "", f"last outcome: {h.outcome}{f', {h.reason}' if h.reason else ''}"

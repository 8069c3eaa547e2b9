"""The result of a run as a few lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scarml.cli.wording import joined, perturbation_in_words, restored_from
from scarml.result import Result

__all__ = ["in_lines"]

_OUTCOMES = {
    "converged": "converged",
    "stopped-early": "stopped early",
    "max-iters": "ended",
    "stopped": "stopped",
    "superseded": "superseded",
    "nodes-lost": "nodes lost",
    "store-down": "store down",
}


def in_lines(result: Result, run: str) -> list[str]:
    """Label and value, line by line."""
    return [f"{label:<11} {text}" for label, text in _rows(result, run)]


def _rows(r: Result, run: str) -> Iterator[tuple[str, str]]:
    yield "outcome", f"{_OUTCOMES[r.outcome]}: {r.reason}"
    again = f", {r.iterations - r.iteration} of them again" if r.iterations > r.iteration else ""
    yield "iterations", f"{r.iterations} done{again}; the state is x({r.iteration})"
    if r.losses:
        (_, first), (_, last) = r.losses[0], r.losses[-1]
        mean = f" ({last / r.n_examples:,.6g} per example)" if r.n_examples > 1 else ""
        yield "loss_sum", f"{first:,.6g} to {last:,.6g}{mean}"
    if r.metrics:
        (_, before), (_, now) = r.metrics[0], r.metrics[-1]
        for name, value in now.items():
            yield "held out", f"{name} {before[name]:,.6g} to {value:,.6g}{_best(r, name)}"
    if r.resumed_from:
        yield "resumed", f"at x({r.resumed_from['iteration']}): {restored_from(r.resumed_from)}"
    yield from _failures(r)
    for recovery in r.recoveries:
        yield "recovery", _recovery(recovery)
    yield "saves", f"{r.n_saves}: {r.bytes_saved:,} bytes of values, {r.stored_bytes:,} with ids and checksums"
    yield "time", f"{r.wall_s:.1f} s, of which training waited for saves {r.stall_s:.2f} s"
    if r.digest:
        yield "digest", r.digest
    yield "run", run


def _best(r: Result, name: str) -> str:
    """What early stopping knows. What is better by less than min_delta, or at the end, out of turn, does not count."""
    known = r.early_stopping
    if known.get("stops_by") != name or known["best"] is None:
        return ""
    return f"; the best that counted was {known['best']:,.6g}, on x({known['best_iteration']})"


def _failures(r: Result) -> Iterator[tuple[str, str]]:
    at: dict[tuple[int, str], list[str]] = {}
    for f in r.failures:
        how = " (simulated)" if f.get("simulated") else " (killed)" if f.get("killed") else ""
        at.setdefault((f["iteration"], how), []).append(f["node"])
    for (iteration, how), nodes in at.items():
        yield "lost", f"on x({iteration}): {joined(nodes)}{how}"


def _recovery(f: dict[str, Any]) -> str:
    text = f"{f['kind']}, at x({f['iteration']}), {f['seconds']:.2f} s: {restored_from(f)}"
    if "perturbation" in f and f["lost_blocks"]:
        text += f"; perturbation {perturbation_in_words(f)}"
    if f.get("repair_iters"):
        left = f["perturbation_repaired"]
        text += "" if left is None else f", {left:.3g} after the repair"
        text += f"; repaired in {f['repair_seconds']:.2f} s, {f['repair_iters']:.2f} of an iteration's work"
    return text

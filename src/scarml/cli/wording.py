"""Records in words, and numbers as people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from scarml.control.history import Record

__all__ = [
    "Tone",
    "counted",
    "in_words",
    "joined",
    "metrics_in_words",
    "perturbation_in_words",
    "restored_from",
    "sparkline",
    "tone_of",
]

Tone = Literal["good", "bad", "plain"]

_BAD = {
    "nodes_killed", "node_lost", "save_failed", "save_given_up", "blocks_not_finite", "recovery_waiting",
    "copy_damaged", "waiting_for_node", "request_refused",
}  # fmt: skip
_BARS = "▁▂▃▄▅▆▇█"


def tone_of(record: Record) -> Tone:
    """Whether a record is good or bad news."""
    if record.name in _BAD:
        return "bad"
    return "good" if record.name in ("recovery_completed", "repair_completed") else "plain"


def in_words(record: Record, iteration: int) -> str | None:
    """A sentence, for records that nobody should miss; None for the everyday ones.

    Args:
        record: the record.
        iteration: where training stands.
    """
    f = record.fields
    match record.name:
        case "node_lost":
            return f"x({iteration}): {f['node']} is LOST{_how_lost(f)}"
        case "recovery_completed" if f["kind"] == "start":
            return _resumed(f) if f["restored"] else None
        case "recovery_completed":
            return _recovered(f)
        case "repair_declined":
            return "this model mends nothing: --recovery repair restores what is lost, as partial does"
        case "repair_completed":
            return _repaired(f)
        case "recovery_waiting":
            return f"the store cannot be read, trying again ({f['attempt']}): {f['cause']}"
        case "save_failed":
            again = "trying again" if f["retried"] else "giving up"
            return f"the store refused a save of {f['node']}, {again}: {f['cause']}; training goes on"
        case "save_given_up":
            return f"save {f['save_id']} is given up, its blocks come first in the next one: {f['cause']}"
        case "blocks_not_finite":
            what = f"{counted(f['n_blocks'], 'block')} of {f['node']}"
            return f"{what} with NaN or infinity, or too large for their encoding, will not be saved"
        case "copy_damaged":
            return f"a stored copy is damaged, an older one is used: {f['detail']}"
        case "stop_requested":
            again = "; again = at once" if f["reason"].startswith("signal") else ""
            return f"{f['reason']}: stopping after this iteration, once everything is saved{again}"
        case _:
            return _of_nodes(record.name, f)


def _of_nodes(name: str, f: dict[str, Any]) -> str | None:
    """Nodes that come and go."""
    match name:
        case "nodes_starting":
            return f"starting {counted(f['n_nodes'], 'process', 'processes')}, one a node"
        case "nodes_killed":
            pids = " ".join(str(p["pid"]) for p in f["processes"])
            return f"x({f['iteration']}): kill -9 {pids} ({joined([p['node'] for p in f['processes']])}), as planned"
        case "node_joined":
            process = f" in process {f['pid']} on {f['host']}" if f.get("pid") is not None else ""
            return f"{f['node']} is ready to join{process}"
        case "node_left":
            return f"{f['node']} has handed over all that it held, and left"
        case "scale_requested":
            wanted = [counted(f[kind], kind[:-1]) for kind in ("servers", "workers") if f[kind] is not None]
            return f"wanted: {joined(wanted)}"
        case "drain_requested":
            return f"{f['node']} is to hand over all that it holds, and leave: {f['reason']}"
        case "request_refused":
            return f"cannot {f['request']}: {f['reason']}"
        case "handover_started":
            return _handing_over(f)
        case "handover_completed":
            moved = f"{counted(f['moved_blocks'], 'block')} handed over; " if f["moved_blocks"] else ""
            return f"{moved}training goes on at x({f['iteration']})"
        case "waiting_for_node":
            return f"no {f['kind']} is left; waiting for a new one"
        case _:
            return None


def _resumed(f: dict[str, Any]) -> str:
    text = f"going on at x({f['iteration']}): {restored_from(f)}"
    age = f.get("mean_age_iters")
    if not age:
        return text
    # Everything set back by so many iterations would cost just these. Blocks that do not move are not saved again, so
    # their age costs nothing: it is a bound, not an estimate.
    return f"{text}; saved {age:.1f} iterations before that on average, the most there is to make up for"


def _recovered(f: dict[str, Any]) -> str:
    extent = "everything is back at" if f["kind"] == "full" else "training goes on at"
    text = f"{f['kind']} recovery in {f.get('seconds', 0):.2f} s: {restored_from(f)}"
    if "perturbation" in f and f.get("lost_blocks"):
        text += f"; perturbation {perturbation_in_words(f)}"
    if f["kind"] == "repair" and f.get("lost_blocks"):
        return f"{text}; now the model mends them"
    return f"{text}; {extent} x({f['iteration']})"


def _repaired(f: dict[str, Any]) -> str:
    text = f"{counted(f['n_blocks'], 'block')} mended in {f.get('seconds', 0):.2f} s"
    left = "" if f["perturbation"] is None else f"; perturbation {perturbation_in_words(f)} now"
    return f"{text}, with {f['work_iters']:.2f} of an iteration's work{left}; training goes on at x({f['iteration']})"


def perturbation_in_words(f: Mapping[str, Any]) -> str:
    """How far a recovery has moved the parameters: known, estimated, or unknown.

    Example:
        >>> perturbation_in_words({"perturbation": 0.884, "perturbation_is_exact": True, "perturbation_age_iters": 0})
        '0.884'
        >>> perturbation_in_words({"perturbation": 0.884, "perturbation_is_exact": False, "perturbation_age_iters": 1})
        'about 0.884, measured 1 iteration ago'
        >>> perturbation_in_words({"perturbation": None})
        'unknown'
    """
    if f["perturbation"] is None:
        return "unknown"
    if f.get("perturbation_is_exact", True):
        return f"{f['perturbation']:.3g}"
    age = f.get("perturbation_age_iters")
    measured = ", measured just before" if not age else f", measured {counted(age, 'iteration')} ago"
    return f"about {f['perturbation']:.3g}{measured}"


def _how_lost(f: Mapping[str, Any]) -> str:
    if f.get("simulated"):
        return " (simulated)"
    if f.get("killed"):
        return " (killed)"
    return f": {f['reason']}" if f.get("simulated") is False else ""


def _handing_over(f: Mapping[str, Any]) -> str:
    who = [(f["joining"], "join"), (f["leaving"], "leave")]
    parts = [f"{joined(names)} {verb}{'s' if len(names) == 1 else ''}" for names, verb in who if names]
    what = [f"handing over {counted(f['moving_blocks'], 'block')}"] if f["moving_blocks"] or not parts else []
    return ": ".join([*what, ", ".join(parts)] if parts else what)


def restored_from(f: dict[str, Any]) -> str:
    """What was restored, and from when.

    Example:
        >>> restored_from({"restored": 241, "from_x0": 151, "oldest": 10, "newest": 21})
        '241 blocks as saved at x(10) to x(21), 151 as at the start'
    """
    # Where another node is lost during a recovery, a new view begins: what was in place by then is not loaded again.
    is_partial = f.get("kind") in ("partial", "repair")
    in_place = f.get("lost_blocks", 0) - f["restored"] - f["from_x0"] if is_partial else 0
    if not f["restored"] and not f["from_x0"] and in_place <= 0:
        return "no block was lost"
    parts = []
    if f["restored"]:
        span = f"x({f['oldest']})" + (f" to x({f['newest']})" if f["newest"] != f["oldest"] else "")
        parts.append(f"{counted(f['restored'], 'block')} as saved at {span}")
    if f["from_x0"]:
        n = f"{f['from_x0']:,}" if parts else counted(f["from_x0"], "block")
        parts.append(f"{n} as at the start")
    if in_place > 0:
        parts.append(f"{in_place:,} a moment before" if parts else f"{counted(in_place, 'block')} a moment before")
    return ", ".join(parts)


def metrics_in_words(metrics: Mapping[str, float], iteration: int | None) -> str:
    """Held-out metrics; an empty text if there are none.

    Example:
        >>> metrics_in_words({"cross_entropy": 0.31234567, "accuracy": 0.91}, 40)
        'cross_entropy 0.312346, accuracy 0.91 on x(40)'
    """
    if not metrics:
        return ""
    return ", ".join(f"{name} {value:,.6g}" for name, value in metrics.items()) + f" on x({iteration})"


def counted(n: int, noun: str, plural: str | None = None) -> str:
    """``1 block``, ``1,000 blocks``, ``2 processes``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {plural or noun + 's'}"


def joined(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def sparkline(values: Sequence[float], width: int) -> str:
    """A curve of the last values in one line, on a log scale where all are positive.

    Example:
        >>> sparkline([100.0, 10.0, 1.0], 10)
        '█▅▁'
    """
    import math

    finite = [v for v in values if math.isfinite(v)]
    if len(finite) > width:
        finite = [finite[i * (len(finite) - 1) // (width - 1)] for i in range(width)]
    if not finite:
        return ""
    heights = [math.log(v) for v in finite] if min(finite) > 0 else finite
    low, span = min(heights), max(heights) - min(heights)
    return "".join(_BARS[round((h - low) / span * (len(_BARS) - 1)) if span else 0] for h in heights)

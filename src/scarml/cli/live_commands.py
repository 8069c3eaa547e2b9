"""``scarml stop``, ``scarml drain`` and ``scarml scale``: what is wanted of a run that is going on elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scarml.storage.json_text import to_json_text

if TYPE_CHECKING:
    from scarml.storage.commands import Answer, CommandKind
    from scarml.storage.ownership import Timing
    from scarml.storage.store import Store

__all__ = ["drain", "scale", "stop"]

SCHEMA_VERSION = 1
_TIMEOUT_S = 600.0

_Run = Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of the run.")]
_NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait for the run's answer.")]
_Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Wait so long for the answer.")]
_AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]


def stop(run: _Run, no_wait: _NoWait = False, timeout_s: _Timeout = _TIMEOUT_S, as_json: _AsJson = False) -> int:
    """End a run that is going on, at the end of its iteration, with everything saved. As Ctrl-C does, from elsewhere.

    Example: scarml stop runs/mf

    The command that started it goes on later, with --resume auto.
    """
    return _deliver(run, "stop", {}, no_wait, timeout_s, as_json)


def drain(
    run: _Run,
    node: Annotated[str, typer.Argument(metavar="NODE", help="For example server-3; see scarml status RUN.")],
    no_wait: _NoWait = False,
    timeout_s: _Timeout = _TIMEOUT_S,
    as_json: _AsJson = False,
) -> int:
    """Let a node hand over all that it holds, and leave; nothing is lost, and training goes on.

    Example: scarml drain runs/mf server-3

    For a machine that is to be taken away: what is drained need not be recovered.
    """
    from scarml.errors import UsageError

    if re.fullmatch(r"[a-z]{1,20}-\d{1,9}", node) is None:
        raise UsageError(f"{node!r} is no node; expected for example server-3. scarml status {run} lists the nodes")
    return _deliver(run, "drain", {"node": node}, no_wait, timeout_s, as_json)


def scale(
    run: _Run,
    servers: Annotated[
        int | None, typer.Option(metavar="N", help="So many nodes that hold the parameters (default: as many as now)")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="So many nodes that compute (default: as many as now)")
    ] = None,
    no_wait: _NoWait = False,
    timeout_s: _Timeout = _TIMEOUT_S,
    as_json: _AsJson = False,
) -> int:
    """Start or drain nodes of a run that is going on, until it has as many as this. Results do not change.

    Example: scarml scale runs/mf --servers 6 --workers 3
    """
    from scarml.errors import UsageError
    from scarml.storage.commands import MOST_NODES

    wanted = {name: n for name, n in (("servers", servers), ("workers", workers)) if n is not None}
    if not wanted:
        raise UsageError("say how many nodes the run is to have: --servers N, --workers N, or both")
    for name, n in wanted.items():
        if not 1 <= n <= MOST_NODES:
            expected = "at least 1" if n < 1 else f"at most {MOST_NODES:,}"
            raise UsageError(f"--{name} is {n}; expected {expected}")
    return _deliver(run, "scale", wanted, no_wait, timeout_s, as_json)


def timing() -> Timing:
    """How to wait."""
    from scarml.storage.ownership import Timing

    return Timing()


def _deliver(
    run: str, kind: CommandKind, arguments: Mapping[str, Any], no_wait: bool, timeout_s: float, as_json: bool
) -> int:
    from scarml.cli.exit_codes import DONE, USAGE
    from scarml.cli.open_run import store_of_run
    from scarml.cli.progress import write_line
    from scarml.storage.command_delivery import Delivery

    store = store_of_run(run)
    _refuse_a_loop_of_ones_own(store)
    delivery = Delivery.post(store, kind, arguments, timing(), write_line)
    answer = None
    if not no_wait:
        try:
            answer = delivery.answer(timeout_s, write_line)
        except KeyboardInterrupt:
            write_line("nobody waits any more, but the command still counts")
            raise
    if as_json:
        print(to_json_text(_to_json(run, kind, arguments, answer)))
    elif answer is None:
        print(f"{run}: {kind} is posted; scarml status {run} shows what becomes of it")
    elif answer.done:
        print(f"{run}: {answer.outcome}")
    if answer is None or answer.done:
        return DONE
    write_line(f"scarml: error: {answer.outcome}")
    return USAGE


def _refuse_a_loop_of_ones_own(store: Store) -> None:
    from scarml.errors import UsageError
    from scarml.storage.owner import read_beat
    from scarml.storage.run_folder import RunFolder

    if RunFolder.open(store).description.get("kind") != "running-checkpoint":
        return
    beat = read_beat(store)
    whom = f": {beat.owner}" if beat is not None else ""
    raise UsageError(
        f"this run is a training loop of somebody's own, and takes no commands; SIGTERM stops its process{whom}"
    )


def _to_json(run: str, kind: str, arguments: Mapping[str, Any], answer: Answer | None) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "run": run,
        "command": kind,
        "arguments": dict(arguments),
        "done": answer.done if answer is not None else None,
        "outcome": answer.outcome if answer is not None else None,
    }

"""What became of commands, from the records of the run: the controller need not know that somebody waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock

from scarml.control.history import Record
from scarml.storage.commands import Command, CommandKind

__all__ = ["CommandAnswers"]

Answer = Callable[[Command, str, bool], None]


class CommandAnswers:
    """Answers commands when records tell that they were carried out, or refused.

    A command must be expected before its event is handled; another thread may do that.

    Args:
        answer: as `scarml.storage.command_inbox.CommandInbox.answer`.

    Example:
        >>> from scarml.storage.commands import CommandName
        >>> answers = CommandAnswers(lambda command, outcome, done: print(outcome))
        >>> answers.take_in(Record("run_started", {"servers": ["server-0"], "workers": ["worker-0"]}))
        >>> answers.expect(Command(CommandName(1, 0, "a"), "scale", {"servers": 2}, "somebody"))
        >>> answers.take_in(Record("scale_requested", {"servers": 2, "workers": None}))
        >>> answers.take_in(Record("view_changed", {"servers": ["server-0", "server-1"], "workers": ["worker-0"]}))
        >>> answers.take_in(Record("handover_completed", {"moved_blocks": 10}))
        2 servers, 1 worker
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._open: list[Command] = []
        self._accepted: Command | None = None  # the last scale that the controller has taken up
        self._nodes: dict[str, set[str]] = {"servers": set(), "workers": set()}
        self._lacks: str | None = None  # a kind of node, of which none is left
        self._mutex = Lock()
        self._moving: dict[str, int | None] = {}  # blocks that a node which leaves has handed over, if it leaves alone

    def expect(self, command: Command) -> None:
        """A command is about to be handled."""
        with self._mutex:
            self._open.append(command)

    def take_in(self, record: Record) -> None:
        """Answer whatever this record settles."""
        with self._mutex:
            self._take_in(record)

    def _take_in(self, record: Record) -> None:
        f = record.fields
        match record.name:
            case "run_started" | "view_changed":
                self._nodes = {kind: set(f[kind]) for kind in self._nodes}
            case "stop_requested":
                self._settle(self._of("stop"), self._how_it_stops(), done=True)
            case "waiting_for_node":
                self._lacks = f["kind"]
            case "scale_requested":
                self._accept(next(iter(self._of("scale")), None))
            case "request_refused":
                self._refuse(f["request"], f["reason"])
            case "handover_started":
                n_blocks = f["moving_blocks"] if len(f["leaving"]) + len(f["joining"]) == 1 else None
                self._moving |= dict.fromkeys(f["leaving"], n_blocks)
            case "handover_completed" | "recovery_completed":
                self._lacks = None
                self._settle_scale()
            case "node_left":
                self._left(f["node"])
            case "node_lost":
                self._lost(f["node"])
            case "run_finished":
                self._settle(self._of("stop"), f"it has ended: {f['outcome']}, {f['reason']}", done=True)

    def _how_it_stops(self) -> str:
        if self._lacks is None:
            return "it ends at the next boundary, with everything saved"
        return f"it ends as it is saved: no {self._lacks} is left, so what had not been saved yet is not saved any more"

    # --------------------------------------------------------------------------------------------------------- scaling
    def _accept(self, command: Command | None) -> None:
        if command is None:
            return  # somebody else asked for it, not by a command
        before, self._accepted = self._accepted, command
        self._open.remove(command)
        if before is not None:
            self._answer(before, f"{_asked_for(before)} is overtaken by {_asked_for(command)}", False)
        self._settle_scale()

    def _settle_scale(self) -> None:
        wanted = self._accepted
        if wanted is not None and all(len(self._nodes[kind]) == n for kind, n in wanted.arguments.items()):
            self._accepted = None
            self._answer(wanted, ", ".join(_counted(len(names), kind) for kind, names in self._nodes.items()), True)

    # -------------------------------------------------------------------------------------------------------- draining
    def _left(self, node: str) -> None:
        n_blocks = self._moving.pop(node, None)
        what = "all its blocks" if n_blocks is None else _counted(n_blocks, "blocks")
        outcome = f"{node} held no blocks, and has left" if n_blocks == 0 else f"{node} has handed over {what} and left"
        self._settle(self._drains_of(node), outcome, done=True)

    def _lost(self, node: str) -> None:
        self._moving.pop(node, None)
        for names in self._nodes.values():
            names.discard(node)
        self._settle(self._drains_of(node), f"{node} was lost before it had handed over all its blocks", done=False)

    # ------------------------------------------------------------------------------------------------------------- all
    def _refuse(self, request: str, reason: str) -> None:
        kind, _, node = request.partition(" ")
        if kind == "replace" and self._accepted is not None:
            command, self._accepted = self._accepted, None
            self._answer(command, f"nodes could not be started: {reason}", False)
        refused = self._drains_of(node) if kind == "drain" else self._of("scale")[:1] if kind == "scale" else []
        self._settle(refused, reason, done=False)

    def _of(self, kind: CommandKind) -> list[Command]:
        return [c for c in self._open if c.kind == kind]

    def _drains_of(self, node: str) -> list[Command]:
        return [c for c in self._of("drain") if c.arguments["node"] == node]

    def _settle(self, commands: Iterable[Command], outcome: str, *, done: bool) -> None:
        for command in commands:
            self._open.remove(command)
            self._answer(command, outcome, done)


def _asked_for(command: Command) -> str:
    return f"scale to {', '.join(_counted(n, kind) for kind, n in command.arguments.items())}"


def _counted(n: int, plural: str) -> str:
    return f"{n:,} {plural.removesuffix('s') if n == 1 else plural}"

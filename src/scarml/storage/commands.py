"""Commands to a live run: objects under ``commands/``, the same on every store.

Who wants something of a run creates ``commands/<term>-<milliseconds>-<token>.json``; the run's driver looks for such
objects beside training, removes what it takes, and answers with ``….done`` of the same name. Since nothing is ever
changed, two commands that are posted at once are just two objects.

A command is for one start of a run: it carries a term that this start has claimed. What is left over from an earlier
one is removed by the next, and never obeyed.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from scarml.errors import AlreadyExistsError, DamagedError, NotFoundError
from scarml.storage.record import decode_record, encode_record
from scarml.storage.store import Store

__all__ = [
    "COMMANDS_FOLDER",
    "MOST_NODES",
    "Answer",
    "Command",
    "CommandKind",
    "CommandName",
    "post_command",
    "read_answer",
    "read_command",
    "write_answer",
]

CommandKind = Literal["stop", "drain", "scale"]

COMMANDS_FOLDER = "commands/"
MOST_NODES = 10_000
"""Servers, or workers: beyond what makes sense; a slip of the finger must not start so many processes."""

_NAME = re.compile(r"commands/(\d{8,12})-(\d{14})-([0-9a-f]{16})\.(json|done)")
_MAX_BYTES = 64 << 10
_MAX_CHARS = 1000


@dataclass(frozen=True, slots=True, order=True)
class CommandName:
    """What tells commands apart, and puts them in order.

    Args:
        term: of the start that it is for.
        posted_ms: when it was posted, in milliseconds since 1970, on the clock of who posted it.
        token: random.
    """

    term: int
    posted_ms: int
    token: str

    @classmethod
    def new(cls, term: int, unix_s: float) -> CommandName:
        """A name that nothing else has."""
        return cls(term, int(unix_s * 1000) % 10**14, secrets.token_hex(8))

    @classmethod
    def parse(cls, name: str) -> CommandName | None:
        """Of the object of a command, or of its answer; None if it is neither."""
        match = _NAME.fullmatch(name)
        return cls(int(match[1]), int(match[2]), match[3]) if match else None

    @property
    def object(self) -> str:
        """Where the command is."""
        return f"{self._stem}.json"

    @property
    def answer(self) -> str:
        """Where its answer is."""
        return f"{self._stem}.done"

    @property
    def _stem(self) -> str:
        return f"{COMMANDS_FOLDER}{self.term:08d}-{self.posted_ms:014d}-{self.token}"


@dataclass(frozen=True, slots=True)
class Command:
    """Something that somebody wants of a live run.

    Args:
        name: of it.
        kind: ``stop``: end at the next boundary, everything saved. ``drain``: a node hands over what it holds, and
            leaves. ``scale``: so many servers and workers.
        arguments: ``drain``: ``node``. ``scale``: ``servers``, ``workers``, or one of them.
        sender: who posted it, in words.
    """

    name: CommandName
    kind: CommandKind
    arguments: Mapping[str, Any]
    sender: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a command.

    Args:
        outcome: in words.
        done: it was carried out; else it was refused, or could not be, and ``outcome`` says why.
    """

    outcome: str
    done: bool


def _is_node(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[a-z]{1,20}-\d{1,9}", value) is not None


def _is_count(value: object) -> bool:
    return type(value) is int and 1 <= value <= MOST_NODES


_ARGUMENTS: Mapping[CommandKind, Mapping[str, Callable[[object], bool]]] = {
    "stop": {},
    "drain": {"node": _is_node},
    "scale": {"servers": _is_count, "workers": _is_count},
}


def post_command(store: Store, command: Command) -> None:
    """Store a command, durably. Raises StoreError if that cannot be done; it may then be there nevertheless."""
    body = {"term": command.name.term, "kind": command.kind, "arguments": dict(command.arguments)}
    try:
        store.create(command.name.object, [encode_record("command", {**body, "sender": command.sender})])
    except AlreadyExistsError:  # a request that was repeated, since its answer was lost: nobody else has this name
        return


def read_command(store: Store, name: CommandName) -> Command:
    """A command.

    Raises:
        NotFoundError: it was taken, or withdrawn.
        DamagedError: it is none that this SCAR understands.
        StoreError: it cannot be read now.
    """
    body = _read(store, "command", name.object)
    kind, arguments, sender = body.get("kind"), body.get("arguments"), body.get("sender")
    known = next((k for k in _ARGUMENTS if k == kind), None)
    if known is None or not isinstance(arguments, dict) or not _is_text(sender) or body.get("term") != name.term:
        raise DamagedError(f"{name.object} is no command that can be understood")
    checks = _ARGUMENTS[known]
    is_right = all(key in checks and checks[key](value) for key, value in arguments.items())
    if not is_right or (checks and not arguments):
        raise DamagedError(f"{name.object} is no {known} that can be understood")
    return Command(name, known, arguments, str(sender))


def write_answer(store: Store, name: CommandName, answer: Answer) -> None:
    """Answer a command."""
    text = "".join(c if c.isprintable() else " " for c in answer.outcome)[:_MAX_CHARS]
    store.put(name.answer, [encode_record("answer", {"outcome": text or "no words", "done": answer.done})])


def read_answer(store: Store, name: CommandName) -> Answer | None:
    """What became of a command; None if that has not been said yet.

    Raises:
        DamagedError: it was said, and cannot be understood.
    """
    try:
        body = _read(store, "answer", name.answer)
    except NotFoundError:
        return None
    outcome, done = body.get("outcome"), body.get("done")
    if not _is_text(outcome) or type(done) is not bool:
        raise DamagedError(f"{name.answer} is no answer that can be understood")
    return Answer(str(outcome), done)


def _read(store: Store, kind: str, name: str) -> dict[str, Any]:
    if store.size(name) > _MAX_BYTES:
        raise DamagedError(f"{name} is longer than {_MAX_BYTES} bytes: it is not what SCAR writes")
    return decode_record(kind, name, store.get(name))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= _MAX_CHARS

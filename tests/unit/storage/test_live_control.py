"""A live run seen and steered from outside."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from scarml.control import messages as m
from scarml.control.history import Record
from scarml.storage import live_control
from scarml.storage.commands import Command, CommandName, post_command
from scarml.storage.live_control import LiveControl
from scarml.storage.live_status import read_status
from scarml.storage.memory import MemoryStore
from scarml.storage.run_folder import RunFolder

STARTED = Record(
    "run_started", {"term": 1, "iteration": 4, "executed": 4, "servers": ["server-0"], "workers": ["worker-0"]}
)


def control(posted: Callable[[m.Event], None]) -> tuple[RunFolder, LiveControl]:
    folder = RunFolder.create(MemoryStore(), {})
    term = folder.claim_term("new")
    return folder, LiveControl(
        folder, term, post=posted, in_background=lambda task: task(), place=lambda _: (7, "a"), saved_iterations=dict
    )


def post(folder: RunFolder, kind: Any, arguments: dict[str, Any]) -> None:
    post_command(folder.store, Command(CommandName.new(term=1, unix_s=1e9), kind, arguments, "somebody"))


def test_a_record_is_the_occasion_to_look() -> None:
    events: list[m.Event] = []
    folder, live = control(events.append)
    post(folder, "scale", {"servers": 3})
    live.take_in(STARTED)
    assert events == [m.ScaleRequested(3, None)]
    status = read_status(folder.store)
    assert status is not None
    assert (status.iteration, status.nodes[0].pid) == (4, 7)


def test_a_run_in_which_nothing_happens_hears_commands_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_control, "_LISTEN_S", 0.001)
    events: SimpleQueue[m.Event] = SimpleQueue()
    folder, live = control(events.put)
    with live.listening():
        post(folder, "drain", {"node": "server-0"})
        event = events.get(timeout=60)
    assert isinstance(event, m.DrainRequested)
    assert event.node == "server-0"


def test_what_was_too_soon_to_be_told_is_told_although_nothing_more_happens() -> None:
    folder, live = control(lambda _: None)
    live.take_in(STARTED)
    live.take_in(Record("waiting_for_node", {"kind": "server"}))
    assert (read_status(folder.store) or status_of_nothing()).activity == "starting"
    live._status._due_s = 0.0  # two seconds later
    live.look()
    assert (read_status(folder.store) or status_of_nothing()).activity == "waiting for a server"


def status_of_nothing() -> Any:
    raise AssertionError("there is no status")

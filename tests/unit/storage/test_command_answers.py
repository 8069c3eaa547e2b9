"""Commands are answered from what the run reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from scarml.control.history import Record
from scarml.storage.command_answers import CommandAnswers
from scarml.storage.commands import Command, CommandKind, CommandName


class Heard:
    """A run with two servers and a worker, and what its users were told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str, bool]] = []
        self._answers = CommandAnswers(lambda command, *rest: self.told.append((command.name.posted_ms, *rest)))
        self._n = 0
        self.report("run_started", **view(2, 1))

    def ask(self, kind: CommandKind, **arguments: Any) -> None:
        self._n += 1
        self._answers.expect(Command(CommandName(1, self._n, "a"), kind, arguments, "me"))

    def report(self, name: str, **fields: Any) -> None:
        self._answers.take_in(Record(name, fields))

    def hand_over(self, servers: int, workers: int, n_blocks: int = 10, joining: Any = (), leaving: Any = ()) -> None:
        self.report("view_changed", **view(servers, workers))
        self.report("handover_started", moving_blocks=n_blocks, joining=list(joining), leaving=list(leaving))
        for node in leaving:
            self.report("node_left", node=node)
        self.report("handover_completed", moved_blocks=n_blocks)


def view(servers: int, workers: int) -> Mapping[str, Any]:
    return {
        "servers": [f"server-{i}" for i in range(servers)],
        "workers": [f"worker-{i}" for i in range(workers)],
    }


@pytest.fixture
def run() -> Heard:
    return Heard()


def test_stop_is_answered_when_the_run_takes_notice(run):
    run.ask("stop")
    run.report("stop_requested", reason="scarml stop")
    run.ask("stop")
    assert run.told == [(1, "it ends at the next boundary, with everything saved", True)]
    run.report("run_finished", outcome="stopped", reason="scarml stop")
    assert run.told[1:] == [(2, "it has ended: stopped, scarml stop", True)]


def test_a_stop_that_cannot_save_everything_does_not_promise_it(run):
    run.report("waiting_for_node", kind="worker")
    run.ask("stop")
    run.report("stop_requested", reason="scarml stop")
    ((_, outcome, done),) = run.told
    assert done
    assert "no worker is left, so what had not been saved yet is not saved" in outcome
    run.report("recovery_completed", lost_blocks=0)
    run.ask("stop")
    run.report("stop_requested", reason="scarml stop")
    assert run.told[-1][1] == "it ends at the next boundary, with everything saved"


def test_scale_is_answered_when_the_nodes_work(run):
    run.ask("scale", servers=3, workers=2)
    run.report("scale_requested", servers=3, workers=2)
    run.hand_over(3, 1, joining=["server-2"])
    assert run.told == []
    run.hand_over(3, 2, joining=["worker-1"])
    assert run.told == [(1, "3 servers, 2 workers", True)]
    run.hand_over(2, 1)
    assert len(run.told) == 1


def test_scale_to_what_there_is_is_done(run):
    run.ask("scale", servers=2)
    run.report("scale_requested", servers=2, workers=None)
    assert run.told == [(1, "2 servers, 1 worker", True)]


def test_scale_that_another_overtakes(run):
    run.ask("scale", servers=9)
    run.ask("scale", workers=1)
    run.report("scale_requested", servers=9, workers=None)
    run.report("scale_requested", servers=None, workers=1)
    assert run.told == [
        (1, "scale to 9 servers is overtaken by scale to 1 worker", False),
        (2, "2 servers, 1 worker", True),
    ]


def test_scale_that_a_loss_brings_about(run):
    run.ask("scale", servers=1)
    run.report("scale_requested", servers=1, workers=None)
    run.report("node_lost", node="server-1")
    run.report("view_changed", **view(1, 1))
    run.report("recovery_completed", view=2)
    assert run.told == [(1, "1 server, 1 worker", True)]


def test_a_refused_scale(run):
    run.ask("scale", servers=3)
    run.ask("scale", servers=2)
    run.report("request_refused", request="scale", reason="no machine is free")
    run.report("scale_requested", servers=2, workers=None)
    assert run.told == [(1, "no machine is free", False), (2, "2 servers, 1 worker", True)]


def test_a_scale_whose_nodes_cannot_be_started(run):
    run.ask("scale", servers=3)
    run.report("scale_requested", servers=3, workers=None)
    run.report("request_refused", request="replace server-4", reason="4 servers could not be started")
    assert run.told == [(1, "nodes could not be started: 4 servers could not be started", False)]


def test_drain_tells_what_was_handed_over(run):
    run.ask("drain", node="server-1")
    run.ask("drain", node="server-1")
    run.report("drain_requested", node="server-1", reason="scarml drain")
    run.hand_over(1, 1, n_blocks=1230, leaving=["server-1"])
    assert run.told == [(n, "server-1 has handed over 1,230 blocks and left", True) for n in (1, 2)]


def test_of_several_that_leave_together_nobody_knows_who_had_what(run):
    run.ask("drain", node="server-1")
    run.hand_over(1, 1, leaving=["server-1", "worker-0"])
    assert run.told == [(1, "server-1 has handed over all its blocks and left", True)]


def test_a_drain_of_nobody(run):
    run.ask("drain", node="server-0")
    run.ask("drain", node="server-9")
    run.report("request_refused", request="drain server-9", reason="there is no node server-9; there are server-0")
    assert run.told == [(2, "there is no node server-9; there are server-0", False)]


def test_a_drain_that_a_loss_overtakes(run):
    run.ask("drain", node="server-1")
    run.report("node_lost", node="server-0")
    run.report("node_lost", node="server-1")
    assert run.told == [(1, "server-1 was lost before it had handed over all its blocks", False)]


def test_what_nobody_asked_for_is_no_news(run):
    run.report("scale_requested", servers=3, workers=None)
    run.report("request_refused", request="replace server-3", reason="too many were lost")
    run.report("request_refused", request="scale", reason="x")
    run.report("stop_requested", reason="signal SIGINT")
    run.report("save_skipped", iteration=3)
    run.hand_over(1, 1, leaving=["server-1"])
    assert run.told == []

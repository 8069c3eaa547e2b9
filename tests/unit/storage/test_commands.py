"""Commands to a live run: what is posted is taken once, by the start that it is for, and answered."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.storage.test_run_folder import new_run

from scarml.control import messages as m
from scarml.errors import DamagedError, NotFoundError, StoreError
from scarml.storage.command_inbox import CommandInbox
from scarml.storage.commands import (
    Answer,
    Command,
    CommandName,
    post_command,
    read_answer,
    read_command,
    write_answer,
)
from scarml.storage.faulty import FaultyStore
from scarml.storage.fsspec_store import FsspecStore
from scarml.storage.local import LocalStore
from scarml.storage.memory import MemoryStore
from scarml.storage.record import decode_record, encode_record
from scarml.storage.run_folder import RunFolder
from scarml.storage.verification import verify


@pytest.fixture(params=["memory", "local", "fsspec"])
def store(request, tmp_path):
    if request.param == "fsspec":
        return FsspecStore(f"memory://{tmp_path.name}")
    return MemoryStore() if request.param == "memory" else LocalStore(str(tmp_path / "run"))


def started(store) -> tuple[RunFolder, CommandInbox]:
    folder = new_run(store)
    return folder, CommandInbox(folder, folder.claim_term("new"))


def post(store, kind="stop", term=1, at_s=1e9, **arguments) -> Command:
    command = Command(CommandName.new(term, at_s), kind, arguments, "process 7 on far")
    post_command(store, command)
    return command


def put(store, text: bytes, term=1) -> CommandName:
    name = CommandName.new(term, 1e9)
    store.create(name.object, [text])
    return name


# ------------------------------------------------------------------------------------------------------------ the value
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("stop", {}),
        ("drain", {"node": "server-3"}),
        ("scale", {"servers": 6}),
        ("scale", {"servers": 1, "workers": 10_000}),
    ],
)
def test_a_command_is_read_as_it_was_posted(store, kind, arguments):
    posted = post(store, kind, **arguments)
    assert read_command(store, posted.name) == posted
    assert CommandName.parse(posted.name.object) == CommandName.parse(posted.name.answer) == posted.name


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("burn", {}),
        (["stop"], {}),
        (None, {}),
        ("stop", {"node": "server-1"}),
        ("stop", []),
        ("drain", {}),
        ("drain", {"node": "../../etc"}),
        ("drain", {"node": "server-1\x1b[2J"}),
        ("drain", {"node": 3}),
        ("scale", {}),
        ("scale", {"servers": 0}),
        ("scale", {"servers": True}),
        ("scale", {"servers": 10_001}),
        ("scale", {"servers": 2.5}),
        ("scale", {"servers": 2, "gpus": 1}),
    ],
)
def test_what_makes_no_sense_is_no_command(kind, arguments):
    store = MemoryStore()
    body = {"term": 1, "kind": kind, "arguments": arguments, "sender": "me"}
    with pytest.raises(DamagedError, match=r"commands/.* is no .*that can be understood"):
        read_command(store, put(store, encode_record("command", body)))


@pytest.mark.parametrize("sender", [None, "", "x" * 1001, "a\nb", "\x1b[31m"])
def test_nor_what_nobody_sent(sender):
    store = MemoryStore()
    body = {"term": 1, "kind": "stop", "arguments": {}, "sender": sender}
    with pytest.raises(DamagedError):
        read_command(store, put(store, encode_record("command", body)))


def test_a_command_that_was_renamed_for_another_term_is_none():
    store = MemoryStore()
    text = store_of(post(store, term=1), store)
    with pytest.raises(DamagedError):
        read_command(store, put(store, text, term=2))


def store_of(command: Command, store) -> bytes:
    return store.get(command.name.object)


def test_an_object_that_is_too_long_is_not_read():
    store = MemoryStore()
    with pytest.raises(DamagedError, match="longer than 65536 bytes"):
        read_command(store, put(store, b" " * (1 << 17)))


def test_a_post_whose_answer_was_lost_and_that_was_repeated_is_one_command():
    store = MemoryStore()
    command = post(store)
    post_command(store, command)
    assert store.list("commands/") == [command.name.object]


def test_an_answer_is_printable_and_of_bounded_length(store):
    name = CommandName.new(1, 1e9)
    assert read_answer(store, name) is None
    write_answer(store, name, Answer("done\x1b[2J\n" + "x" * 5000, done=True))
    answer = read_answer(store, name)
    assert answer is not None
    assert answer.outcome.startswith("done [2J xxx")
    assert len(answer.outcome) == 1000
    store.put(name.answer, [encode_record("answer", {"outcome": 3, "done": True})])
    with pytest.raises(DamagedError):
        read_answer(store, name)


@pytest.mark.parametrize(
    "name",
    [
        "commands/x",
        "commands/00000001-00000000000001-0123456789abcdeg.json",
        "commands/1-00000000000001-0123456789abcdef.json",
        "commands/00000001-00000000000001-0123456789abcdef.json/x",
        "commands/00000001-00000000000001-0123456789abcdef.tmp",
    ],
)
def test_other_names_are_no_commands(name):
    assert CommandName.parse(name) is None


# ------------------------------------------------------------------------------------------------------------ the inbox
def test_each_kind_becomes_its_event_the_oldest_first(store):
    _, inbox = started(store)
    post(store, "scale", at_s=3.0, servers=6, workers=3)
    post(store, "drain", at_s=2.0, node="worker-1")
    post(store, "stop", at_s=1.0)
    assert [event for _, event in inbox.take_new()] == [
        m.StopRequested("scarml stop, by process 7 on far"),
        m.DrainRequested("worker-1", "scarml drain, by process 7 on far"),
        m.ScaleRequested(6, 3),
    ]
    assert store.list("commands/") == []
    assert inbox.take_new() == []


def test_two_that_are_posted_at_once_are_both_taken(store):
    _, inbox = started(store)
    posted = {post(store, at_s=5.0).name, post(store, at_s=5.0).name}
    assert {command.name for command, _ in inbox.take_new()} == posted


def test_the_answer_goes_out_with_the_next_look(store):
    _, inbox = started(store)
    command = post(store)
    inbox.take_new()
    inbox.answer(command, "6 servers, 2 workers", done=True)
    inbox.answer(command, "only the first answer counts", done=False)
    assert read_answer(store, command.name) is None  # `answer` may be called where nothing may wait for the store
    inbox.take_new()
    assert read_answer(store, command.name) == Answer("6 servers, 2 workers", done=True)


def test_what_was_for_an_earlier_start_is_removed_and_not_obeyed(store):
    folder, inbox = started(store)
    command = post(store)
    inbox.take_new()
    inbox.answer(command, "yes", done=True)
    post(store, at_s=2e9)
    inbox.close("it was over")  # answers the one, and the one that was never read
    left_over = post(store)  # too late
    assert len(store.list("commands/")) == 3
    later = CommandInbox(folder, folder.claim_term("parent"))
    assert later.take_new() == []
    assert store.list("commands/") == []
    assert left_over.name.term == 1


def test_a_term_that_the_same_start_claims_later_is_its_own(store):
    folder, inbox = started(store)
    before = post(store, term=1, at_s=1.0)
    folder.claim_term("parent", after=1)  # a full recovery inside the job
    after = post(store, term=2, at_s=2.0)
    assert [command.name for command, _ in inbox.take_new()] == [before.name, after.name]


def test_what_is_for_a_later_start_is_left_to_it(store):
    _, inbox = started(store)
    other = post(store, term=2)
    assert inbox.take_new() == []
    assert store.list("commands/") == [other.name.object]


def test_the_end_answers_everything(store):
    _, inbox = started(store)
    taken = post(store, "scale", servers=6)
    inbox.take_new()
    unread = post(store, "drain", node="server-1")
    inbox.close("converged")
    ended = "the run has ended before"
    assert read_answer(store, taken.name) == Answer(f"{ended} this was done: converged", done=False)
    assert read_answer(store, unread.name) == Answer(f"{ended} it read this: converged", done=False)


def test_answers_that_nobody_collects_do_not_pile_up():
    store = MemoryStore()
    _, inbox = started(store)
    for i in range(200):
        post(store, at_s=float(i))
        for command, _ in inbox.take_new():
            inbox.answer(command, "yes", done=True)
    inbox.take_new()
    inbox.take_new()
    kept = [name for name in map(CommandName.parse, store.list("commands/")) if name is not None]
    assert len(kept) == 64
    assert min(kept).posted_ms == 136_000  # the newest ones


def test_a_flood_is_taken_in_portions():
    store = MemoryStore()
    _, inbox = started(store)
    for i in range(100):
        post(store, at_s=float(i))
    assert [len(inbox.take_new()) for _ in range(3)] == [64, 36, 0]


def test_verify_knows_them(store):
    _, inbox = started(store)
    post(store)
    inbox.take_new()
    inbox.close("over")
    post(store)
    assert not [f for f in verify(store).notes if f.problem == "SCAR has not made it"]


# ---------------------------------------------------------------------------------------------------------- what fails
def test_one_that_cannot_be_understood_is_answered_logged_once_and_removed(store, caplog):
    _, inbox = started(store)
    name, good = put(store, b'{"format": "scar-command"'), post(store, at_s=2e9)
    with caplog.at_level(logging.WARNING):
        assert [command for command, _ in inbox.take_new()] == [good]
        inbox.take_new()
    assert [r.getMessage() for r in caplog.records if "a command is ignored" in r.getMessage()] == caplog.messages
    assert len(caplog.messages) == 1
    answer = read_answer(store, name)
    assert answer is not None
    assert not answer.done
    assert "cannot be understood" in answer.outcome


@pytest.mark.parametrize("operation", ["list", "size", "get", "any"])
def test_a_store_that_fails_is_asked_again(operation):
    store = FaultyStore(MemoryStore())
    _, inbox = started(store)
    command = post(store)
    store.fail_nth(operation, 1, "the store is away")
    assert inbox.take_new() == []
    assert store.fired[operation if operation != "any" else "list"] == 1
    assert [c for c, _ in inbox.take_new()] == [command]


@pytest.mark.parametrize("when", ["before", "after"])
def test_one_whose_removal_fails_is_obeyed_once_and_removed_later(when):
    store = FaultyStore(MemoryStore())
    _, inbox = started(store)
    post(store)
    store.fail_nth("delete", 1, "the store is away", when)
    assert len(inbox.take_new()) == 1
    assert store.fired["delete"] == 1
    assert inbox.take_new() == []
    assert store.list("commands/") == []


def test_an_answer_that_fails_is_sent_again():
    store = FaultyStore(MemoryStore())
    _, inbox = started(store)
    command = post(store)
    inbox.take_new()
    inbox.answer(command, "yes", done=True)
    store.fail_nth("put", 1, "the store is away")
    inbox.take_new()
    assert read_answer(store, command.name) is None
    inbox.take_new()
    assert read_answer(store, command.name) == Answer("yes", done=True)


def test_one_that_was_withdrawn_meanwhile_is_not_obeyed():
    class Withdrawn(MemoryStore):
        def get(self, name):
            if name.startswith("commands/"):
                raise NotFoundError(f"cannot read {name}: there is no such object")
            return super().get(name)

    store = Withdrawn()
    _, inbox = started(store)
    post(store)
    assert inbox.take_new() == []


def test_close_raises_nothing_when_the_store_is_away():
    store = FaultyStore(MemoryStore())
    _, inbox = started(store)
    post(store)
    inbox.take_new()
    store.fail_until_healed("the store is away")
    inbox.close("over")
    assert store.fired


def test_post_tells_that_it_failed():
    store = FaultyStore(MemoryStore())
    store.fail_nth("create", 1, "the disk is full")
    with pytest.raises(StoreError, match="the disk is full"):
        post(store)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "term": st.just(1) | JSON,
        "kind": st.sampled_from(["stop", "drain", "scale"]) | JSON,
        "arguments": st.just({}) | st.dictionaries(st.sampled_from(["node", "servers", "workers"]), JSON) | JSON,
        "sender": st.just("me") | JSON,
    },
)


@given(st.binary(max_size=200) | BODIES.map(lambda body: encode_record("command", body)))
def test_hostile_objects_never_stop_a_run(data):
    store = MemoryStore()
    _, inbox = started(store)
    name = put(store, data)
    store.create("commands/whatever", [data])
    for command, event in inbox.take_new():
        assert isinstance(event, (m.StopRequested, m.DrainRequested, m.ScaleRequested))
        json.dumps(dict(command.arguments))
    inbox.close("over")
    answer = read_answer(store, name)
    assert answer is not None
    assert not answer.done
    assert store.list("commands/") == [name.answer, "commands/whatever"]


def test_nor_does_one_that_is_nested_as_deep_as_can_just_be_read():
    for depth in range(500, 1000):
        text = b'{"format":"scar-x","format_version":1,"crc32":1,"a":' + b"[" * depth + b"]" * depth + b"}"
        with pytest.raises(DamagedError):
            decode_record("x", "name", text)


# ------------------------------------------------------------------------------------------------------------- the pace
@pytest.mark.parametrize(("look_s", "pause_s"), [(0.0, 0.2), (0.0001, 0.2), (0.05, 1.0), (3.0, 5.0)])
def test_a_slow_store_is_looked_at_less_often(look_s, pause_s):
    class Clock:
        now_s = 0.0

    def pass_by(seconds: float) -> None:
        Clock.now_s += seconds

    store = FaultyStore(MemoryStore())
    folder = new_run(store)
    inbox = CommandInbox(folder, folder.claim_term("new"), lambda: Clock.now_s)
    assert inbox.is_due
    store.slow_down(look_s, pass_by)
    inbox.take_new()
    assert not inbox.is_due
    pass_by(0.99 * pause_s)
    assert not inbox.is_due
    pass_by(0.02 * pause_s)
    assert inbox.is_due

"""The background writer: every outcome is delivered, nothing is raised into its thread."""

from __future__ import annotations

import queue
import threading

import pytest
from tests.unit.storage.test_segment_reader import ALL, blocks, segment

from scarml.errors import ProtocolError
from scarml.storage.background_writer import BackgroundWriter, SaveJob, WriteFailed, Written, write_job
from scarml.storage.faulty import FaultyStore
from scarml.storage.memory import MemoryStore
from scarml.storage.run_folder import RunFolder


class Blocking(MemoryStore):
    """Puts of segments wait until they are let go."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()

    def put(self, name, chunks):
        if name.startswith("segments/"):
            assert self.gate.wait(10)
        super().put(name, chunks)


@pytest.fixture
def store():
    return FaultyStore(MemoryStore())


@pytest.fixture
def run(store):
    run = RunFolder.create(store, {})
    run.claim_term("new")
    return run


def job(commit: int = 1) -> SaveJob:
    return SaveJob(segment(blocks(ALL, commit), commit=commit))


def test_a_job_says_how_it_went(run, store):
    clock = iter([1.0, 3.5])
    done = write_job(run, job(), lambda: next(clock))
    assert done == Written(store.size(job().segment.name), 2.5)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failing_store_may_be_tried_again(run, store, when):
    store.fail_nth("put", 1, "the disk is full", when)
    failed = write_job(run, job())
    assert isinstance(failed, WriteFailed)
    assert failed.kind == "retry"
    assert "the disk is full" in failed.cause
    assert isinstance(write_job(run, job()), Written)


def test_a_superseded_writer_must_stop(run):
    run.claim_term("parent")
    failed = write_job(run, job())
    assert isinstance(failed, WriteFailed)
    assert failed.kind == "superseded"


def test_a_bug_is_an_outcome_too(run):
    failed = write_job(run, SaveJob(segment(blocks(ALL, 1), commit="x")))  # type: ignore[arg-type]  # the bug
    assert isinstance(failed, WriteFailed)
    assert failed.kind == "defect"


def test_the_thread_delivers_outcomes_in_order_and_close_drains():
    store = Blocking()
    run = RunFolder.create(store, {})
    run.claim_term("new")
    outcomes: queue.Queue = queue.Queue()
    with BackgroundWriter(run, max_waiting=1) as writer:
        writer.submit(job(1), outcomes.put)
        writer.submit(job(2), outcomes.put)
        with pytest.raises(ProtocolError, match="still wait"):
            writer.submit(job(3), outcomes.put)
        assert not writer.close(timeout_s=0)
        store.gate.set()
    assert [type(outcomes.get_nowait()) for _ in range(2)] == [Written, Written]
    assert len(store.list("segments/")) == 2
    with pytest.raises(ProtocolError, match="closed"):
        writer.submit(job(3), outcomes.put)
    assert writer.close()


def test_a_callback_that_fails_does_not_end_the_thread(run, caplog):
    outcomes: list = []

    def fail(outcome):
        raise RuntimeError("the caller's bug")

    with BackgroundWriter(run) as writer:
        writer.submit(job(1), fail)
        writer.submit(job(2), outcomes.append)
    assert len(outcomes) == 1
    assert "the caller's bug" in caplog.text


def test_other_tasks_come_after_the_segments_that_wait(run, store):
    done = queue.Queue()
    with BackgroundWriter(run) as writer:
        writer.submit(job(), on_done=done.put)
        writer.call(lambda: done.put(store.list("segments/")))
    assert isinstance(done.get(), Written)
    assert done.get() == [job().segment.name]
    writer.call(lambda: done.put("never"))
    assert done.empty()


def test_a_task_that_fails_does_not_end_the_writer(run, caplog):
    done = queue.Queue()
    with BackgroundWriter(run) as writer:
        writer.call(lambda: 1 / 0)
        writer.submit(job(), on_done=done.put)
    assert isinstance(done.get(), Written)
    assert "ZeroDivisionError" in caplog.text

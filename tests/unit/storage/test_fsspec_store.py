"""Stores behind fsspec, without a server: names, locks, and the map of errors."""

from __future__ import annotations

import errno
import http.client
import itertools
import traceback

import botocore.exceptions as boto
import pytest
from fsspec.exceptions import FSTimeoutError

from scarml.errors import AlreadyExistsError, DamagedError, NotFoundError, StoreError
from scarml.storage.fsspec_store import FsspecStore, Limits
from scarml.storage.object_errors import error_code, is_broken_body, mapped
from scarml.storage.run_folder import RunFolder

_number = itertools.count()
URL = "s3://bucket/run"
SECRET = "s3cr3t-Value"


@pytest.fixture
def store() -> FsspecStore:
    return FsspecStore(f"memory://unit-{next(_number)}/run")


# ------------------------------------------------------------------------------------------------------------ memory
def test_stores_of_one_prefix_see_each_other_and_no_others(store):
    beside = FsspecStore(store.url + "2")
    store.put("a/b", [b"1"])
    assert FsspecStore(store.url).list() == ["a/b"]
    assert beside.list() == []
    assert FsspecStore(store.url.rpartition("/")[0]).get("run/a/b") == b"1"


def test_what_is_no_name_is_not_listed(store):
    above = FsspecStore(store.url.rpartition("/")[0])
    store.put("a", [b"1"])
    store._objects.put(store._prefix + ".scar-exclusive", b"")
    assert store.list() == ["a"]
    assert above.list() == ["run/a"]


def test_an_object_is_no_folder(store):
    store.put("a", [b"1"])
    with pytest.raises(StoreError, match=r"cannot write a/b .*is an object, expected a folder") as e:
        store.put("a/b", [b"2"])
    assert not isinstance(e.value, AlreadyExistsError)
    store.put("c/d", [b"1"])
    with pytest.raises(NotFoundError):
        store.size("c")


def test_a_range_of_any_memory(store):
    store.put("a", [memoryview(b"0123456789")])
    out = memoryview(bytearray(8)).cast("I")
    store.read_into("a", 1, out)
    assert out.tobytes() == b"12345678"
    with pytest.raises(DamagedError, match="ends before byte 12"):
        store.get_range("a", 4, 8)


def test_a_lock_is_one_for_the_process(store):
    lock = store.lock("owner", "me")
    assert lock is not None
    assert FsspecStore(store.url).lock("owner") is None
    assert FsspecStore(store.url + "2").lock("owner") is not None
    lock.release()
    assert FsspecStore(store.url).lock("owner") is not None


def test_a_lock_whose_note_cannot_be_stored_is_not_held(store, monkeypatch):
    def fails(key: str, data: bytes) -> None:
        raise OSError(errno.EBUSY, "busy")

    with monkeypatch.context() as m:
        m.setattr(store._objects, "put", fails)
        with pytest.raises(StoreError, match="overloaded"):
            store.lock("owner")
    assert store.lock("owner") is not None


def test_a_run_lives_in_memory(store):
    run = RunFolder.create(store, {"seed": 1})
    assert run.claim_term("new") == 1
    run.append_events(1, [{"event": "started"}])
    assert RunFolder.open(FsspecStore(store.url)).read_events() == [{"event": "started"}]


def test_large_objects_get_more_time():
    limits = Limits(deadline_s=10, min_bytes_per_s=1000)
    assert limits.deadline_for(0) == 10
    assert limits.deadline_for(5000) == 15


# ------------------------------------------------------------------------------------------------------------ errors
def client_error(code: str, message: str = f"see http://u:{SECRET}@host") -> boto.ClientError:
    return boto.ClientError({"Error": {"Code": code, "Message": message}}, "PutObject")


def of_s3fs(code: str, kind: type[OSError] = OSError, number: int = errno.EIO) -> OSError:
    """As s3fs hands on what botocore raised."""
    e = kind(number, "words of the server")
    e.__cause__ = client_error(code)
    return e


ENDPOINT = f"http://user:{SECRET}@host:9000"
MAP = [
    (of_s3fs("NoSuchKey", FileNotFoundError), NotFoundError, "there is no such object"),
    (of_s3fs("404", FileNotFoundError), NotFoundError, "there is no such object"),
    (FileNotFoundError("a"), NotFoundError, "there is no such object"),
    (of_s3fs("NoSuchBucket", FileNotFoundError), StoreError, "there is no such bucket"),
    (FileExistsError(), AlreadyExistsError, "the name is taken"),
    (of_s3fs("PreconditionFailed"), AlreadyExistsError, "the name is taken"),
    (of_s3fs("412"), AlreadyExistsError, "the name is taken"),
    (of_s3fs("AccessDenied", PermissionError), StoreError, "permission denied"),
    (of_s3fs("403", PermissionError), StoreError, "permission denied"),
    (of_s3fs("InvalidAccessKeyId", PermissionError), StoreError, "does not accept the credentials"),
    (of_s3fs("SignatureDoesNotMatch", PermissionError), StoreError, "does not accept the credentials"),
    (of_s3fs("ExpiredToken", PermissionError), StoreError, "have expired"),
    (of_s3fs("RequestTimeTooSkewed", PermissionError), StoreError, "set the clock"),
    (of_s3fs("InternalError"), StoreError, "the server failed"),
    (of_s3fs("500"), StoreError, "the server failed"),
    (of_s3fs("503"), StoreError, "overloaded"),
    (of_s3fs("SlowDown"), StoreError, "overloaded"),
    (of_s3fs("QuotaExceeded"), StoreError, "is full, or a quota"),
    (of_s3fs("PermanentRedirect"), StoreError, "another region"),
    (of_s3fs("NotImplemented"), StoreError, "does not support"),
    (of_s3fs("ConditionalRequestConflict"), StoreError, "another writer"),
    (of_s3fs("SomethingNew"), StoreError, "the code SomethingNew"),
    (of_s3fs(f"<b>{SECRET}</b>"), StoreError, "the code unknown"),
    (client_error("AccessDenied"), StoreError, "permission denied"),
    (OSError(errno.EBUSY, "busy"), StoreError, "overloaded"),
    (OSError(errno.ENOSPC, SECRET), StoreError, "No space left"),
    (OSError(SECRET), StoreError, "OSError; try again"),
    (PermissionError(), StoreError, "permission denied"),
    (IsADirectoryError(), StoreError, "it is a folder"),
    (FSTimeoutError(), StoreError, "given up"),
    (TimeoutError(), StoreError, "did not answer in time"),
    (ConnectionResetError(errno.ECONNRESET, SECRET), StoreError, "cannot be reached"),
    (http.client.IncompleteRead(SECRET.encode(), 5), StoreError, "ended too early"),
    (boto.EndpointConnectionError(endpoint_url=ENDPOINT), StoreError, "cannot be reached"),
    (boto.ConnectTimeoutError(endpoint_url=ENDPOINT), StoreError, "did not answer in time"),
    (boto.ReadTimeoutError(endpoint_url=ENDPOINT), StoreError, "did not answer in time"),
    (boto.ConnectionClosedError(endpoint_url=ENDPOINT), StoreError, "closed the connection"),
    (boto.SSLError(endpoint_url=ENDPOINT, error=SECRET), StoreError, "certificate"),
    (boto.HTTPClientError(error=SECRET), StoreError, "the connection failed"),
    (boto.ResponseStreamingError(error=SECRET), StoreError, "ended too early"),
    (boto.NoCredentialsError(), StoreError, "no usable credentials"),
    (boto.PartialCredentialsError(provider="env", cred_var=SECRET), StoreError, "no usable credentials"),
    (boto.ProfileNotFound(profile=SECRET), StoreError, "no such profile"),
    (RecursionError(), StoreError, "another region"),
    (boto.NoRegionError(), StoreError, "no region"),
    (boto.InvalidConfigError(error_msg=SECRET), StoreError, "InvalidConfigError"),
]


@pytest.mark.parametrize(("raised", "kind", "words"), MAP, ids=[f"{type(m[0]).__name__}-{m[2][:20]}" for m in MAP])
def test_every_error_becomes_one_of_ours_without_its_own_text(raised, kind, words):
    with pytest.raises(StoreError) as e, mapped("write", "a/b", URL):
        raise raised
    assert type(e.value) is kind
    assert str(e.value).startswith(f"cannot write a/b in {URL}: ")
    assert words in str(e.value)
    assert SECRET not in "".join(traceback.format_exception(e.value))


def test_a_defect_is_not_taken_for_a_failing_store():
    for defect in (TypeError("x"), RuntimeError("x"), AssertionError(), DamagedError("x")):
        with pytest.raises(type(defect)) as e, mapped("write", "a", URL):
            raise defect
        assert e.value is defect


def test_the_code_of_a_server():
    assert error_code(of_s3fs("SlowDown")) == "SlowDown"
    assert error_code(OSError()) is None
    assert is_broken_body(http.client.IncompleteRead(b""))
    assert not is_broken_body(OSError())

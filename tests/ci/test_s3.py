"""S3 as it is: a real server, and everything that can go wrong between it and us."""

from __future__ import annotations

import itertools
import logging
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from tests.contracts.s3_server import (
    BUCKET,
    CREDENTIALS,
    FaultProxy,
    closed_port,
    in_threads,
    run_proxy,
    run_s3_server,
)
from tests.unit.storage.samples import WIDE, filled, same, segment

from scarml.errors import AlreadyExistsError, DamagedError, NotFoundError, RunInUseError, StoreError, UsageError
from scarml.storage import s3_objects
from scarml.storage.fsspec_store import FsspecStore, Limits
from scarml.storage.open_store import open_store
from scarml.storage.run_folder import RunFolder
from scarml.storage.store import Store

pytestmark = pytest.mark.ci

QUICK = Limits(connect_timeout_s=1, read_timeout_s=0.5, attempts=1, deadline_s=15)
PATIENT = Limits(read_timeout_s=5, attempts=3)
SECRET = "pLaNtEd-s3cr3t"
MIB = 1 << 20
_number = itertools.count()


@pytest.fixture(autouse=True)
def _no_aws_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "ENDPOINT_URL", "ENDPOINT_URL_S3"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("CONFIG_FILE", "SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(f"AWS_{name}", str(tmp_path / "none"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s3")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    with run_s3_server(folder) as url:
        yield url


@pytest.fixture
def proxy(server: str) -> Iterator[FaultProxy]:
    with run_proxy(server) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def session() -> object:
    from aiobotocore.session import AioSession

    return AioSession()  # it holds the descriptions of services, which are read in half a second


@pytest.fixture
def make(session: object) -> Callable[..., FsspecStore]:
    def make(endpoint: str, url: str = "", limits: Limits = QUICK, **options: object) -> FsspecStore:
        url = url or f"s3://{BUCKET}/test-{next(_number)}/run"
        return FsspecStore(url, {"endpoint_url": endpoint, **CREDENTIALS, "session": session, **options}, limits)

    return make


@pytest.fixture
def store(make: Callable[..., FsspecStore], proxy: FaultProxy) -> FsspecStore:
    """A store behind the proxy; its bucket is known, and the server's way with conditions."""
    store = make(proxy.url)
    store.create("here", [b"0123456789"])
    proxy.requests.clear()
    return store


@pytest.fixture
def patient(make: Callable[..., FsspecStore], proxy: FaultProxy, store: FsspecStore) -> FsspecStore:
    """The same, which tries again."""
    patient = make(proxy.url, store.url, PATIENT)
    with pytest.raises(AlreadyExistsError):
        patient.create("here", [])
    return patient


def operations(store: Store) -> dict[str, Callable[[], object]]:
    return {
        "put": lambda: store.put("new", [b"x"]),
        "put over": lambda: store.put("here", [b"9876543210"]),
        "create": lambda: store.create("newer", [b"x"]),
        "get": lambda: store.get("here"),
        "get_range": lambda: store.get_range("here", 2, 4),
        "size": lambda: store.size("here"),
        "list": lambda: store.list(),
        "delete": lambda: store.delete("here"),
        "lock": lambda: store.lock("owner"),
        "sweep": lambda: store.sweep(),
    }


def assert_all_fail(store: FsspecStore, words: str, within_s: float, leave_out: tuple[str, ...] = ()) -> None:
    for name, call in operations(store).items():
        if name in leave_out:
            continue
        start_s = time.monotonic()
        with pytest.raises(StoreError) as e:
            call()
        assert time.monotonic() - start_s < within_s, name
        assert type(e.value) is StoreError, name
        assert words in str(e.value), name
        assert store.url in str(e.value), name


def assert_healed(store: FsspecStore) -> None:
    """Nothing changed, nothing half-written is there, and everything works again."""
    assert store.list() == ["here"]
    assert store.get("here") == b"0123456789"
    for call in operations(store).values():
        call()
    assert store.list() == ["new", "newer", "owner"]


# -------------------------------------------------------------------------------------------------- a server that fails
@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        (500, "InternalError", "the server failed"),
        (503, "SlowDown", "overloaded"),
        (502, "BadGateway", ""),
        (403, "AccessDenied", "permission denied"),
        (403, "ExpiredToken", ""),
        (507, "InsufficientStorage", ""),
    ],
)
def test_errors_of_the_server(store: FsspecStore, proxy: FaultProxy, code: int, name: str, words: str) -> None:
    proxy.fail("status", code=code, name=name)
    # An account that may not list uploads has nothing to sweep.
    assert_all_fail(store, words, within_s=10, leave_out=("sweep",) if code == 403 else ())
    assert proxy.fired["status"] >= 9
    proxy.heal()
    assert_healed(store)


def test_a_redirect_that_leads_nowhere(store: FsspecStore, proxy: FaultProxy) -> None:
    proxy.fail("status", code=301, name="PermanentRedirect")
    with pytest.raises(StoreError, match="another region"):
        store.get("here")


@pytest.mark.parametrize("kind", ["status", "lose-answer"])
def test_one_failure_is_not_even_noticed(patient: FsspecStore, proxy: FaultProxy, kind: str) -> None:
    calls = operations(patient)
    del calls["sweep"]  # this server cannot, which is no failure
    for i, (name, call) in enumerate(calls.items(), start=1):
        proxy.fail(kind, times=1)
        call()
        assert proxy.fired[kind] == i, name
        patient.put("here", [b"0123456789"])


def test_a_permission_that_is_lost_midway(store: FsspecStore, proxy: FaultProxy) -> None:
    proxy.fail("status", methods=("PUT", "DELETE"), code=403, name="AccessDenied")
    with pytest.raises(StoreError, match=r"cannot write new in s3://.*: permission denied; check that the credentials"):
        store.put("new", [b"x"])
    with pytest.raises(StoreError, match="cannot delete here"):
        store.delete("here")
    assert store.get("here") == b"0123456789"
    proxy.heal()
    store.put("new", [b"x"])
    assert store.list() == ["here", "new"]


def test_a_server_that_hangs(store: FsspecStore, proxy: FaultProxy) -> None:
    proxy.fail("hang")
    start_s = time.monotonic()
    with pytest.raises(StoreError, match="did not answer in time"):
        store.put("new", [b"x"])
    with pytest.raises(StoreError, match="did not answer in time"):
        store.get("here")
    assert time.monotonic() - start_s < 10
    proxy.heal()
    assert_healed(store)


def test_an_operation_is_given_up_at_its_deadline(
    make: Callable[..., FsspecStore], proxy: FaultProxy, store: FsspecStore
) -> None:
    hasty = make(proxy.url, store.url, Limits(read_timeout_s=60, deadline_s=1))
    proxy.fail("hang")
    start_s = time.monotonic()
    with pytest.raises(StoreError, match="given up, it took longer than allowed"):
        hasty.get("here")
    assert time.monotonic() - start_s < 5
    proxy.heal()
    assert hasty.get("here") == b"0123456789"


def test_no_server_at_all(make: Callable[..., FsspecStore]) -> None:
    nobody = make(closed_port())
    assert_all_fail(nobody, "cannot be reached", within_s=10)


def test_an_answer_that_breaks_off(patient: FsspecStore, store: FsspecStore, proxy: FaultProxy) -> None:
    proxy.fail("cut-body", methods=("GET",), times=1)
    assert patient.get("here") == b"0123456789"
    proxy.fail("cut-body", methods=("GET",), times=1)
    assert patient.get_range("here", 0, 8) == b"01234567"
    assert proxy.fired["cut-body"] == 2
    proxy.fail("cut-body", methods=("GET",), part="here")
    for call in (lambda: store.get("here"), lambda: store.get_range("here", 0, 8)):
        with pytest.raises(StoreError, match="ended too early") as e:
            call()
        assert not isinstance(e.value, DamagedError)
    proxy.heal()
    assert_healed(store)


def test_an_answer_that_is_short_is_no_damaged_object(store: FsspecStore, proxy: FaultProxy) -> None:
    proxy.fail("short-body", methods=("GET",), part="here")
    with pytest.raises(StoreError, match="ended too early") as e:
        store.get_range("here", 0, 8)
    assert not isinstance(e.value, DamagedError)
    proxy.heal()
    with pytest.raises(DamagedError, match="ends before byte 11"):
        store.get_range("here", 3, 8)


def test_what_is_no_s3_server_is_said(store: FsspecStore, proxy: FaultProxy) -> None:
    proxy.fail("answer", body=b"<html>Welcome</html>")
    with pytest.raises(StoreError, match="is it an S3 server"):
        store.list()
    proxy.heal()
    proxy.fail("answer", body=b"Welcome")
    with pytest.raises(StoreError):
        store.list()


def test_a_bucket_that_is_not_there(make: Callable[..., FsspecStore], server: str) -> None:
    lost = make(server, "s3://no-such-bucket/run")
    assert_all_fail(lost, "no such bucket", within_s=10, leave_out=("size", "sweep"))
    with pytest.raises(StoreError, match="there is no bucket no-such-bucket; make it"):
        lost.size("here")
    with pytest.raises(StoreError, match="no bucket"):
        RunFolder.is_run(make(server, "s3://no-such-bucket/run"))


def test_a_missing_object_in_a_bucket_that_is_there(make: Callable[..., FsspecStore], server: str) -> None:
    fresh = make(server)
    with pytest.raises(NotFoundError, match="there is no such object"):
        fresh.size("nothing")
    assert not RunFolder.is_run(fresh)


# ---------------------------------------------------------------------------------------------------- exclusive create
def test_a_create_whose_answer_was_lost_is_ours(patient: FsspecStore, proxy: FaultProxy) -> None:
    proxy.fail("lose-answer", methods=("PUT",), times=1)
    patient.create("claim", [b"ours"])
    assert proxy.fired["lose-answer"] == 1
    assert patient.get("claim") == b"ours"
    with pytest.raises(AlreadyExistsError):  # the same bytes do not make it ours
        patient.create("claim", [b"ours"])


def test_creates_that_collide_are_tried_again(patient: FsspecStore, proxy: FaultProxy) -> None:
    store = patient
    proxy.fail("status", methods=("PUT",), times=1, code=409, name="ConditionalRequestConflict")
    store.create("claim", [b"ours"])
    proxy.fail("status", methods=("PUT",), code=409, name="ConditionalRequestConflict")
    with pytest.raises(StoreError, match="another writer was at work") as e:
        store.create("claim 2", [b"ours"])
    assert not isinstance(e.value, AlreadyExistsError)


@pytest.mark.parametrize("keeps_metadata", [True, False])
def test_a_server_that_ignores_conditions(
    make: Callable[..., FsspecStore], proxy: FaultProxy, caplog: pytest.LogCaptureFixture, keeps_metadata: bool
) -> None:
    proxy.keeps_conditions = False
    proxy.keeps_metadata = keeps_metadata
    url = f"s3://{BUCKET}/old-{next(_number)}"
    stores = [make(proxy.url, url, Limits(settle_s=3)) for _ in range(3)]
    winners = []

    def race(i: int) -> None:
        try:
            stores[i].create("claim", [str(i).encode()])
        except AlreadyExistsError:
            return
        winners.append(i)

    in_threads(3, race)
    assert [str(i).encode() for i in winners] == [stores[0].get("claim")]
    with pytest.raises(AlreadyExistsError):
        stores[winners[0]].create("claim", [b"x"])
    assert stores[0].list() == ["claim"]
    assert "ignores conditions" in caplog.text


def test_a_server_too_slow_to_settle_creates_nothing_for_sure(
    make: Callable[..., FsspecStore], proxy: FaultProxy
) -> None:
    proxy.keeps_conditions = False
    slow = make(proxy.url, limits=Limits(settle_s=1e-6))
    with pytest.raises(StoreError, match="does not support exclusive create") as e:
        slow.create("claim", [b"x"])
    assert not isinstance(e.value, AlreadyExistsError)


# ------------------------------------------------------------------------------------------------------ large, and many
def test_large_objects_go_up_and_come_down_in_parts(
    store: FsspecStore, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_objects, "_UPLOAD_PART_BYTES", 5 * MIB)
    monkeypatch.setattr(s3_objects, "_PART_BYTES", 3 * MIB)
    data = np.random.default_rng(0).bytes(12 * MIB + 5)
    store.put("large", [data])
    assert sum("partNumber" in path for _, path in proxy.requests) == 3
    assert store.get("large") == data
    assert store.get_range("large", 7, 11 * MIB) == data[7 : 7 + 11 * MIB]
    store.create("large 2", [data])
    with pytest.raises(AlreadyExistsError):
        store.create("large 2", [data])
    with pytest.raises(DamagedError):
        store.get_range("large", MIB, 12 * MIB)


def test_a_large_object_whose_part_fails_is_not_there(
    store: FsspecStore, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_objects, "_UPLOAD_PART_BYTES", 5 * MIB)
    proxy.fail("status", methods=("PUT",), part="partNumber=2", code=503, name="ServiceUnavailable")
    for write in (store.put, store.create):
        with pytest.raises(StoreError, match="overloaded"):
            write("large", [bytes(12 * MIB)])
    assert store.list() == ["here"]
    begun = sum(method == "POST" and path.endswith("?uploads") for method, path in proxy.requests)
    aborted = {path for method, path in proxy.requests if method == "DELETE" and "uploadId" in path}
    assert begun == len(aborted) >= 2  # a part still on its way may arrive after that: sweep() is for those
    proxy.heal()
    store.create("large", [bytes(12 * MIB)])


def test_only_uploads_that_are_surely_dead_are_swept(store: FsspecStore, proxy: FaultProxy) -> None:
    def upload(name: str, age: timedelta) -> str:
        when = (datetime.now(UTC) - age).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        return f"<Upload><Key>{name}</Key><UploadId>{name}-id</UploadId><Initiated>{when}</Initiated></Upload>"

    body = upload("old", timedelta(days=2)) + upload("young", timedelta(hours=2))
    page = f"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>{body}</ListMultipartUploadsResult>"
    proxy.fail("answer", methods=("GET",), part="uploads", body=page.encode())
    proxy.fail("answer", methods=("DELETE",), part="uploadId")
    assert store.sweep() == 1
    assert [path for method, path in proxy.requests if method == "DELETE"] == [f"/{BUCKET}/old?uploadId=old-id"]


def test_more_objects_than_a_page_holds(make: Callable[..., FsspecStore], server: str, folder: Path) -> None:
    store = make(server)
    home = folder / store.url.removeprefix("s3://") / "many"
    home.mkdir(parents=True)
    for i in range(2345):
        (home / f"{i:04d}").write_bytes(b"")
    assert store.list("many/") == [f"many/{i:04d}" for i in range(2345)]
    assert len(store.list("many/1")) == 1000


# ---------------------------------------------------------------------------------------------------------- a whole run
def test_a_whole_run(make: Callable[..., FsspecStore], proxy: FaultProxy) -> None:
    store = make(proxy.url)
    run = RunFolder.create(store, {"model": "mlr", "seed": 3})
    term = run.claim_term("new")
    blocks = filled(WIDE, range(40))
    run.write_segment(segment(blocks, term=term, commit=1))
    newer = filled(WIDE, range(10), seed=1)

    assert len(proxy.requests) <= 15
    proxy.requests.clear()
    run.write_segment(segment(newer, term=term, commit=2))
    assert [method for method, _ in proxy.requests] == ["PUT", "HEAD"]  # docs/how-to/object-stores.md says so
    run.append_events(term, [{"event": "saved"}])
    proxy.requests.clear()
    run.append_events(term, [{"event": "saved"}])
    assert [method for method, _ in proxy.requests] == ["PUT"]

    other = RunFolder.open(make(proxy.url, store.url))
    term_2 = other.claim_term("parent")
    restored = other.reader(term_2).read_newest(WIDE, np.arange(40))
    assert same(restored.blocks.take(np.arange(10)), newer)
    assert same(restored.blocks.take(np.arange(10, 40)), blocks.take(np.arange(10, 40)))
    assert len(other.read_events()) == 2
    with pytest.raises(Exception, match="superseded"):
        run.write_segment(segment(newer, term=term, commit=3))


def test_of_racing_starts_one_wins(make: Callable[..., FsspecStore], server: str) -> None:
    first = make(server)
    RunFolder.create(first, {"model": "mlr"}).claim_term("new")
    runs = [RunFolder.open(make(server, first.url)) for _ in range(4)]
    terms = []

    def start(i: int) -> None:
        try:
            terms.append(runs[i].claim_term("parent"))
        except (RunInUseError, StoreError):  # lost the race, or the server was too busy to answer in time
            return

    in_threads(4, start)
    assert len(set(terms)) == len(terms)


# ------------------------------------------------------------------------------------------------------------- settings
def test_endpoint_and_credentials_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    url = f"s3://{BUCKET}/env-{next(_number)}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    with pytest.raises(StoreError, match="no usable credentials were found; set AWS_ACCESS_KEY_ID"):
        open_store(url).list()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    open_store(url).put("a", [b"1"])
    assert open_store(f"s3://{BUCKET}").get(f"{url.rpartition('/')[2]}/a") == b"1"


def test_options_that_s3fs_does_not_know_are_named_without_their_values() -> None:
    with pytest.raises(UsageError, match="options together: key, username") as e:
        open_store("s3://bucket", {"key": SECRET, "username": SECRET})
    assert SECRET not in "".join(traceback.format_exception(e.value))


@pytest.mark.parametrize("how", ["options", "environment", "endpoint"])
def test_secrets_are_nowhere(
    how: str, proxy: FaultProxy, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, logger="scarml")
    options: dict[str, object] = {"endpoint_url": proxy.url}
    if how == "options":
        options |= {"key": f"key-{SECRET}", "secret": f"secret-{SECRET}", "token": f"token-{SECRET}"}
    else:
        for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
            monkeypatch.setenv(f"AWS_{name}", f"{name}-{SECRET}")
    if how == "endpoint":
        options = {"endpoint_url": proxy.url.replace("http://", f"http://user:{SECRET}@")}
    store = open_store(f"s3://{BUCKET}/secrets-{next(_number)}", options, QUICK)
    shown = [repr(store), str(store)]
    if how != "endpoint":
        run = RunFolder.create(store, {"model": "mlr"})
        run.append_events(run.claim_term("new"), [{"store": repr(store)}])
    faults = [{}, {"code": 503}, {"code": 403, "name": "SignatureDoesNotMatch"}, {"code": 400, "name": SECRET}]
    for fault in faults:
        proxy.fail("status", **fault)
        for call in operations(store).values():
            try:
                call()
            except StoreError as e:
                shown += [repr(e), *traceback.format_exception(e)]
        proxy.heal()
    assert len(shown) > 30
    assert SECRET not in "".join(shown) + caplog.text
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert written
    assert not any(SECRET.encode() in path.read_bytes() or SECRET in str(path) for path in written)

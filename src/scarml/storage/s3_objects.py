"""Objects in a bucket of S3, MinIO, Ceph and the like, through s3fs.

Exclusive create
    is a conditional put (``If-None-Match: *``), which the server decides: of any number of creates exactly one
    succeeds. Each carries a mark of its own as metadata; when a request was repeated because its answer was lost, the
    mark tells our own object from another's.

    Some older servers ignore the condition. Before its first create a store finds out, by creating the object
    ``.scar-exclusive`` twice. On such a server a create looks for the object, puts its own, waits `Limits.settle_s`,
    and has succeeded if its mark is still there. Exactly one succeeds as long as no look and put together takes longer
    than that wait; one that does take longer fails (Fischer's algorithm; Lamport, "A Fast Mutual Exclusion Algorithm",
    1987). A warning says so once.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar

from scarml.errors import StoreError, UsageError
from scarml.storage.object_errors import error_code, is_broken_body
from scarml.storage.object_port import Limits, missing_package

__all__ = ["S3Objects"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_P = ParamSpec("_P")

_PART_BYTES = 16 << 20  # of a long read
_UPLOAD_PART_BYTES = 64 << 20  # from twice this on, an upload is in parts
_PARALLEL = 8
_MARK = "scar-writer"
_PROBE = ".scar-exclusive"
_OLD = timedelta(days=1)
_REFUSED = ("AccessDenied", "403", "NotImplemented", "501", "MethodNotAllowed", "405")


class S3Objects:
    """One bucket.

    Args:
        bucket: its name.
        home: the beginning of this store's keys; the probe lies there.
        storage_options: of ``s3fs.S3FileSystem``; what is not there comes from the AWS environment and configuration.
        limits: of time and attempts.

    Raises:
        UsageError: s3fs is not installed, or does not take these options.
    """

    def __init__(self, bucket: str, home: str, storage_options: Mapping[str, Any], limits: Limits) -> None:
        self._bucket = bucket
        self._home = home
        self._limits = limits
        self._fs = _file_system(storage_options, limits)
        self._is_bucket_known = False
        self._honours_conditions: bool | None = None

    def put(self, key: str, data: bytes) -> None:
        self._run(len(data), self._upload, key, data)

    def create(self, key: str, data: bytes) -> None:
        if self._honours_conditions is None:
            self._honours_conditions = self._run(0, self._probe)
        create = self._create if self._honours_conditions else self._create_and_settle
        self._run(len(data), create, key, data, secrets.token_hex(16))

    def read(self, key: str) -> bytes:
        # The size is not known before the answer comes, so no more time can be given for a large object.
        return self._run(0, self._fetch_patiently, key, None)

    def read_into(self, key: str, start: int, out: memoryview) -> int:
        return self._run(len(out), self._fetch_parts, key, start, out)

    def size(self, key: str) -> int:
        return int(self._run(0, self._head, key)["ContentLength"])

    def find(self, prefix: str) -> list[str]:
        return self._run(0, self._list, prefix)

    def delete(self, key: str) -> None:
        self._run(0, self._delete, key)

    def sweep(self, prefix: str) -> int:
        """Abort uploads in parts that were begun more than a day ago: no living writer takes as long."""
        return self._run(0, self._abort_old_uploads, prefix)

    def _run(self, size_bytes: int, work: Callable[_P, Coroutine[Any, Any, _T]], *args: _P.args, **kw: _P.kwargs) -> _T:
        """Do something in fsspec's own thread, and wait for it as long as the limits say."""
        from fsspec.asyn import sync

        result: _T = sync(self._fs.loop, work, *args, timeout=self._limits.deadline_for(size_bytes), **kw)
        return result

    async def _call(self, method: str, **arguments: Any) -> Any:
        answer = await self._fs._call_s3(method, Bucket=self._bucket, **arguments)
        self._is_bucket_known = True
        return answer

    # ------------------------------------------------------------------------------------------------------- writing
    async def _upload(self, key: str, data: bytes, mark: str | None = None, *, is_exclusive: bool = False) -> None:
        metadata = {"Metadata": {_MARK: mark}} if mark is not None else {}
        await self._fs._pipe_file(
            f"{self._bucket}/{key}",
            data,
            chunksize=_UPLOAD_PART_BYTES,
            max_concurrency=_PARALLEL,
            mode="create" if is_exclusive else "overwrite",
            **metadata,
        )

    async def _create(self, key: str, data: bytes, mark: str) -> None:
        for attempt in range(self._limits.attempts):
            try:
                await self._upload(key, data, mark, is_exclusive=True)
                return
            except Exception as e:
                code = error_code(e)
                if code in ("PreconditionFailed", "412"):
                    if await self._mark_of(key) == mark:
                        return  # a request of ours was repeated, because the answer to the first was lost
                    raise FileExistsError from None
                if code not in ("ConditionalRequestConflict", "409") or attempt == self._limits.attempts - 1:
                    raise
                await asyncio.sleep(0.1 * 2**attempt)  # another create is under way; its outcome is not known yet

    async def _create_and_settle(self, key: str, data: bytes, mark: str) -> None:
        start_s = time.monotonic()
        if await self._exists(key):
            raise FileExistsError
        await self._upload(key, data, mark)
        if time.monotonic() - start_s > self._limits.settle_s:
            raise StoreError(
                f"cannot create {key}: the server took longer than {self._limits.settle_s} s, and it does not support "
                "exclusive create; somebody else may have been faster"
            )
        await asyncio.sleep(self._limits.settle_s)
        found = await self._mark_of(key)
        if found != mark and (found is not None or await self._fetch_patiently(key, None) != data):
            raise FileExistsError

    async def _probe(self) -> bool:
        """Whether the server refuses a conditional put of what is there."""
        for _ in range(2):
            try:
                await self._upload(f"{self._home}{_PROBE}", b"", is_exclusive=True)
            except Exception as e:
                if isinstance(e, FileExistsError) or error_code(e) in ("PreconditionFailed", "412"):
                    return True
                raise
        _log.warning(
            "the server of s3://%s ignores conditions on writing (If-None-Match): two processes that start on one run "
            "within %g s are told apart only if it is fast enough, and creating an object takes as long",
            self._bucket,
            self._limits.settle_s,
        )
        return False

    async def _delete(self, key: str) -> None:
        await self._call("delete_object", Key=key)

    async def _mark_of(self, key: str) -> str | None:
        mark = (await self._head(key)).get("Metadata", {}).get(_MARK)
        return str(mark) if mark is not None else None

    # ------------------------------------------------------------------------------------------------------- reading
    async def _head(self, key: str) -> Any:
        try:
            return await self._call("head_object", Key=key)
        except FileNotFoundError:
            if not self._is_bucket_known:
                await self._check_bucket()
            raise

    async def _check_bucket(self) -> None:
        """An answer to HEAD has no body to say what is missing: the object or the bucket."""
        try:
            await self._call("head_bucket")
        except FileNotFoundError:
            raise StoreError(
                f"there is no bucket {self._bucket}; make it, or check its name and the endpoint"
            ) from None
        except PermissionError:
            self._is_bucket_known = True  # it is there

    async def _exists(self, key: str) -> bool:
        try:
            await self._head(key)
        except FileNotFoundError:
            return False
        return True

    async def _fetch_parts(self, key: str, start: int, out: memoryview) -> int:
        if not len(out):
            await self._head(key)
            return 0
        gate = asyncio.Semaphore(_PARALLEL)

        async def part(begin: int) -> int:
            target = out[begin : begin + _PART_BYTES]
            async with gate:
                data = await self._fetch_patiently(key, (start + begin, start + begin + len(target)))
            target[: len(data)] = data
            return len(data)

        return sum(await asyncio.gather(*map(part, range(0, len(out), _PART_BYTES))))

    async def _fetch_patiently(self, key: str, span: tuple[int, int] | None) -> bytes:
        """As `_fetch`; botocore repeats a request that fails, but not one whose answer breaks off."""
        for _ in range(self._limits.attempts - 1):
            try:
                return await self._fetch(key, span)
            except Exception as e:
                if not is_broken_body(e):
                    raise
                _log.debug("reading %s again: the answer broke off", key)
        return await self._fetch(key, span)

    async def _fetch(self, key: str, span: tuple[int, int] | None) -> bytes:
        """An object, or what there is of a span of it; checked against the length that the server promised."""
        wanted = {"Range": f"bytes={span[0]}-{span[1] - 1}"} if span else {}
        try:
            answer = await self._call("get_object", Key=key, **wanted)
        except OSError as e:
            if span and error_code(e) in ("InvalidRange", "416"):
                return b""
            raise
        async with answer["Body"] as body:
            data = bytes(await body.read())
        expected = int(answer["ContentLength"])
        total = str(answer.get("ContentRange", "")).rpartition("/")[2]
        if span and total.isdecimal():
            expected = min(int(total), span[1]) - span[0]
        if len(data) != expected:
            raise http.client.IncompleteRead(b"", expected - len(data))
        return data if not span or "ContentRange" in answer else data[span[0] : span[1]]

    async def _list(self, prefix: str) -> list[str]:
        keys: list[str] = []
        position: dict[str, str] = {}
        while True:
            page = await self._call("list_objects_v2", Prefix=prefix, **position)
            if "IsTruncated" not in page:  # some page of a web server, which would pass for an empty list
                raise StoreError(
                    f"no list of s3://{self._bucket} came back; is it an S3 server? Check AWS_ENDPOINT_URL"
                )
            keys += [str(entry["Key"]) for entry in page.get("Contents", [])]
            if not page.get("IsTruncated"):
                return keys
            position = {"ContinuationToken": page["NextContinuationToken"]}

    # ------------------------------------------------------------------------------------------------------ sweeping
    async def _abort_old_uploads(self, prefix: str) -> int:
        swept = 0
        position: dict[str, str] = {}
        try:
            while True:
                page = await self._call("list_multipart_uploads", Prefix=prefix, **position)
                for upload in page.get("Uploads", []):
                    if upload["Initiated"] < datetime.now(UTC) - _OLD:
                        with suppress(FileNotFoundError):  # somebody else was faster
                            await self._call("abort_multipart_upload", Key=upload["Key"], UploadId=upload["UploadId"])
                            swept += 1
                if not page.get("IsTruncated"):
                    return swept
                position = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
        except Exception as e:
            if error_code(e) not in _REFUSED:
                raise
            _log.debug("uploads that were left behind in s3://%s cannot be listed or aborted", self._bucket)
        return swept


def _file_system(storage_options: Mapping[str, Any], limits: Limits) -> Any:
    try:
        import s3fs
    except ModuleNotFoundError as e:
        raise missing_package("s3://", e) from None
    config = {
        "connect_timeout": limits.connect_timeout_s,
        "read_timeout": limits.read_timeout_s,
        "retries": {"total_max_attempts": limits.attempts, "mode": "standard"},
        **storage_options.get("config_kwargs", {}),
    }
    options = {**storage_options, "config_kwargs": config, "use_listings_cache": False, "skip_instance_cache": True}
    try:
        fs = s3fs.S3FileSystem(**options)
    except (TypeError, ValueError, KeyError):
        names = ", ".join(sorted(map(str, storage_options)))
        raise UsageError(f"s3fs does not take these storage options together: {names}") from None
    fs.retries = 1  # botocore's repeats are bounded and know more of the error; those of s3fs would multiply them
    return fs

"""Errors of fsspec, s3fs, botocore and aiohttp, as `StoreError`s with the cause in words.

Errors are told by the code that the server gave, else by the names of their classes, so that none of those packages is
imported for it. Their own texts are never quoted: they hold URLs, headers and answers of servers, and any of these may
hold a secret. For the same reason they are not chained to the errors that are raised here.
"""

from __future__ import annotations

import errno
import http.client
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from scarml.errors import AlreadyExistsError, NotFoundError, StoreError

__all__ = ["error_code", "is_broken_body", "mapped", "store_error"]

_KEPT = "nothing that was stored before is lost"
_DENIED = "permission denied; check that the credentials may read, write, list and delete there (s3:ListBucket too)"
_BAD_KEY = "the server does not accept the credentials; check the access key and the secret key"
_EXPIRED = "the credentials have expired; renew them"
_BUSY = f"the server is overloaded or down for a moment; try again, {_KEPT}"
_BROKEN = f"the server failed; try again, {_KEPT}"
_FULL = f"the server is full, or a quota is used up; make room, {_KEPT}"
_REGION = "the bucket is in another region, or the endpoint is not its own; check AWS_REGION and AWS_ENDPOINT_URL"
_NO_BUCKET = "there is no such bucket; make it, or check its name and the endpoint"
_CANNOT = "the server does not support this operation; choose another one"
_CUT_SHORT = "the answer ended too early; try again"
_GARBLED = "the data came through damaged; try again"
_UNREACHABLE = "the server cannot be reached; check the endpoint (AWS_ENDPOINT_URL) and the network"
_NO_CREDENTIALS = (
    "no usable credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile (AWS_PROFILE)"
)
_CONFLICT = "another writer was at work on the same object; try again"

_BY_CODE = {
    "NoSuchBucket": _NO_BUCKET,
    "InvalidBucketName": "the server does not accept the name of the bucket; check it",
    **dict.fromkeys(("AccessDenied", "AllAccessDisabled", "AccountProblem", "403", "401"), _DENIED),
    **dict.fromkeys(("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSecurity"), _BAD_KEY),
    **dict.fromkeys(("ExpiredToken", "InvalidToken", "TokenRefreshRequired"), _EXPIRED),
    "RequestTimeTooSkewed": "the clocks of server and client differ too much; set the clock",
    **dict.fromkeys(("InternalError", "500"), _BROKEN),
    **dict.fromkeys(("ServiceUnavailable", "SlowDown", "503", "502", "504", "429", "Throttling"), _BUSY),
    **dict.fromkeys(("QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "507"), _FULL),
    **dict.fromkeys(("EntityTooLarge", "413"), "the object is too large for the server"),
    **dict.fromkeys(("PermanentRedirect", "AuthorizationHeaderMalformed", "301", "307"), _REGION),
    **dict.fromkeys(("NotImplemented", "MethodNotAllowed", "501", "405"), _CANNOT),
    **dict.fromkeys(("ConditionalRequestConflict", "OperationAborted", "409"), _CONFLICT),
    "RequestTimeout": "the server waited too long for the data; try again",
    **dict.fromkeys(("IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch"), _GARBLED),
    "InvalidObjectState": "the object has been moved to an archive; bring it back first",
}  # fmt: skip

_BY_CLASS = {  # the first class that is here, along the order of inheritance
    "FSTimeoutError": "the operation was given up, it took longer than allowed; check the server and the network",
    "ConnectTimeoutError": "the server did not answer in time; check the endpoint (AWS_ENDPOINT_URL) and the network",
    "ReadTimeoutError": "the server did not answer in time; try again",
    "TimeoutError": "the server did not answer in time; try again",
    "SSLError": "no safe connection: the server's certificate is not trusted; check the endpoint and AWS_CA_BUNDLE",
    "EndpointConnectionError": _UNREACHABLE,
    "ProxyConnectionError": "the proxy cannot be reached; check HTTPS_PROXY",
    "ConnectionClosedError": "the server closed the connection; try again",
    "IncompleteRead": _CUT_SHORT,
    "IncompleteReadError": _CUT_SHORT,
    "ClientPayloadError": _CUT_SHORT,
    "ResponseStreamingError": _CUT_SHORT,
    "ResponseParserError": "the answer was not understood; is it an S3 server? Check AWS_ENDPOINT_URL",
    "FlexibleChecksumError": _GARBLED,
    "NoCredentialsError": _NO_CREDENTIALS,
    "PartialCredentialsError": _NO_CREDENTIALS,
    "CredentialRetrievalError": _NO_CREDENTIALS,
    "ProfileNotFound": "there is no such profile in the AWS configuration; check AWS_PROFILE",
    "TokenRetrievalError": _EXPIRED,
    "UnauthorizedSSOTokenError": _EXPIRED,
    "SSOTokenLoadError": _EXPIRED,
    "LoginError": _EXPIRED,
    "RecursionError": _REGION,  # botocore follows redirects by calling itself
    "NoRegionError": "no region is set; set AWS_REGION",
    "PermissionError": _DENIED,
    "IsADirectoryError": "it is a folder, expected an object; choose another name",
    "NotADirectoryError": "a part of the name is an object, expected a folder; choose another name",
    "ConnectionError": _UNREACHABLE,
    "HTTPClientError": "the connection failed; check the endpoint (AWS_ENDPOINT_URL) and the network, and try again",
    "ClientError": "the connection failed; try again",  # aiohttp's; botocore's has a code
}
_OURS_TO_MAP = ("BotoCoreError", "ClientError", "ResponseParserError", "RecursionError")
_BROKEN_BODIES = ("IncompleteRead", "IncompleteReadError", "ClientPayloadError", "ResponseStreamingError")
_IS_CODE = re.compile(r"[A-Za-z0-9.]{1,48}")
_ABSENT = ("NoSuchKey", "404", "NotFound")
_TAKEN = ("PreconditionFailed", "412")


@contextmanager
def mapped(action: str, name: str, where: str) -> Iterator[None]:
    """Raise what goes wrong in the body as a `StoreError`. What is no failure of a store passes as it is."""
    try:
        yield
    except (OSError, http.client.HTTPException) as e:
        error = store_error(action, name, where, e)
    except Exception as e:
        if not any(c in _OURS_TO_MAP for c in _class_names(e)):
            raise
        error = store_error(action, name, where, e)
    else:
        return
    raise error from None


def store_error(action: str, name: str, where: str, e: Exception) -> StoreError:
    """The error to raise: what was tried, where, why it failed, what to do."""
    what = f"cannot {action} {name} in {where}" if name else f"cannot {action} {where}"
    code = error_code(e)
    if code in _TAKEN or isinstance(e, FileExistsError):
        return AlreadyExistsError(f"{what}: the name is taken")
    if code in _ABSENT or (isinstance(e, FileNotFoundError) and code is None):
        return NotFoundError(f"{what}: there is no such object")
    return StoreError(f"{what}: {_cause(e, code)}")


def error_code(e: BaseException) -> str | None:
    """The code that an S3 server gave, like ``NoSuchBucket``, or its HTTP status; None if there was none."""
    seen: BaseException | None = e
    for _ in range(8):  # an error of s3fs has botocore's as its cause
        if seen is None:
            return None
        response = getattr(seen, "response", None)
        if isinstance(response, dict):
            code = str(response.get("Error", {}).get("Code", ""))
            return code if _IS_CODE.fullmatch(code) else "unknown"
        seen = seen.__cause__
    return None


def is_broken_body(e: Exception) -> bool:
    """Whether an answer began well and then ended too early."""
    return any(name in _BROKEN_BODIES for name in _class_names(e))


def _cause(e: Exception, code: str | None) -> str:
    if code is not None:
        return _BY_CODE.get(code, f"the server refused it with the code {code}")
    number = e.errno if isinstance(e, OSError) else None
    words = next((_BY_CLASS[name] for name in _class_names(e) if name in _BY_CLASS), None)
    if words is not None:
        return words
    if number in (errno.EBUSY, errno.EAGAIN):
        return _BUSY
    return f"{type(e).__name__}: {os.strerror(number)}" if number else f"{type(e).__name__}; try again"


def _class_names(e: Exception) -> list[str]:
    return [c.__name__ for c in type(e).__mro__]

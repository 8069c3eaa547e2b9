"""URLs of stores: what they mean, and how they are shown. Nothing secret that a user puts into one is ever shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from scarml.errors import UsageError

__all__ = ["StoreUrl", "parse_url", "redact_url"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_LOST_SLASH = re.compile(r"(file|memory|s3|s3a|gs|gcs|az|abfs|hdfs|https?):/?(?!/)")
# A bucket's name, or the ARN of an access point, which may have a slash in it.
_BUCKET_AND_PREFIX = re.compile(r"([A-Za-z0-9._-]{1,255}|arn:aws[^/]*:accesspoint[:/][^/]+)(?:/(.*))?")
_MAX_PREFIX_BYTES = 500  # an S3 key has at most 1,024 bytes; names of objects take up to 512
_WHAT_THERE_IS = "a path, file:///path, memory://name or s3://bucket/prefix"
_MASK = "***"


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """Where a store is.

    Args:
        scheme: ``file``, ``memory`` or ``s3``.
        bucket: of ``s3``; else empty.
        path: the folder of ``file``; else the common beginning of all keys, without a slash at either end.
    """

    scheme: str
    bucket: str
    path: str

    def __str__(self) -> str:
        if self.scheme == "file":
            return self.path
        return f"{self.scheme}://{'/'.join(part for part in (self.bucket, self.path) if part)}"


def parse_url(url: str) -> StoreUrl:
    """What a user wrote, understood.

    Raises:
        UsageError: it names no store that there is, or has credentials in it.

    Example:
        >>> parse_url("s3://bucket/runs/mf/")
        StoreUrl(scheme='s3', bucket='bucket', path='runs/mf')
    """
    if not url or "\0" in url:
        raise UsageError(f"an empty URL, or one with a zero byte, names no store; expected {_WHAT_THERE_IS}")
    match = _SCHEME.fullmatch(url)
    if match is None:
        if lost := _LOST_SLASH.match(url):
            raise UsageError(f"{redact_url(url)} is no URL: write {lost[1]}://… with two slashes, or ./… for a folder")
        return StoreUrl("file", "", url)
    scheme, rest = match[1].lower(), match[2]
    if scheme == "file":
        return StoreUrl("file", "", _file_path(url, rest))
    if scheme not in ("memory", "s3"):
        raise UsageError(f"{redact_url(url)}: there is no store for {scheme}://; expected {_WHAT_THERE_IS}")
    if redact_url(url) != url:
        raise UsageError(
            f"{redact_url(url)} has credentials or options in it, which would end up in logs; "
            "give them by environment variables (AWS_ACCESS_KEY_ID, …) or in the AWS configuration"
        )
    if scheme == "memory":
        return StoreUrl(scheme, "", _checked_prefix(url, rest))
    match = _BUCKET_AND_PREFIX.fullmatch(rest)
    if match is None:
        raise UsageError(f"{url} names no bucket; expected s3://bucket/prefix")
    return StoreUrl(scheme, match[1], _checked_prefix(url, match[2] or ""))


def redact_url(url: str) -> str:
    """The URL without user names, passwords, and what follows ``?`` or ``#``.

    A secret may hold slashes of its own (``s3://KEY:SEC/RET@bucket``), so where there may be one, more is hidden than
    need be.

    Example:
        >>> redact_url("https://user:secret@host/path?token=1")
        'https://***@host/path?***'
    """
    head, colon, rest = url.partition("://")
    if not colon:
        head, colon, rest = "", "", url
        if not _LOST_SLASH.match(url):
            return url  # a path; all its characters are its name
    authority = rest.partition("/")[0]
    if "@" in authority or (":" in rest.partition("@")[0] and "@" in rest):
        rest = f"{_MASK}@{rest.rpartition('@')[2]}"
    elif colon and ":" in authority and not re.fullmatch(r"[^:]*:\d{1,5}|\[[^\]]*\](:\d{1,5})?|arn:aws.*", authority):
        rest = _MASK
    for mark in "?#":
        before, found, _ = rest.partition(mark)
        rest = f"{before}{mark}{_MASK}" if found else before
    return f"{head}{colon}{rest}"


def _file_path(url: str, rest: str) -> str:
    host, _, path = rest.partition("/")
    if host not in ("", "localhost") or not path:
        raise UsageError(f"{redact_url(url)} is on another host, or names no folder; expected file:///path")
    return "/" + unquote(path)


def _checked_prefix(url: str, prefix: str) -> str:
    prefix = prefix.rstrip("/")
    parts = prefix.split("/") if prefix else []
    is_bad = any(part in ("", ".", "..") or not part.isprintable() for part in parts)
    if is_bad or len(prefix.encode(errors="replace")) > _MAX_PREFIX_BYTES:
        raise UsageError(
            f"{url[:80]!r}: the part after the bucket must be names joined by single '/', none of them '.' or '..', "
            f"{_MAX_PREFIX_BYTES} bytes at most"
        )
    return prefix

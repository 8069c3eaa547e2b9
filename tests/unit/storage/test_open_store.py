"""From what a user writes to a store; and what is never shown of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scarml.errors import UsageError
from scarml.storage.fsspec_store import FsspecStore
from scarml.storage.local import LocalStore
from scarml.storage.open_store import open_store
from scarml.storage.store_url import StoreUrl, parse_url, redact_url

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("runs/mf", "runs/mf"),
        ("/runs/mf/", "/runs/mf"),
        ("./a b/ü@1:2", "./a b/ü@1:2"),
        ("file:///runs/mf", "/runs/mf"),
        ("FILE://localhost/runs/a%20b", "/runs/a b"),
        ("~/runs", os.path.expanduser("~/runs")),
        (Path("runs/mf"), "runs/mf"),
    ],
)
def test_a_path_is_a_folder(url, root):
    store = open_store(url)
    assert isinstance(store, LocalStore)
    assert store.root == root


def test_memory_is_one_for_the_process():
    store = open_store("memory://test-open/run/")
    store.put("a", [b"1"])
    assert open_store("memory://test-open/run").get("a") == b"1"
    assert open_store("memory://test-open").list() == ["run/a"]
    assert repr(store) == "FsspecStore('memory://test-open/run')"
    store.delete("a")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://bucket", StoreUrl("s3", "bucket", "")),
        ("s3://bucket/", StoreUrl("s3", "bucket", "")),
        ("S3://my.bucket_1/runs/mf 2@x/", StoreUrl("s3", "my.bucket_1", "runs/mf 2@x")),
        (
            "s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/mine/runs/mf",
            StoreUrl("s3", "arn:aws:s3:eu-west-1:123456789012:accesspoint/mine", "runs/mf"),
        ),
        ("memory://", StoreUrl("memory", "", "")),
    ],
)
def test_object_stores_have_a_bucket_and_a_prefix(url, expected):
    assert parse_url(url) == expected
    assert parse_url(str(expected)) == expected


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "names no store"),
        ("a\0b", "zero byte"),
        ("gs://bucket/run", "no store for gs://; expected a path, file:///path, memory://name or s3://bucket/prefix"),
        ("https://host/run", "no store for https://"),
        ("s3:/bucket/run", "write s3://… with two slashes"),
        ("s3:bucket/run", "two slashes"),
        ("s3://", "names no bucket"),
        ("s3:///run", "names no bucket"),
        ("s3://bucket//run", "single '/'"),
        ("s3://bucket/a/../b", "'..'"),
        ("s3://bucket/" + "x" * 501, "500 bytes"),
        ("file://host/run", "on another host"),
        ("file://", "names no folder"),
    ],
)
def test_what_is_no_store_is_said(url, words):
    with pytest.raises(UsageError) as e:
        open_store(url)
    assert words in str(e.value)


@pytest.mark.parametrize(
    "url",
    [
        f"s3://AKIA:{SECRET}@bucket/run",
        f"s3://AKIA:{SECRET}/run",
        f"s3://{SECRET.partition('/')[2]}@bucket/run",
        f"s3://bucket/run?secret={SECRET}",
        f"s3://bucket/run#{SECRET}",
        f"s3:/AKIA:{SECRET}@bucket/run",
        f"gs://user:{SECRET}@bucket/run",
        f"https://user:{SECRET}@host:9000/run?X-Amz-Signature={SECRET}",
        f"file://user:{SECRET}@host/run",
        f"memory://run?key={SECRET}",
    ],
)
def test_secrets_in_a_url_are_refused_and_not_shown(url):
    with pytest.raises(UsageError) as e:
        open_store(url)
    for part in SECRET.split("/"):
        assert part not in str(e.value)
        assert part not in redact_url(url)


@pytest.mark.parametrize(
    "url",
    ["runs/mf", "/a@b:c?d#e", "s3://bucket/run", "s3://bucket/me@x", "http://127.0.0.1:9000/x", "http://[::1]:9/"],
)
def test_what_holds_no_secret_is_shown_as_it_is(url):
    assert redact_url(url) == url


@pytest.mark.parametrize(("url", "package"), [("s3://bucket/run", "s3fs"), ("memory://run", "fsspec")])
def test_a_missing_package_is_said(url, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"needs the package {package}.*pip install 'scarml\[s3\]'"):
        open_store(url)


def test_a_folder_is_not_for_fsspec():
    with pytest.raises(UsageError, match="expected memory:// or s3://"):
        FsspecStore("runs/mf")


def test_heavy_packages_load_on_demand():
    code = (
        "import sys, scarml, scarml.storage.open_store as o; o.open_store('x'); "
        "sys.exit(any(m in sys.modules for m in ('fsspec', 's3fs', 'botocore', 'aiohttp')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

"""The real file port: errors in words, locks that vanish, appends in full."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scarml.errors import AlreadyExistsError, NotFoundError, StoreError
from scarml.storage.file_port import Entry, OsFiles, store_error


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOENT, NotFoundError, "there is no such file"),
        (errno.EEXIST, AlreadyExistsError, "the name is taken"),
        (errno.ENOSPC, StoreError, "the disk is full"),
        (errno.EDQUOT, StoreError, "quota"),
        (errno.EACCES, StoreError, "permission denied"),
        (errno.EROFS, StoreError, "read-only"),
        (errno.EIO, StoreError, "input/output error"),
        (errno.ESTALE, StoreError, "file server"),
        (errno.EBUSY, StoreError, "busy"),
        (None, StoreError, "unknown cause"),
    ],
)
def test_every_errno_becomes_a_store_error_in_words(number, kind, words):
    error = store_error("write", "/a/b", number)
    assert type(error) is kind
    assert words in str(error)
    assert str(error).startswith("cannot write /a/b: ")


@pytest.mark.parametrize("method", ["write", "sync"])
def test_errors_are_mapped_where_they_happen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str):
    def fail(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = OsFiles().create(str(tmp_path / "a"))
    monkeypatch.setattr(os, "write" if method == "write" else "fsync", fail)
    with pytest.raises(StoreError, match="the disk is full") as caught:
        file.write(b"x") if method == "write" else file.sync()
    assert isinstance(caught.value.__cause__, OSError)
    file.close()


def test_short_writes_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, bytes(data)[:3]))
    file = OsFiles().create(str(tmp_path / "a"))
    file.write(b"0123456789")
    file.close()
    file.close()
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_all_operations_on_a_real_folder(tmp_path: Path):
    files, root = OsFiles(), str(tmp_path)
    files.make_folder(f"{root}/f")
    file = files.create(f"{root}/a")
    file.write(memoryview(b"hello"))
    file.sync()
    files.rename(f"{root}/a", f"{root}/f/b")
    file.close()
    files.link(f"{root}/f/b", f"{root}/f/c")
    files.sync_folder(f"{root}/f")
    assert sorted(files.list_folder(f"{root}/f"), key=str) == [Entry("b", False), Entry("c", False)]
    assert files.list_folder(root) == [Entry("f", True)]
    out = bytearray(10)
    assert files.read_into(f"{root}/f/c", 1, memoryview(out)) == 4
    assert out[:4] == b"ello"
    files.unlink(f"{root}/f/b")
    assert files.size(f"{root}/f/c") == 5
    with pytest.raises(AlreadyExistsError):
        files.create(f"{root}/f/c")
    with pytest.raises(AlreadyExistsError):
        files.make_folder(f"{root}/f")
    with pytest.raises(NotFoundError):
        files.link(f"{root}/none", f"{root}/x")


def test_a_link_whose_answer_was_lost_has_succeeded(tmp_path: Path):
    files = OsFiles()
    files.create(str(tmp_path / "a")).close()
    files.link(str(tmp_path / "a"), str(tmp_path / "b"))
    files.link(str(tmp_path / "a"), str(tmp_path / "b"))  # as NFS repeats it
    files.create(str(tmp_path / "other")).close()
    with pytest.raises(AlreadyExistsError):
        files.link(str(tmp_path / "other"), str(tmp_path / "b"))


def test_the_lock_of_a_killed_process_vanishes(tmp_path: Path):
    path = str(tmp_path / "lock")
    code = (
        "import sys; from scarml.storage.file_port import OsFiles\n"
        f"lock = OsFiles().lock({path!r}, 'the child'); print(lock is not None, flush=True); sys.stdin.read()"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "True\n"
        assert OsFiles().lock(path, "me") is None
        assert Path(path).read_text() == "the child"
    finally:
        child.kill()
        child.communicate()
    lock = OsFiles().lock(path, "me")
    assert lock is not None
    assert Path(path).read_text() == "me"
    lock.release()
    lock.release()

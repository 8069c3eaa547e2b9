"""What every store must do, as tests.

A store of one's own is checked by a subclass of `StoreContract`:

::

    class TestMyStore(StoreContract):
        def make_store(self, tmp_path):
            return MyStore(tmp_path)

Needs pytest.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scarml.errors import AlreadyExistsError, DamagedError, NotFoundError, UsageError
from scarml.storage.store import Chunk, Store

__all__ = ["StoreContract"]


class StoreContract:
    """Tests that every store passes. Subclasses give `make_store`."""

    def make_store(self, tmp_path: Path) -> Store:
        """A new, empty store."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        """The store under test."""
        return self.make_store(tmp_path)

    def test_put_then_get(self, store: Store) -> None:
        """What was put is what one gets, whatever its chunks."""
        store.put("a/b", [b"hel", memoryview(b"lo"), b""])
        assert store.get("a/b") == b"hello"
        assert store.size("a/b") == 5

    def test_an_empty_object_is_an_object(self, store: Store) -> None:
        """No bytes are bytes too."""
        store.put("empty", [])
        assert store.get("empty") == b""
        assert store.list() == ["empty"]

    def test_put_replaces(self, store: Store) -> None:
        """Longer by shorter, whole."""
        store.put("a", [b"a long object"])
        store.put("a", [b"short"])
        assert store.get("a") == b"short"
        assert store.list() == ["a"]

    def test_create_makes_what_is_not_there(self, store: Store) -> None:
        """Once."""
        store.create("terms/1", [b"on", b"e"])
        assert store.get("terms/1") == b"one"
        with pytest.raises(AlreadyExistsError):
            store.create("terms/1", [b"two"])
        assert store.get("terms/1") == b"one"
        assert store.list() == ["terms/1"]

    def test_create_after_put_and_after_delete(self, store: Store) -> None:
        """A name that was put is taken; one that was deleted is free."""
        store.put("a", [b"1"])
        with pytest.raises(AlreadyExistsError):
            store.create("a", [b"2"])
        store.delete("a")
        store.create("a", [b"3"])
        assert store.get("a") == b"3"

    def test_of_racing_creates_one_wins(self, store: Store) -> None:
        """Eight threads, one winner, and its bytes are there."""
        winners: list[int] = []
        barrier = threading.Barrier(8)

        def race(i: int) -> None:
            barrier.wait()
            try:
                store.create("claim", [str(i).encode()])
            except AlreadyExistsError:
                return
            winners.append(i)

        threads = [threading.Thread(target=race, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert [str(i).encode() for i in winners] == [store.get("claim")]

    @pytest.mark.parametrize("method", ["put", "create"])
    def test_a_write_that_breaks_off_leaves_nothing(self, store: Store, method: str) -> None:
        """Neither a new object, nor a change of the old one, nor anything for `sweep`."""

        def chunks() -> Iterator[Chunk]:
            yield b"half"
            raise RuntimeError("the source of the bytes broke")

        if method == "put":
            store.put("a", [b"old"])
        with pytest.raises(RuntimeError):
            getattr(store, method)("a" if method == "put" else "b", chunks())
        assert store.list() == (["a"] if method == "put" else [])
        assert method != "put" or store.get("a") == b"old"
        assert store.sweep() == 0

    def test_ranges(self, store: Store) -> None:
        """Any piece; never beyond the end."""
        store.put("a", [b"0123456789"])
        assert store.get_range("a", 3, 4) == b"3456"
        assert store.get_range("a", 0, 10) == b"0123456789"
        assert store.get_range("a", 10, 0) == b""
        out = bytearray(3)
        store.read_into("a", 7, memoryview(out))
        assert out == b"789"
        for start, length in [(0, 11), (9, 2), (20, 1)]:
            with pytest.raises(DamagedError):
                store.get_range("a", start, length)

    def test_what_is_missing_is_not_found(self, store: Store) -> None:
        """In a folder that is there and in one that is not."""
        store.put("a/b", [b"x"])
        for name in ("a/c", "z", "z/z"):
            for read in (store.get, store.size, lambda n: store.get_range(n, 0, 1)):
                with pytest.raises(NotFoundError):
                    read(name)

    def test_list_by_prefix(self, store: Store) -> None:
        """Sorted; a prefix may end inside a name; nothing but objects is listed."""
        for name in ("b", "a/2", "a/10", "a/1", "ab/1", "a/c/d"):
            store.put(name, [b"x"])
        assert store.list() == ["a/1", "a/10", "a/2", "a/c/d", "ab/1", "b"]
        assert store.list("a/") == ["a/1", "a/10", "a/2", "a/c/d"]
        assert store.list("a/1") == ["a/1", "a/10"]
        assert store.list("a") == ["a/1", "a/10", "a/2", "a/c/d", "ab/1"]
        assert store.list("nothing/") == []

    def test_delete(self, store: Store) -> None:
        """Gone; and deleting again is no error."""
        store.put("a/b", [b"x"])
        store.delete("a/b")
        store.delete("a/b")
        store.delete("never/there")
        assert store.list() == []
        with pytest.raises(NotFoundError):
            store.get("a/b")

    @pytest.mark.parametrize(
        "name", ["", "/a", "a/", "a//b", "..", "a/../b", ".hidden", "a\\b", "ä", "a\nb", "x" * 600]
    )
    def test_bad_names_are_refused(self, store: Store, name: str) -> None:
        """By every method, before anything is done."""
        for call in (
            lambda: store.put(name, [b"x"]),
            lambda: store.create(name, [b"x"]),
            lambda: store.get(name),
            lambda: store.size(name),
            lambda: store.delete(name),
        ):
            with pytest.raises(UsageError):
                call()
        assert store.list() == []

    def test_a_lock_is_held_by_one(self, store: Store) -> None:
        """Until it is released; the note is there for others to read."""
        lock = store.lock("owner", "process 1")
        assert lock is not None
        assert store.lock("owner", "process 2") is None
        assert store.get("owner") == b"process 1"
        lock.release()
        lock.release()
        again = store.lock("owner", "process 2")
        assert again is not None
        again.release()

    def test_sweep_harms_no_object(self, store: Store) -> None:
        """With nothing left behind there is nothing to sweep."""
        store.put("a/b", [b"x"])
        assert store.sweep() == 0
        assert store.get("a/b") == b"x"

"""Matrix products with one thread, whatever the process is set to.

How a product is split over threads changes its last bits, and with many shards in flight the cores are busy anyway.
"""

from __future__ import annotations

import threading
from functools import cache
from types import TracebackType
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["single_threaded_blas"]


class _SingleThreaded:
    """The limit is set by the first thread that comes in and lifted by the last that goes out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._threads_before: list[int] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._threads_before = [library.get_num_threads() for library in _libraries()]
                self._set([1] * len(self._threads_before))
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._set(self._threads_before)

    def _set(self, n_threads: list[int]) -> None:
        for library, before, n in zip(_libraries(), self._threads_before, n_threads, strict=True):
            if before != 1:
                # From 3.6 on, threadpoolctl's own method does nothing, silently, in all threads but the first that used
                # it. Here the lock keeps threads apart.
                getattr(library, "_real_set_num_threads", library.set_num_threads)(n)


@cache
def _libraries() -> list[Any]:  # looking for them takes milliseconds, so once
    import scipy.linalg.cython_blas  # noqa: F401  # what numba's products call; it must be loaded to be found

    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]


single_threaded_blas = _SingleThreaded()
"""A context manager that may be entered by many threads at once."""

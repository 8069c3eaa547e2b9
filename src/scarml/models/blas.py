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
        self._limiter: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limiter = _controller().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limiter.restore_original_limits()


@cache
def _controller() -> ThreadpoolController:  # looking for the libraries takes milliseconds, so once
    import scipy.linalg.cython_blas  # noqa: F401  # what numba's products call; it must be loaded to be found

    return ThreadpoolController()


single_threaded_blas = _SingleThreaded()
"""A context manager that may be entered by many threads at once."""

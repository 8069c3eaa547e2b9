"""PyTorch with one thread and deterministic algorithms, whatever the process is set to.

How a sum is split over threads changes its last bits, and with many shards in flight the cores are busy anyway.
"""

from __future__ import annotations

import threading
from types import TracebackType

from scarml.models.cnn.torch_import import import_torch

__all__ = ["one_torch_thread"]


class _OneThread:
    """The process is set by the first thread that comes in, and set back by the last that goes out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._threads_before = 1
        self._debug_mode_before = 0

    def __enter__(self) -> None:
        torch = import_torch()
        with self._lock:
            if self._inside == 0:
                self._threads_before = torch.get_num_threads()
                self._debug_mode_before = torch.get_deterministic_debug_mode()
                # The same as `use_deterministic_algorithms(True)`, which imports a compiler first, for 1.5 s.
                torch.set_deterministic_debug_mode("error")
            torch.set_num_threads(1)  # partly a setting of the process, partly one of this thread
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch = import_torch()
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                torch.set_num_threads(self._threads_before)
                torch.set_deterministic_debug_mode(self._debug_mode_before)


one_torch_thread = _OneThread()
"""A context manager that may be entered by many threads at once."""

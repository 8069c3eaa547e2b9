"""Whether the Ray under a run still lives.

Ray's own library notices late, and then ends the process that it is in, without a word: seconds after the raylet of its
machine has died, a minute after the GCS has. A run must know before, to end in order.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

__all__ = ["RayHealth"]

LOOK_S = 1.0
PATIENCE_S = 30.0
"""The GCS of a cluster may be started again; Ray gives it a minute, and a run needs some of that to save everything."""


class RayHealth:
    """Watches the two processes of Ray that this one cannot do without.

    Args:
        is_started_here: a GCS that was started for this process is never started again.
        on_gcs_lost: is told once, in a thread, where the GCS was.
    """

    def __init__(self, is_started_here: bool, on_gcs_lost: Callable[[str], None]) -> None:
        import ray

        node = ray._private.worker._global_node
        self._raylet = None if node is None else _process_behind(node.raylet_socket_name)
        self._gcs = ray.get_runtime_context().gcs_address
        self._is_started_here = is_started_here
        self._on_gcs_lost = on_gcs_lost
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch_gcs, daemon=True, name="scarml-gcs-watch")
        self._watcher.start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        self._watcher.join()
        if self._raylet is not None:
            os.close(self._raylet)
            self._raylet = None

    @property
    def raylet_is_gone(self) -> bool:
        """Whether the raylet of this machine has died. All processes that it had started die with it."""
        return self._raylet is not None and bool(select.select([self._raylet], [], [], 0)[0])

    def _watch_gcs(self) -> None:
        silent_since_s: float | None = None
        while not self._closed.wait(LOOK_S):
            problem = _problem_of(self._gcs)
            if problem is None:
                silent_since_s = None
                continue
            silent_since_s = monotonic() if silent_since_s is None else silent_since_s
            is_gone = self._is_started_here and isinstance(problem, ConnectionRefusedError)
            if is_gone or monotonic() - silent_since_s > PATIENCE_S:
                self._on_gcs_lost(self._gcs)
                return


def _process_behind(path: str) -> int | None:
    """A file descriptor of the process that listens at a Unix socket; None where this cannot be had."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(LOOK_S)
            connection.connect(path)
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid: Any = struct.unpack("3i", credentials)[0]
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # another system, an old kernel, a container of its own
        return None


def _problem_of(address: str) -> OSError | None:
    """Why nobody can be reached there; None if somebody can."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=LOOK_S).close()
    except OSError as e:
        return e
    return None

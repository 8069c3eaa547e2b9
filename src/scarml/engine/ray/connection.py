"""A Ray to run on: started here, quietly, or joined; and the processes of nodes in it."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import tempfile
import threading
from types import TracebackType
from typing import Any

from scarml.errors import ClusterError, UsageError

__all__ = ["RayCluster"]

_log = logging.getLogger(__name__)

QUIET = {
    # Ray tells its users of every process that dies, on their stdout; who uses SCAR hears of it from SCAR. This is a
    # pattern for what is never shown, read when ray is imported.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "RAY_USAGE_STATS_ENABLED": "0",
}
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",  # else the threads of one process spin on the cores of the others
}


class RayCluster:
    """A Ray, and the processes in it. A job makes its own unless it is given one, which saves starting it again.

    Args:
        address: of a Ray to join; None: that of ``RAY_ADDRESS``, or a Ray on this machine, started here.

    Raises:
        UsageError: Ray is not installed.
        ClusterError: there is no Ray at this address.

    Example::

        with RayCluster() as ray_cluster:
            for seed in range(3):
                scar.Job(scar.MLR(), "mnist-10k", engine=ray_cluster, seed=seed, run=f"runs/{seed}").run()
    """

    def __init__(self, address: str | None = None) -> None:
        self._address = address or os.environ.get("RAY_ADDRESS") or None
        self._folder: str | None = None
        self._is_ours = False
        self._is_open = False
        self._idle: list[Any] = []

    @property
    def is_local(self) -> bool:
        """Whether everything runs on this machine, in a Ray started here."""
        return self._address is None

    def __enter__(self) -> RayCluster:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Start or join Ray. Takes several seconds where it must be started."""
        if self._is_open:
            return
        ray = _import_ray()
        if not ray.is_initialized():  # else the user's own program has a Ray already: it is used, and left as it is
            with _signal_handlers_kept():
                self._connect(ray)
            self._is_ours = True
        self._is_open = True

    def _connect(self, ray: Any) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        if self._address is not None:
            try:
                ray.init(address=self._address, namespace="scarml", **options)
            except (ConnectionError, ValueError, RuntimeError) as e:
                raise ClusterError(
                    f"there is no Ray at {self._address}: {_first_line(e)}. Start one with: ray start --head; or leave "
                    "RAY_ADDRESS and --ray-address away to start one here"
                ) from None
            return
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # it listens on this machine only; else a token file is made
        os.environ.update({k: v for k, v in ONE_THREAD.items() if k not in os.environ})
        self._folder = tempfile.mkdtemp(prefix="scar-ray-")  # short: it holds Unix sockets
        ray.init(address="local", include_dashboard=False, _temp_dir=self._folder, namespace="scarml", **options)

    def close(self) -> None:
        """End the processes, and a Ray that was started or joined here."""
        if not self._is_open:
            return
        import ray

        for process in self._idle:
            ray.kill(process)
        self._idle, self._is_open = [], False
        if self._is_ours:
            with _signal_handlers_kept():
                ray.shutdown()
            self._is_ours = False
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    # ------------------------------------------------------------------------------------------------------ processes
    def acquire(self) -> Any:
        """The handle of a process that hosts no node: one that has become free, or a new one."""
        if self._idle:
            return self._idle.pop()
        import ray

        from scarml.engine.ray.process import NodeProcess

        here = ray.get_runtime_context().get_node_id()
        actor: Any = NodeProcess
        return actor.options(scheduling_strategy="SPREAD").remote(here, os.getpid(), ONE_THREAD)

    def release(self, process: Any) -> None:
        """A process hosts no node any more and may host another."""
        self._idle.append(process)


def _import_ray() -> Any:
    os.environ.update({k: v for k, v in QUIET.items() if k not in os.environ})
    try:
        import ray
    except ImportError:
        raise UsageError("the engine ray needs Ray: pip install 'scarml[ray]'") from None
    with contextlib.suppress(AttributeError):  # where it had been imported before, the environment comes too late
        ray._private.worker._worker_logs_enabled = False
    return ray


@contextlib.contextmanager
def _signal_handlers_kept() -> Any:
    """Ray puts a handler of its own in the place of this process's for SIGTERM, and leaves it there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__

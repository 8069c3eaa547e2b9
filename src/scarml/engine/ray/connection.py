"""A Ray to run on: started here, quietly, or joined; and the processes of nodes in it."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
from pathlib import Path
from time import time
from types import TracebackType
from typing import Any

from scarml.errors import ClusterError, UsageError

__all__ = ["RayCluster", "require_ray"]

_log = logging.getLogger(__name__)

QUIET = {
    # Ray tells its users of every process that dies, on their stdout; who uses SCAR hears of it from SCAR. This is a
    # pattern for what is never shown, read when ray is imported.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_NO_RAY = (
    "the engine ray needs Ray, which is not installed; install it with: pip install 'scarml[ray]' (in a checkout: "
    "pip install -e '.[ray]')"
)
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",  # else the threads of one process spin on the cores of the others
}


PREFIX = "scar-ray-"
CONNECT_S = 5.0
HTTP2_SETTINGS = b"\x04"
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + HTTP2_SETTINGS + b"\0\0\0\0\0"
ANSWER_S = 1.0
SWEEP_AFTER_S = 60.0
"""What belonged to a Ray whose driver was killed takes some time to end."""


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
        wanted = address or os.environ.get("RAY_ADDRESS") or "local"
        self._address = None if wanted == "local" else wanted
        self._folder: str | None = None
        self._lock: int | None = None
        self._is_ours = False
        self._is_open = False
        self._idle: list[Any] = []

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
            self._is_ours = True
            try:
                with _signal_handlers_kept():
                    self._connect(ray)
            except BaseException:
                self._shut_down()
                raise
        self._is_open = True

    def _connect(self, ray: Any) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        if self._address is not None:
            if "://" in self._address:  # of Ray Client, or of Ray's own job server
                raise ClusterError(
                    f"a run cannot join Ray at {self._address}: start this command on a machine of the cluster, with "
                    "the address that ray start --head has printed there, HOST:PORT"
                )
            try:
                _see_that_it_may_be_ray(self._address)
                ray.init(address=self._address, namespace="scarml", **options)
            except (OSError, ValueError, RuntimeError, ImportError) as e:
                raise ClusterError(
                    f"there is no Ray at {self._address}: {_first_line(e)}. Start one with: ray start --head; or leave "
                    "RAY_ADDRESS and --ray-address away to start one here"
                ) from None
            return
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # it listens on this machine only; else a token file is made
        os.environ.update({k: v for k, v in ONE_THREAD.items() if k not in os.environ})
        _sweep()
        self._folder = tempfile.mkdtemp(prefix=PREFIX, dir=_short_folder())
        self._lock = _locked(self._folder)
        try:
            with _sigterm_blocked():
                ray.init(
                    address="local", include_dashboard=False, _temp_dir=self._folder, namespace="scarml", **options
                )
        except Exception as e:
            raise ClusterError(
                f"Ray could not be started on this machine: {_first_line(e)}. Is there enough memory, and is the "
                "machine not too busy? Try again"
            ) from e

    @property
    def is_started_here(self) -> bool:
        """Whether this Ray was started here, and ends with this process."""
        return self._folder is not None

    def close(self) -> None:
        """End the processes, and a Ray that was started or joined here."""
        if not self._is_open:
            return
        import ray

        idle, self._idle, self._is_open = self._idle, [], False
        if ray.is_initialized():  # the user's own may have been ended meanwhile
            for process in idle:
                with contextlib.suppress(ray.exceptions.RayError):
                    ray.kill(process)
        self._shut_down()

    def _shut_down(self) -> None:
        import ray

        if self._is_ours:
            with _signal_handlers_kept():
                ray.shutdown()
            self._is_ours = False
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # ------------------------------------------------------------------------------------------------------ processes
    def acquire(self) -> Any:
        """The handle of a process that hosts no node: one that has become free, or a new one."""
        import ray

        while self._idle:
            process = self._idle.pop()
            try:
                ray.get(process.end.remote(), timeout=ANSWER_S)
            except ray.exceptions.RayError:  # it has died since, or hangs
                with contextlib.suppress(ray.exceptions.RayError):
                    ray.kill(process)
            else:
                return process

        from scarml.engine.ray.process import NodeProcess

        here = ray.get_runtime_context().get_node_id()
        actor: Any = NodeProcess
        return actor.options(scheduling_strategy="SPREAD").remote(here, os.getpid(), ONE_THREAD)

    def release(self, process: Any) -> None:
        """A process hosts no node any more and may host another."""
        self._idle.append(process)


def require_ray() -> None:
    """See that Ray is there, without importing it, which takes a while.

    Raises:
        UsageError: it is not.
    """
    if importlib.util.find_spec("ray") is None:
        raise UsageError(_NO_RAY)


def _import_ray() -> Any:
    os.environ.update({k: v for k, v in QUIET.items() if k not in os.environ})
    try:
        import ray
    except ImportError:
        raise UsageError(_NO_RAY) from None
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
        if before is not None:  # else it is one of another language's, and cannot be put back
            signal.signal(signal.SIGTERM, before)


def _see_that_it_may_be_ray(address: str) -> None:
    """Ray would try for a minute and a half where nobody listens, or complain of what does, and then end this process.

    Its GCS speaks HTTP/2, which begins with settings from both sides.

    Raises:
        OSError: nobody listens, or it is something else that does.
    """
    host, _, port = address.rpartition(":")
    if not host or "/" in address or not port.isdigit():
        return
    with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S) as connection:
        connection.sendall(HTTP2_PREFACE)
        answer = connection.recv(9)
    if answer[3:4] != HTTP2_SETTINGS:
        raise OSError("what listens there is not Ray's GCS, whose port is 6379 unless another one was chosen")


def _short_folder() -> str:
    """For temporary files; the path of a Unix socket below it may have 107 bytes, of which Ray uses 67 and we 18."""
    folder = tempfile.gettempdir()
    return folder if len(os.fsencode(folder)) <= 20 else "/tmp"


def _locked(folder: str | Path) -> int | None:
    """A lock on a folder, as long as this process lives; None if another process has it."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _sweep() -> None:
    """Remove the folders of processes that were killed."""
    for folder in Path(_short_folder()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's; or somebody else was faster
            if time() - folder.stat().st_mtime > SWEEP_AFTER_S and (lock := _locked(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


@contextlib.contextmanager
def _sigterm_blocked() -> Any:
    """What is started here is deaf to SIGTERM, as Ray makes it to SIGINT.

    A service manager, `timeout` and a shell send it to a whole group of processes. It is for the driver, which then
    stops at a boundary with everything saved; for that it needs its nodes, and Ray.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _first_line(error: BaseException) -> str:
    """Of what Ray says, without its full stop."""
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__

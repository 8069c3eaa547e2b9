"""The process of a node: a Ray actor that hosts one node after another.

This module is imported before anything else in a new process and must not import NumPy or numba itself: how many
threads they start is read from the environment when they are.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ray

if TYPE_CHECKING:
    from scarml.engine.ray.hosted_node import HostedNode

__all__ = ["NodeProcess"]

N_READERS = 4
_PR_SET_PDEATHSIG = 1


@ray.remote(
    num_cpus=0,
    max_restarts=0,  # an actor that is started again has lost its state: recovery is ours
    max_task_retries=0,
    concurrency_groups={"orders": 1, "poll": 1, "data": N_READERS},
)
class NodeProcess:
    """Hosts one node at a time.

    Orders of one sender arrive in the order in which they were sent; should one be missing, the process ends itself,
    since nothing that it does from then on could be trusted. Every call names the job that it is about: one that comes
    late, from an earlier job, is neither obeyed nor answered.

    Args:
        driver_host: Ray's id of the machine that the driver is on.
        driver_pid: the driver's process there.
        environment: settings that must be there before NumPy is imported.
    """

    def __init__(self, driver_host: str, driver_pid: int, environment: Mapping[str, str]) -> None:
        self._job = ""
        self._hosted: HostedNode | None = None
        signal.signal(signal.SIGTERM, self._on_sigterm)  # before the imports, which take a while
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # this thread's only: see RayCluster
        os.environ.update(environment)
        _die_with_the_parent()
        if ray.get_runtime_context().get_node_id() == driver_host:
            threading.Thread(target=_die_with, args=(driver_pid,), daemon=True, name="scarml-driver-watch").start()

    def _on_sigterm(self, number: int, frame: Any) -> None:
        """A notice that this process is about to be ended: what it holds is handed over, as far as there is time."""
        hosted = self._hosted
        if hosted is None:
            os._exit(128 + number)
        hosted.ask_to_leave("its process got SIGTERM")

    # --------------------------------------------------------------------------------------------------------- orders
    @ray.method(concurrency_group="orders")
    def begin(self, job: str, name: str, kind: str, setup: Any) -> tuple[int, str]:
        """Host a node from now on. Returns this process's number and host."""
        from scarml.engine.ray.hosted_node import HostedNode

        self._hosted = HostedNode(job, name, kind, setup)  # type: ignore[arg-type]
        self._job = job
        return os.getpid(), socket.gethostname()

    @ray.method(concurrency_group="orders")
    def meet(self, job: str, peers: Mapping[str, Any]) -> None:
        """Get to know the processes of other nodes."""
        node = self._node(job)
        if node is not None:
            node.links.meet(peers)

    @ray.method(concurrency_group="orders")
    def give(self, job: str, source: str, number: int, orders: list[Any]) -> None:
        """Orders for the node, all that follow those with the numbers before. They are carried out later."""
        node = self._node(job)
        if node is not None:
            node.give(source, number, orders)

    @ray.method(concurrency_group="orders")
    def end(self) -> None:
        """The node is not needed any more; the process can host another."""
        hosted, self._hosted = self._hosted, None
        if hosted is not None:
            hosted.close()

    # ------------------------------------------------------------------------------------------------------- the poll
    @ray.method(concurrency_group="poll")
    def poll(self, job: str, acknowledged: int, n_orders: int) -> list[tuple[int, Any]]:
        """Events for the controller, numbered, of which the driver has those up to ``acknowledged``.

        It has sent ``n_orders`` orders.

        Waits a moment if there is none. The driver always has one such call pending: it is at once how events come to
        it, a sign of life in both directions, and how it learns within milliseconds that this process has died.
        """
        node = self._node(job)
        return [] if node is None else node.poll(acknowledged, n_orders)

    # ------------------------------------------------------------------------------------------------------ data path
    @ray.method(concurrency_group="data")
    def read(self, job: str, view: int, commit: int, wanted: Mapping[str, Any]) -> Any:
        """See `scarml.engine.ray.hosted_node.HostedNode.read`."""
        node = self._node(job)
        return None if node is None else node.read(view, commit, wanted)

    @ray.method(concurrency_group="data")
    def hand_over(self, job: str, commit: int, ids: Mapping[str, Any]) -> Any:
        """See `scarml.engine.node.BlockHolder.hand_over`."""
        node = self._node(job)
        return None if node is None else node.hand_over(commit, ids)

    @ray.method(concurrency_group="data")
    def n_folded(self, job: str, commit: int) -> int | None:
        """Of a server: how many shards of a phase it has folded."""
        node = self._node(job)
        return None if node is None else node.n_folded(commit)

    @ray.method(concurrency_group="data")
    def blocks(self, job: str, table: str) -> Any:
        """All blocks of a table that the node holds."""
        node = self._node(job)
        return None if node is None else node.blocks(table)

    def _node(self, job: str) -> HostedNode | None:
        hosted = self._hosted
        return hosted if job == self._job else None


def _die_with_the_parent() -> None:
    """Ray's own process on this machine is the parent. It may be gone while this one would still be able to write."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(
            _PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)
        )


def _die_with(pid: int) -> None:
    """Ray takes seconds to end the actors of a driver that was killed."""
    try:
        driver = os.pidfd_open(pid)
    except ProcessLookupError:
        os._exit(1)
    except (AttributeError, OSError):  # another system, an old kernel, another user's process: Ray and the lease do
        return
    select.select([driver], [], [])
    os._exit(1)

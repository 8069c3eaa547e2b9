"""joblib on Ray: independent tasks, as the laboratory's trials, on the processes of a cluster."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

from scarml.engine.ray.connection import RayCluster

__all__ = ["joblib_on_ray"]


@contextlib.contextmanager
def joblib_on_ray(n_jobs: int) -> Iterator[None]:
    """While it lasts, ``joblib.Parallel()`` runs its tasks on Ray, so many at a time.

    Args:
        n_jobs: tasks at a time.

    Raises:
        UsageError: Ray is not installed.
        ClusterError: there is no Ray where ``RAY_ADDRESS`` says.
    """
    joblib = importlib.import_module("joblib")  # on demand: only sweeps need it
    with RayCluster():
        importlib.import_module("ray.util.joblib").register_ray()
        with joblib.parallel_config("ray", n_jobs=n_jobs):
            yield

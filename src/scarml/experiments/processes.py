"""Spreading trials over processes: this one, several on this machine, or those of a Ray cluster."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeVar

from scarml.errors import ClusterLostError, UsageError

__all__ = ["Backend", "Processes"]

Backend = Literal["local", "ray"]
_T = TypeVar("_T")
_PER_PROCESS = 4
"""On Ray results come back in batches of so many a process: joblib streams them on one machine only."""


@dataclass(frozen=True, slots=True)
class Processes:
    """How many processes, and where.

    Args:
        n: at least 1; with 1 everything is done here.
        backend: ``local`` (joblib's own processes), or ``ray`` (joblib on the Ray cluster that the environment names).

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> sorted(Processes(1).map(pow, [(2, 3), (3, 2)]))
        [(0, 8), (1, 9)]
    """

    n: int = 1
    backend: Backend = "local"

    def __post_init__(self) -> None:
        if self.n < 1 or self.backend not in ("local", "ray"):
            raise UsageError(f"{self.n} process(es) on backend {self.backend!r}; expected at least 1, on local or ray")

    @property
    def are_elsewhere(self) -> bool:
        """Whether what is to be done leaves this process: then it goes by names that others can load."""
        return self.n > 1 or self.backend != "local"

    def map(self, call: Callable[..., _T], arguments: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, _T]]:
        """``call`` on each of ``arguments``.

        Args:
            call: a function of a module, so that other processes can import it.
            arguments: drawn little by little; they may be large.

        Yields:
            Number and result of each, as they are done.

        Raises:
            ClusterLostError: a process on this machine was killed.
        """
        if not self.are_elsewhere:
            yield from ((i, call(*given)) for i, given in enumerate(arguments))
            return
        joblib = importlib.import_module("joblib")  # on demand: only sweeps need it
        tasks = (joblib.delayed(_numbered)(i, call, given) for i, given in enumerate(arguments))
        if self.backend == "local":
            try:
                parallel = joblib.Parallel(n_jobs=self.n, return_as="generator_unordered", pre_dispatch=self.n + 1)
                yield from parallel(tasks)
            except BrokenProcessPool as error:
                raise ClusterLostError(
                    f"one of the {self.n} processes was killed, perhaps because memory ran out; what was done before "
                    "is kept, the same command goes on, and fewer processes need less memory"
                ) from error
            return
        with importlib.import_module("scarml.engine.ray.joblib_backend").joblib_on_ray(self.n):
            while batch := list(islice(tasks, self.n * _PER_PROCESS)):
                yield from joblib.Parallel()(batch)


def _numbered(number: int, call: Callable[..., _T], given: tuple[Any, ...]) -> tuple[int, _T]:
    return number, call(*given)

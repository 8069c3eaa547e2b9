"""Models that go wrong in the processes of workers."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

import numpy as np

import scarml as scar
from scarml.core.model import Computed, Context, Update
from scarml.errors import DataError


class PeculiarError(Exception):
    """An error of a user's own."""

    def __init__(self, code: int, where: str) -> None:
        super().__init__(code, where)
        self.code = code


class StubbornError(Exception):
    """Another one, which cannot be pickled, like many."""

    def __init__(self, code: int, where: str) -> None:
        super().__init__(f"code {code} in {where}")


@dataclass(frozen=True)
class Breaks(scar.MLR):
    """Breaks in iteration 3."""

    how: str = "peculiar"

    def compute(self, ctx: Context, *args: Any) -> Computed:
        if ctx.iteration == 3:
            raise (PeculiarError if self.how == "peculiar" else StubbornError)(7, "compute")
        return super().compute(ctx, *args)


@dataclass(frozen=True)
class Deadly(scar.MLR):
    """Takes the process of every worker with it that comes to iteration 3."""

    def compute(self, ctx: Context, *args: Any) -> Computed:
        if ctx.iteration == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().compute(ctx, *args)


@dataclass(frozen=True)
class CannotReadElsewhere(scar.MLR):
    """Its data can be read in one process only."""

    pid: int = 0

    def shards(self, data: Any, n_shards: int) -> Any:
        if os.getpid() != self.pid:
            raise DataError("ratings.csv is not on this machine")
        return super().shards(data, n_shards)


@dataclass(frozen=True)
class Heavy(scar.MLR):
    """Every shard pushes its updates many times over."""

    times: int = 8

    def compute(self, ctx: Context, *args: Any) -> Computed:
        computed = super().compute(ctx, *args)
        parts = [Update(u.table, u.ids, np.asarray(u.values / self.times)) for u in computed.updates]
        return Computed([part for part in parts for _ in range(self.times)], computed.local)

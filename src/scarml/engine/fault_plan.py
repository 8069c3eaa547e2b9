"""Failures on purpose: which nodes are lost, and when. Seeded, each fires once, all are counted.

"At 20" means on x(20): the nodes are lost during the next phase, which is then computed again. With lag 0 the save of
x(20), if one was due, has become durable by then (the usual case, and the paper's); with lag 1 the lost nodes never get
their part of it out, and the save before is the newest. Both are exact, so that a run with losses can be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from scarml.control.view import NodeId, View
from scarml.core.rng import stream
from scarml.errors import UsageError

__all__ = ["FaultPlan", "Kill"]

_KILL = re.compile(r"(servers|workers):(\d+|\d+/\d+)@(\d+)(?:/lag([01]))?|((?:server|worker)-\d+)@(\d+)(?:/lag([01]))?")


@dataclass(frozen=True, slots=True)
class Kill:
    """Lose some nodes at one moment.

    Args:
        nodes: a number of ``servers`` or ``workers`` drawn at random, a fraction of them, or one node by name.
        at_iter: on x(at_iter).
        lag: 0 or 1, in saves; see the module.

    Example:
        >>> Kill.parse("servers:2@20")
        Kill(kind='servers', nodes=2, at_iter=20, lag=0)
    """

    kind: Literal["servers", "workers"]
    nodes: int | Fraction | NodeId
    at_iter: int
    lag: int = 0

    @classmethod
    def parse(cls, text: str) -> Kill:
        """From ``servers:2@20``, ``workers:1/2@20``, ``server-3@20``, each with ``/lag1`` if wanted.

        Raises:
            UsageError: if it is none of these.
        """
        found = _KILL.fullmatch(text)
        if found is None:
            raise UsageError(
                f"--kill {text!r} is not understood; expected for example servers:2@20 (two servers, on x(20)), "
                "workers:1/2@20, server-3@20, or servers:2@20/lag1"
            )
        group, n, at, lag, node, node_at, node_lag = found.groups()
        if node:
            return cls("servers" if node.startswith("server") else "workers", node, int(node_at), int(node_lag or 0))
        if int(n.split("/")[0]) < 1 or ("/" in n and not 0 < int(n.split("/")[0]) <= int(n.split("/")[1])):
            raise UsageError(f"--kill {text!r} loses no node, or more than all; expected at least one node")
        kind: Literal["servers", "workers"] = "servers" if group == "servers" else "workers"
        return cls(kind, Fraction(n) if "/" in n else int(n), int(at), int(lag or 0))


class FaultPlan:
    """The losses of one run.

    Args:
        kills: planned one by one.
        fail_rate: besides, after every iteration a random server is lost with this probability, so that the iterations
            between failures are geometric, as in section 5.3 of the paper; the last server is spared.
        seed: of the run.

    Raises:
        UsageError: if ``fail_rate`` is not in [0, 1).
    """

    def __init__(self, kills: Sequence[Kill] = (), fail_rate: float = 0.0, seed: int = 0) -> None:
        if not 0 <= fail_rate < 1:
            raise UsageError(f"--fail-rate is {fail_rate}; expected a probability per iteration, 0 <= rate < 1")
        self.is_empty = not kills and not fail_rate
        """Whether nobody is ever lost."""
        self._pending = sorted(kills, key=lambda k: k.at_iter)
        self._missed: list[Kill] = []
        self._fail_rate = fail_rate
        self._rng = stream(seed, "fault-plan")
        self.n_fired = 0

    def check(self, servers: Sequence[NodeId], workers: Sequence[NodeId]) -> None:
        """See that every planned kill can happen to these nodes, those of the start.

        Raises:
            UsageError: it is on x(0), or names a node that there is not, or more nodes than there are.
        """
        for kill in self._pending:
            if kill.at_iter < 1:
                raise UsageError(f"--kill on x({kill.at_iter}): nodes can be lost on x(1) at the earliest")
            nodes = servers if kill.kind == "servers" else workers
            if isinstance(kill.nodes, str) and kill.nodes not in nodes:
                raise UsageError(f"--kill {kill.nodes}@{kill.at_iter}: there are {nodes[0]} to {nodes[-1]}")
            if isinstance(kill.nodes, int) and kill.nodes > len(nodes):
                raise UsageError(f"--kill {kill.kind}:{kill.nodes}@{kill.at_iter}: there are {len(nodes)} {kill.kind}")

    @property
    def unfired(self) -> list[Kill]:
        """Planned kills that have not happened (yet), or that found nobody to lose."""
        return [*self._missed, *self._pending]

    def due(self, iteration: int, lag: int, view: View) -> list[NodeId]:
        """The nodes to lose on x(``iteration``) with this lag. Each planned kill is given out once."""
        due = [k for k in self._pending if k.at_iter == iteration and k.lag == lag]
        victims: list[NodeId] = []
        for kill in due:
            self._pending.remove(kill)
            alive = [n for n in (view.servers if kill.kind == "servers" else view.workers) if n not in victims]
            chosen = self._choose(kill, alive)
            if not chosen:
                self._missed.append(kill)
            victims += chosen
        if lag == 0 and self._fail_rate and self._rng.random() < self._fail_rate:
            alive = [n for n in view.servers if n not in victims]
            if len(alive) > 1:
                victims.append(alive[int(self._rng.integers(len(alive)))])
        self.n_fired += len(victims)
        return victims

    def _choose(self, kill: Kill, alive: list[NodeId]) -> list[NodeId]:
        if isinstance(kill.nodes, str):
            return [kill.nodes] if kill.nodes in alive else []
        n = kill.nodes if isinstance(kill.nodes, int) else max(1, round(kill.nodes * len(alive)))
        picked = self._rng.permutation(len(alive))[: min(n, len(alive))]
        return [alive[i] for i in sorted(picked)]

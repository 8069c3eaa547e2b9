"""What one simulated life is about, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scarml.checkpoint.policy import RankBy
from scarml.checkpoint.selection import Checkpoint
from scarml.core.rng import stream
from scarml.storage.compaction import Limits

__all__ = ["Scenario"]

_RANKS: tuple[RankBy, ...] = ("distance", "weighted-distance-per-byte")


@dataclass(frozen=True, slots=True)
class Scenario:
    """What one life is about, drawn from its seed.

    Args:
        servers, workers, shards: of each start; later starts may have other numbers of nodes.
        partitions: of each table, at most.
        checkpoint: the settings.
        max_iters: iterations to be done.
        n_faults: how many times something goes wrong; then the rest of the life is quiet, so that it can end.
        compaction: often, so that it is tried.
        silence_s: a node that is not heard for so long, in virtual seconds, is taken for lost, and ends itself.
        replaces: whether a lost node is replaced.
    """

    servers: int
    workers: int
    shards: int
    partitions: int
    checkpoint: Checkpoint
    max_iters: int
    n_faults: int
    compaction: Limits
    silence_s: float
    replaces: bool

    @classmethod
    def draw(cls, rng: np.random.Generator, seed: int) -> Scenario:
        """Draw one; ``rng`` goes on to decide the rest of the life, ``seed`` is the life's."""
        repairs = stream(seed, "whether lost blocks are mended").random() < 0.5
        encode = ("plain", "plain", "bfloat16", "int8")[rng.integers(4)]
        further = stream(seed, "narrow, weighted and phase-aware").random(3) < 0.25
        encode, rank_by = "narrow" if further[0] else encode, _RANKS[int(further[1])]
        if rng.random() < 0.3:
            recovery = "full" if rng.random() < 0.7 else "repair" if repairs else "partial"
            checkpoint = Checkpoint("full", 1, int(rng.integers(1, 5)), recovery, encode=encode)  # type: ignore[arg-type]
        else:
            fraction, interval = [("1/8", 8), ("1/4", 8), ("1/2", 4), ("1/3", 4), ("1", 2)][rng.integers(5)]
            policy = ("priority", "priority", "round", "random")[rng.integers(4)]
            by_use = stream(seed, "whether blocks are chosen by their uses").random()
            policy = "mfu" if by_use < 0.2 else "ssu" if by_use < 0.3 else policy
            budget_in = ("blocks", "bytes")[rng.integers(2)]
            recovery = "repair" if repairs else "partial"
            checkpoint = Checkpoint(
                policy,
                fraction,
                interval,
                recovery,  # type: ignore[arg-type]
                budget_in,  # type: ignore[arg-type]
                rank_by=rank_by,
                encode=encode,
                phase_aware=bool(further[2]),
            )
        return cls(
            servers=int(rng.integers(1, 5)),
            workers=int(rng.integers(1, 4)),
            shards=int(rng.integers(1, 6)),
            partitions=int(rng.integers(1, 9)),
            checkpoint=checkpoint,
            max_iters=int(rng.integers(4, 16)),
            n_faults=int(rng.integers(0, 7)),
            compaction=Limits(
                piece_bytes=int(rng.choice([200, 2_000, 1 << 20])),
                slack_bytes=int(rng.choice([0, 1_000, 1 << 20])),
                max_segments_per_node=int(rng.integers(1, 5)),
            ),
            silence_s=float(rng.choice([0.1, 0.3])),
            replaces=bool(rng.random() < 0.3),
        )

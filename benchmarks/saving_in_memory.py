"""What a save costs in memory: scoring, choosing and staging, against one memcpy of the state between kept buffers.

The state is float32: rows of 1 KiB, many tiny blocks (64 B, a million of them), and ragged blocks of 0 to 2 KB.
"""

from __future__ import annotations

import numpy as np
from side_by_side import Row, alternate, main, ratio_row

import scarml as scar
from scarml.checkpoint.block_cache import BlockCache
from scarml.checkpoint.selection import SaveSelector
from scarml.checkpoint.version_index import Version, Versions
from scarml.core.block import Blocks, Field, Ids, Table
from scarml.core.norm import l2_distance


def measure(quick: bool) -> list[Row]:
    scale = 32 if quick else 1
    ragged_lengths = np.random.default_rng(1).integers(0, 512, (1 << 18) // scale)
    cases = [
        (Table("W", (1 << 20) // scale, (Field("value", "float32", (256,)),)), "in rows of 1 KiB", 1.8),
        (Table("W", (1 << 20) // scale, (Field("value", "float32", (16,)),)), "in rows of 64 B", None),
        (
            Table("W", len(ragged_lengths), (Field("value", "float32", ragged=True),), lengths=ragged_lengths),
            "ragged, 0 … 2 KB",
            None,
        ),
    ]
    rows = []
    for table, name, target in cases:
        mib = round(int(table.block_bytes.sum()) / (1 << 20))
        rows += _measure(f"{mib} MiB {name}", table, 3 if quick else 15, target)
    return rows


def _measure(name: str, table: Table, rounds: int, target: float | None) -> list[Row]:
    current, cache, eighth = _state(table)
    kept = np.zeros_like(current.value)
    distance = cache.score(current)
    selector = SaveSelector(scar.Checkpoint(policy="priority", fraction="1/8"), [table], seed=0)

    def choose() -> None:
        selector.earn()
        selector.select({table.name: distance})

    def stage() -> None:
        cache.stage(current, eighth, Version(1, 1, 1), save_id=1)

    def save() -> None:
        cache.score(current)
        choose()
        stage()

    seconds = alternate(
        {
            "memcpy": lambda: np.copyto(kept, current.value),
            "distance": lambda: l2_distance(current, cache.saved),
            "score": lambda: cache.score(current),
            "choose": choose,
            "stage": stage,
            "all": save,
        },
        rounds,
    )
    memcpy = seconds["memcpy"]
    return [
        ratio_row(f"{name}: the norm alone", "memcpy", seconds["distance"], memcpy),
        ratio_row(f"{name}: scoring", "memcpy", seconds["score"], memcpy),
        ratio_row(f"{name}: choosing the top 1/8", "memcpy", seconds["choose"], memcpy),
        ratio_row(f"{name}: staging 1/8", "memcpy", seconds["stage"], memcpy),
        ratio_row(f"{name}: all three", "memcpy", seconds["all"], memcpy, at_most=target),
    ]


def _state(table: Table) -> tuple[Blocks, BlockCache, Ids]:
    rng = np.random.default_rng(0)
    current = table.empty(table.all_ids)
    rng.random(dtype=np.float32, out=current.value)
    cache = BlockCache(current, Versions.initial(table.n_blocks), l2_distance)
    current.value[...] *= 1.5
    eighth = np.sort(rng.permutation(table.n_blocks)[: table.n_blocks // 8])
    return current, cache, eighth


if __name__ == "__main__":
    main(measure, __file__)

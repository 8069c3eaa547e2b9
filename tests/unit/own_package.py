"""A package of somebody else's: a policy, a model with a repair of its own, and a data set."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

__all__ = ["DATA", "MODEL", "POLICY", "write_package"]

POLICY, MODEL, DATA = "my_things.policies:HotFirst", "my_things.models:Means", "my_things.data:groups"

_FILES = {
    "__init__": "",
    "policies": """
        import numpy as np


        class HotFirst:
            \"\"\"Ranks by distance, of blocks that have been used at all.\"\"\"

            name = "hot-first"
            needs_distances = True
            needs_uses = True

            def scores(self, candidates, n_saves, cursor, seed):
                return np.where(candidates.n_uses > 0, candidates.distance, 0.0)


        class Failing(HotFirst):
            name = "failing"

            def scores(self, candidates, n_saves, cursor, seed):
                raise ValueError("not today")


        class Short(HotFirst):
            name = "short"

            def scores(self, candidates, n_saves, cursor, seed):
                return candidates.distance[1:]


        class CallsItselfFull(HotFirst):
            name = "full"


        class NoPolicy:
            name = "none"


        some_number = 5
    """,
    "data": """
        import numpy as np


        def groups(n_groups=24, n_examples=240, seed=1):
            \"\"\"Examples of some groups each; a function without arguments, as far as SCAR is concerned.\"\"\"
            rng = np.random.default_rng(seed)
            group = np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, n_examples - n_groups)])
            return group, group % 7 + rng.standard_normal(n_examples)


        def broken():
            raise OSError("the disk is gone")
    """,
    "models": """
        from dataclasses import dataclass

        import numpy as np

        import scarml as scar
        from scarml.models.defaults import Defaults

        from my_things.data import groups


        @dataclass(frozen=True)
        class Means(scar.Model):
            \"\"\"The mean of each group, by small steps; a repair takes the whole step, for lost groups alone.\"\"\"

            rate: float = 0.1
            n_repair_phases = 1
            defaults = {"my_things.data:groups": Defaults(stop_loss_sum=122.0)}

            @classmethod
            def own_data(cls):
                return groups()

            def tables(self, data):
                return [scar.Table("means", int(data[0].max()) + 1, (scar.Field("value"),))]

            def shards(self, data, n_shards):
                size = np.bincount(data[0])
                parts = np.array_split(np.arange(len(data[0])), n_shards)
                return [scar.Shard(s, (data[0][p], data[1][p], size), len(p)) for s, p in enumerate(parts)]

            def init(self, table, ids, seed):
                return {"value": np.full(len(ids), 20.0, np.float32)}

            def reads(self, ctx, shard):
                return {"means": np.unique(shard.data[0])}

            def compute(self, ctx, shard, reads, local):
                group, value, size = shard.data
                means, rate = reads["means"], 1.0 if ctx.repair else self.rate
                at = np.searchsorted(means.ids, group)
                step = np.bincount(at, (value - means.value[at]) / size[group], minlength=len(means))
                return scar.Computed([scar.Update("means", means.ids, (rate * step).astype(np.float32))])

            def lost_part(self, ctx, shard, lost):
                group, value, size = shard.data
                mine = np.isin(group, lost.get("means", []))
                return scar.Shard(shard.index, (group[mine], value[mine], size), int(mine.sum()))

            def loss(self, shard, reads, local):
                group, value, _ = shard.data
                at = np.searchsorted(reads["means"].ids, group)
                return float(0.5 * np.square(value - reads["means"].value[at]).sum(dtype=np.float64))
    """,
}


def write_package(folder: Path) -> Path:
    """Write it into a folder, which then has to be where Python looks for modules."""
    package = folder / "my_things"
    package.mkdir(parents=True)
    for name, text in _FILES.items():
        (package / f"{name}.py").write_text(dedent(text).lstrip())
    return folder

"""A model of one's own: k-means (Lloyd's algorithm).

From the folder above:

    scarml train examples.kmeans:KMeans                     # on its own data
    scarml train examples.kmeans:KMeans --data mnist        # on any data set with features
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

import scarml as scar
from scarml.core.rng import block_uniform
from scarml.data.registry import load


@dataclass(frozen=True)
class KMeans(scar.Model):
    """The table ``centres`` has a block for each cluster; a shard is a slice of the examples."""

    n_clusters: int = 10
    scale: float = 64.0  # centres start uniform in [0, scale)
    metrics = (scar.Metric("rms_distance", of_mean="root"),)  # the root of the mean loss, on held-out data

    @classmethod
    def own_data(cls):
        return load("mnist-10k")

    def tables(self, data):
        return [scar.Table("centres", self.n_clusters, (scar.Field("value", "float32", (data.n_features,)),))]

    def shards(self, data, n_shards):
        slices = np.array_split(data.features.astype(np.float32), n_shards)
        return [scar.Shard(index=s, data=examples, n_examples=len(examples)) for s, examples in enumerate(slices)]

    def init(self, table, ids, seed):
        return {"value": block_uniform(seed, table, ids) * np.float32(self.scale)}

    def reads(self, ctx, shard):
        return {"centres": scar.ALL}

    def compute(self, ctx, shard, reads, local):
        nearest = self._distances(shard, reads).argmin(axis=1)
        members = np.eye(self.n_clusters, dtype=np.float32)[:, nearest]
        counted = np.hstack([shard.data, np.ones((len(shard.data), 1), np.float32)])
        return scar.Computed([scar.Update("centres", scar.ALL, members @ counted)])  # sums, and how many in each

    def apply(self, ctx, table, fields, combined):
        total, count = combined[:, :-1], combined[:, -1:]
        return {"value": np.where(count > 0, total / np.maximum(count, 1), fields["value"])}

    def loss(self, shard, reads, local):
        return float(self._distances(shard, reads).min(axis=1).sum(dtype=np.float64))

    def _distances(self, shard, reads: Mapping[str, scar.Blocks]):
        x, c = shard.data, reads["centres"].value
        return (x**2).sum(axis=1)[:, None] - 2 * x @ c.T + (c**2).sum(axis=1)

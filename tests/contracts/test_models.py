"""Every model of ours through the suite that users run on theirs, and models that break one clause each."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from examples.kmeans import KMeans

from scarml.core.block import Array, Blocks, Field, Ids, Table
from scarml.core.metric import Metric
from scarml.core.model import ALL, Computed, Context, Model, Reads, Shard, Update
from scarml.core.rng import block_uniform, stream
from scarml.core.sequential import Sequential
from scarml.data.classification import Classification
from scarml.errors import ModelError
from scarml.testing import TINY_PROBLEMS, check_model, tiny_problem
from scarml.testing.models.plain_lda import PlainLDA


@pytest.mark.parametrize("name", TINY_PROBLEMS)
@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("n_shards", [1, 4, pytest.param(40, marks=pytest.mark.ci)])
def test_our_models_keep_the_contract(name: str, seed: int, n_shards: int) -> None:
    model, data = tiny_problem(name)
    check_model(model, data, n_shards=n_shards, iterations=4, seed=seed, loss_falls=True)


def test_the_example_keeps_the_contract() -> None:
    rng = stream(0, "blobs")
    features = (rng.integers(0, 3, (60, 1)) * 30 + rng.random((60, 4))).astype(np.float32)
    check_model(KMeans(n_clusters=3), Classification(features, np.zeros(60, int), 1), loss_falls=True)


def test_the_plain_lda_keeps_the_contract() -> None:
    _, data = tiny_problem("lda")
    check_model(PlainLDA(n_components=4, doc_topic_prior=0.1, topic_word_prior=0.1), data, loss_falls=True)


@pytest.mark.parametrize("n_shards", [1, 3, 24])
def test_lda_conserves_tokens(n_shards: int) -> None:
    model, data = tiny_problem("lda")
    run = Sequential(model, data, n_shards=n_shards)
    for _ in range(5):
        run.step()
        assert run.state["word_topics"].value.sum() == len(data.words)
        assert run.state["word_topics"].value.min() >= 0
        assert (run.state["word_topics"].value.sum(axis=0) == run.state["topic_totals"].value[0]).all()
        by_word = np.bincount(data.words, minlength=data.n_words)
        assert (run.state["word_topics"].value.sum(axis=1) == by_word).all()


@dataclass(frozen=True)
class Mean(Model):
    """Moves four numbers towards the column means of the data; each test below breaks it in one way."""

    broken: str = ""

    def tables(self, data: Array) -> list[Table]:
        if self.broken == "two tables of one name":
            return [Table("x", 4, (Field("value"),)), Table("x", 4, (Field("value"),))]
        if self.broken == "only derived tables":
            return [Table("x", 4, (Field("value"),), derived=True)]
        if self.broken == "derived worker-home table":
            return [Table("x", 4, (Field("value"),)), Table("y", 4, (Field("value"),), home="worker", derived=True)]
        tables = [Table("x", 4, (Field("value"),), dead_at_boundary=self.broken == "a table that is not dead")]
        if "own blocks" in self.broken:
            tables.append(Table("own", 4, (Field("value"),), home="worker"))
        if "derived" in self.broken:
            tables.append(Table("total", 1, (Field("value", "float32"),), derived=True))
        return tables

    def shards(self, data: Array, n_shards: int) -> list[Shard]:
        shards = [Shard(s, d, len(d)) for s, d in enumerate(np.array_split(data, n_shards))]
        if self.broken == "shards out of order":
            return shards[::-1]
        if self.broken == "too few shards":
            return shards[:-1]
        if self.broken == "unpicklable shards":
            local_class = type("Local", (np.ndarray,), {})
            return [replace(s, data=s.data.view(local_class)) for s in shards]
        if self.broken == "own blocks in no shard":
            return [replace(s, blocks={"own": np.zeros(0, np.int64)}) for s in shards]
        if self.broken == "own blocks in every shard":
            return [replace(s, blocks={"own": np.arange(4)}) for s in shards]
        if self.broken == "shards own server-home blocks":
            return [replace(s, blocks={"x": np.arange(4)}) for s in shards]
        return shards

    def init(self, table: Table, ids: Ids, seed: int) -> Mapping[str, Array]:
        if self.broken == "init depends on the other blocks":
            return {"value": stream(seed).random(len(ids)).astype(np.float32)}
        if self.broken == "init gives one array twice":
            return {"value": SHARED[: len(ids)]}
        if self.broken == "init of another dtype":
            return {"value": np.zeros(len(ids))}
        return {"value": block_uniform(seed, table, ids)}

    def reads(self, ctx: Context, shard: Shard) -> Reads:
        if self.broken == "reads an unknown table":
            return {"y": ALL}
        if self.broken == "reads blocks out of order":
            return {"x": np.array([2, 1])}
        if self.broken == "reads blocks that are not there":
            return {"x": np.array([3, 4])}
        return {"x": ALL}

    def compute(self, ctx: Context, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> Computed:
        x, n = reads["x"].value, len(shard.data)
        step = (0.02 * (shard.data.sum(axis=0) - n * x)).astype(np.float32)
        if self.broken == "compute changes what it reads":
            x += 1
        if self.broken == "compute draws random numbers of its own":
            step = np.random.default_rng().random(4).astype(np.float32)
        if self.broken == "compute gives too few values":
            return Computed([Update("x", np.arange(4), step[:3])])
        if self.broken == "compute updates an unknown table":
            return Computed([Update("y", ALL, step)])
        if self.broken == "compute updates blocks with int32 ids":
            return Computed([Update("x", np.arange(4, dtype=np.int32), step)])
        if self.broken == "compute gives no finite values":
            step[0] = np.inf
        if self.broken == "two shards assign one block":
            step = x
        updates = [Update("x", ALL, step)]
        if self.broken == "derived table of another dtype":
            updates.append(Update("total", ALL, np.ones(1)))
        if self.broken == "derived table that is not rebuilt":
            updates.append(Update("total", ALL, np.ones(1, np.float32)))
        return Computed(updates)

    def combine(self, table: Table) -> Any:
        return "assign" if self.broken == "two shards assign one block" else "add"

    def groups(self, table: Table) -> Ids:
        return table.all_ids[1 if self.broken == "groups of another length" else 0 :]

    def distance(self, a: Blocks, b: Blocks) -> Any:
        away = np.abs(a.value.astype(np.float64) - b.value)
        if self.broken == "distance of equal blocks is not 0":
            return away + 1
        if self.broken == "distance is signed":
            return a.value.astype(np.float64) - b.value
        if self.broken == "distance is one number":
            return away.sum()
        if self.broken == "distance depends on other blocks":
            return away / max(away.sum(), 1e-9)
        return away

    def loss(self, shard: Shard, reads: Mapping[str, Blocks], local: Mapping[str, Blocks]) -> float:
        if self.broken == "loss is not finite":
            return float("nan")
        if self.broken == "loss changes what it reads":
            reads["x"].value[0] += 1
        if self.broken == "loss does not fall":
            return 1.0
        return float(((shard.data - reads["x"].value) ** 2).sum())

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (Metric("mse"),) * (2 if self.broken == "two metrics of one name" else 1)

    def held_out_shards(self, data: Array, n_shards: int) -> list[Shard]:
        shards = self.shards(data, n_shards)
        if self.broken == "held-out shards with blocks":
            return [replace(s, blocks={"x": np.arange(4)}) for s in shards]
        if self.broken == "examples are lost where they are cut":
            return [replace(s, n_examples=s.n_examples // n_shards) for s in shards]
        return shards

    def metric_reads(self, shard: Shard) -> Reads:
        return {"y": ALL} if self.broken == "metrics read an unknown table" else {"x": ALL}

    def metric_sums(self, shard: Shard, reads: Mapping[str, Blocks]) -> Mapping[str, Any]:
        if self.broken == "metrics that were not announced":
            return {"mse": 1.0, "rmse": 1.0}
        if self.broken == "a metric that is no number":
            return {"mse": "small"}
        if self.broken == "a mean instead of a sum":
            return {"mse": self.loss(shard, reads, {}) / max(shard.n_examples, 1)}
        if self.broken == "metrics that change":
            return {"mse": time.perf_counter()}
        return super().metric_sums(shard, reads)


SHARED = np.zeros(4, np.float32)
DATA = stream(0, "mean").random((20, 4)) + 3


def test_the_unbroken_one_passes() -> None:
    check_model(Mean(), DATA, loss_falls=True)


@pytest.mark.parametrize(
    ("broken", "clause"),
    [
        ("two tables of one name", "tables: names"),
        ("a table that is not dead", "dead_at_boundary: the next iteration reads"),
        ("only derived tables", "tables: at least one"),
        ("derived worker-home table", "tables: derived table 'y'"),
        ("shards out of order", "shards: indices"),
        ("too few shards", "shards: indices"),
        ("unpicklable shards", "pickle: "),
        ("own blocks in no shard", "shards: every block of worker-home table 'own'"),
        ("own blocks in every shard", "shards: every block of worker-home table 'own'"),
        ("shards own server-home blocks", "shards: shard 0 owns blocks of 'x', whose home is server"),
        ("init depends on the other blocks", "init: a block of table 'x' depends"),
        ("init gives one array twice", "init: must return new memory"),
        ("init of another dtype", "field 'value' of table 'x' is float64"),
        ("reads an unknown table", "reads of shard 0: 'y' is not a server-home table"),
        ("reads blocks out of order", "reads of shard 0: ids of table 'x' must be strictly increasing"),
        ("reads blocks that are not there", r"reads of shard 0: ids of table 'x' must be 0 … 3"),
        ("compute changes what it reads", "compute: shard 0 changed its arguments"),
        ("compute draws random numbers of its own", "compute: shard 0 gives another result"),
        ("compute gives too few values", "compute of shard 0: 3 values for table 'x'; expected 4"),
        ("compute updates an unknown table", "compute of shard 0: updates table 'y'"),
        ("compute updates blocks with int32 ids", "compute of shard 0: ids of table 'x' must be .* int64"),
        ("compute gives no finite values", "compute, apply: table 'x' holds values that are not finite"),
        ("two shards assign one block", r"two shards assign blocks"),
        ("derived table of another dtype", "compute of shard 0: values for derived table 'total'"),
        ("derived table that is not rebuilt", "rebuild: derived table 'total'"),
        ("groups of another length", "groups: expected 4 integers"),
        ("distance of equal blocks is not 0", "distance: of equal blocks"),
        ("distance is signed", "distance: must be"),
        ("distance is one number", "distance: must be 4 finite numbers"),
        ("distance depends on other blocks", "distance: of a block of 'x' depends"),
        ("loss is not finite", "loss: must be finite"),
        ("loss changes what it reads", "loss: changed the blocks"),
        ("loss does not fall", "loss: 4.0 after 3 iterations"),
        ("two metrics of one name", r"metrics: names must differ, got \['mse', 'mse'\]"),
        ("held-out shards with blocks", "held_out_shards: shard 0 owns blocks of 'x', whose home is server"),
        ("examples are lost where they are cut", "held_out_shards: have 4 examples, and 20 in one piece"),
        ("metrics read an unknown table", "metric_reads of shard 0: 'y' is not a server-home table"),
        ("metrics that were not announced", r"metric_sums of shard 0: returns \['mse', 'rmse'\]; expected \['mse'\]"),
        ("a metric that is no number", "metric_sums of shard 0: mse: must return a number"),
        ("a mean instead of a sum", "metric_sums: mse is .* of all examples at once"),
        ("metrics that change", "metric_sums: of shard 0 differ when asked for twice"),
    ],
)
def test_each_broken_clause_is_named(broken: str, clause: str) -> None:
    with pytest.raises(ModelError, match=clause):
        check_model(Mean(broken), DATA, loss_falls=True)

"""What a model must keep to, checked clause by clause: run `check_model` on yours before you train with it."""

from __future__ import annotations

import pickle  # noqa: TID251  # reads only what was written a line before
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scarml.core.block import Blocks, Table
from scarml.core.contract import (
    check_computed,
    check_groups,
    check_held_out_shards,
    check_metric_sums,
    check_metrics,
    check_n_phases,
    check_reads,
    check_shards,
    check_tables,
    require,
)
from scarml.core.model import ALL, Computed, Context, Model, Shard
from scarml.core.repair import check_n_repair_phases
from scarml.core.sequential import Sequential, digest, initial_blocks, select_reads
from scarml.errors import ModelError

__all__ = ["check_model"]


@dataclass(frozen=True, slots=True)
class _Case:
    """One model on its data, and how far to train it."""

    model: Model
    data: Any
    n_shards: int
    iterations: int
    seed: int

    def tables(self) -> Sequence[Table]:
        """As the model gives them."""
        return self.model.tables(self.data)

    def run(self, iterations: int = 0) -> Sequential:
        """Trained for so many iterations."""
        run = Sequential(self.model, self.data, seed=self.seed, n_shards=self.n_shards)
        for _ in range(iterations):
            run.step()
        return run


def check_model(
    model: Model, data: Any, *, n_shards: int = 4, iterations: int = 3, seed: int = 0, loss_falls: bool = False
) -> None:
    """Check that a model keeps to the `Model` protocol, on a data set that should be small.

    A model that passes gives the same result on any number of nodes, and after failures.

    Args:
        model: yours.
        data: what its `tables` and `shards` take.
        n_shards: how finely to cut the data.
        iterations: how many to train in each check.
        seed: of all random values.
        loss_falls: also ask that the loss after ``iterations`` is below that of x(0).

    Raises:
        ModelError: naming the first clause that is broken, and how.

    Example:
        >>> from scarml.models.qp import QP
        >>> check_model(QP(), None, loss_falls=True)
    """
    case = _Case(model, data, n_shards, iterations, seed)
    check_n_phases(model.n_phases)
    check_n_repair_phases(model.n_repair_phases)
    _check_tables(case)
    _check_shards(case, n_shards)
    _check_shards(case, 1)
    for table in case.tables():
        check_groups(table, case.model.groups(table))
        _check_init(case, table)
    _check_compute(case)
    _check_distance(case)
    _check_loss(case, loss_falls)
    _check_metrics(case)
    _check_rebuild(case)
    _check_resume(case)
    _check_recovery(case)
    _check_repair(case)
    _check_dead(case)
    _check_pickle(case)


def _check_tables(case: _Case) -> None:
    tables = case.tables()
    check_tables(tables)
    first, again = ([(t.name, t.n_blocks, t.fields, t.home, t.derived) for t in x] for x in (tables, case.tables()))
    require(first == again, "tables", "differ when asked for twice")


def _check_shards(case: _Case, n_shards: int) -> None:
    tables = {t.name: t for t in case.tables()}
    shards, again = case.model.shards(case.data, n_shards), case.model.shards(case.data, n_shards)
    check_shards(tables, shards, n_shards)
    for shard, other in zip(shards, again, strict=True):
        for name, ids in shard.blocks.items():
            same = name in other.blocks and np.array_equal(ids, other.blocks[name])
            require(same, "shards", f"shard {shard.index} owns other blocks of {name!r} when asked twice")
    for table in tables.values():
        if table.home == "worker":
            owned = np.sort(np.concatenate([s.blocks.get(table.name, np.zeros(0, np.int64)) for s in shards]))
            require(
                np.array_equal(owned, table.all_ids),
                "shards",
                f"every block of worker-home table {table.name!r} must be in exactly one shard",
            )


def _check_init(case: _Case, table: Table) -> None:
    if table.derived:
        return
    whole = initial_blocks(case.model, table, table.all_ids, case.seed)
    again = initial_blocks(case.model, table, table.all_ids, case.seed)
    require(_equal(whole, again), "init", f"blocks of table {table.name!r} differ when asked for twice")
    shared = any(np.shares_memory(whole.fields[f.name], again.fields[f.name]) for f in table.fields)
    require(not shared, "init", f"must return new memory on each call (table {table.name!r})")
    for ids in (table.all_ids[1::2], table.all_ids[:1], table.all_ids[:0]):
        some = initial_blocks(case.model, table, ids, case.seed)
        require(
            _equal(some, whole.take(ids)),
            "init",
            f"a block of table {table.name!r} depends on which others are asked for together with it; "
            "use scarml.core.rng.block_uniform and its kin",
        )


def _check_compute(case: _Case) -> None:
    """All phases of a few iterations, each shard computed twice: forwards, and backwards from read-only arrays."""
    run = case.run()
    for iteration in range(1, case.iterations + 1):
        for phase in range(case.model.n_phases):
            ctx = Context(case.seed, iteration, phase)
            first = [_computed(run, ctx, shard, read_only=False) for shard in run.shards]
            second = [_computed(run, ctx, shard, read_only=True) for shard in reversed(run.shards)][::-1]
            for shard, a, b in zip(run.shards, first, second, strict=True):
                check_computed(run.tables, shard, a)
                require(
                    _content(a) == _content(b),
                    "compute",
                    f"shard {shard.index} gives another result when computed again, after other shards; "
                    "it must depend on its arguments alone, and draw random numbers from ctx.rng(shard.index)",
                )
            run.run_phase(ctx)
    for name, blocks in run.state.items():
        require(not blocks.is_nonfinite().any(), "compute, apply", f"table {name!r} holds values that are not finite")


def _computed(run: Sequential, ctx: Context, shard: Shard, *, read_only: bool) -> Computed:
    wanted = run.model.reads(ctx, shard)
    check_reads(run.tables, wanted, f"reads of shard {shard.index}")
    reads = {n: b.copy() for n, b in select_reads(run.state, wanted).items()}
    local = {n: run.state[n].take(ids) for n, ids in shard.blocks.items()}
    before = digest(reads), digest(local)
    if read_only:  # as arrays are that come from another process
        for array in (a for blocks in (*reads.values(), *local.values()) for a in blocks.fields.values()):
            array.setflags(write=False)
    computed = run.model.compute(ctx, shard, reads, local)
    require((digest(reads), digest(local)) == before, "compute", f"shard {shard.index} changed its arguments")
    return computed


def _check_distance(case: _Case) -> None:
    start, end = case.run().state, case.run(case.iterations).state
    for name, blocks in start.items():
        ids, distance = blocks.ids, case.model.distance(blocks, end[name])
        right = distance.shape == (len(ids),) and np.isfinite(distance).all() and (distance >= 0).all()
        require(bool(right), "distance", f"must be {len(ids)} finite numbers of at least 0 for table {name!r}")
        zero = case.model.distance(blocks, blocks.copy())
        require(not zero.any(), "distance", f"of equal blocks of table {name!r} must be 0")
        back = case.model.distance(end[name], blocks)
        require(np.allclose(distance, back), "distance", f"must be the same both ways (table {name!r})")
        some = case.model.distance(blocks.take(ids[1::2]), end[name].take(ids[1::2]))
        require(np.allclose(some, distance[1::2]), "distance", f"of a block of {name!r} depends on other blocks")
        none = case.model.distance(blocks.take(ids[:0]), end[name].take(ids[:0]))
        require(none.shape == (0,), "distance", f"of no blocks of {name!r} must be an empty array")


def _check_loss(case: _Case, loss_falls: bool) -> None:
    start, run = case.run().loss_sum(), case.run(case.iterations)
    before = digest(run.state)
    for shard in run.shards:
        check_reads(run.tables, run.model.loss_reads(shard), f"loss_reads of shard {shard.index}")
    end = run.loss_sum()
    require(bool(np.isfinite([start, end]).all()), "loss", f"must be finite, got {start} at x(0) and {end} later")
    require(digest(run.state) == before, "loss", "changed the blocks that it read")
    require(run.loss_sum() == end, "loss", "differs when asked for twice")
    require(end < start or not loss_falls, "loss", f"{end} after {case.iterations} iterations, {start} at x(0)")


def _check_metrics(case: _Case) -> None:
    """On the training data: what is held out is not known here, and is like it."""
    model, run = case.model, case.run(case.iterations)
    check_metrics(model.metrics)
    if not model.metrics:
        return
    cuts = [model.held_out_shards(case.data, n) for n in (case.n_shards, 1)]
    for shards in cuts:
        check_held_out_shards(run.tables, shards, len(shards))
    totals = [sum(shard.n_examples for shard in shards) for shards in cuts]
    require(totals[0] == totals[1], "held_out_shards", f"have {totals[0]} examples, and {totals[1]} in one piece")
    before = digest(run.state)
    for shard in cuts[0]:
        wanted, where = model.metric_reads(shard), f"shard {shard.index}"
        check_reads(run.tables, wanted, f"metric_reads of {where}")
        sums = check_metric_sums(
            model.metrics, model.metric_sums(shard, select_reads(run.state, wanted)), f"metric_sums of {where}"
        )
        again = model.metric_sums(shard, {n: b.read_only() for n, b in select_reads(run.state, wanted).items()})
        require(sums == dict(again), "metric_sums", f"of {where} differ when asked for twice")
    require(digest(run.state) == before, "metric_sums", "changed the blocks that it read")
    if not totals[0]:  # of a tiny corpus nothing may be left to judge by
        return
    whole, parts = run.metrics(cuts[1]), run.metrics(cuts[0])
    for name, value in whole.items():
        same = np.isclose(value, parts[name], rtol=1e-4, equal_nan=True)
        require(bool(same), "metric_sums", f"{name} is {value} of all examples at once, {parts[name]} by shards")


def _check_rebuild(case: _Case) -> None:
    run = case.run(case.iterations)
    before = {name: blocks.copy() for name, blocks in run.state.items() if run.tables[name].derived}
    run.rebuild()
    for name, blocks in before.items():
        message = f"derived table {name!r} is not what the updates of {case.iterations} iterations gave"
        require(_equal(blocks, run.state[name]), "rebuild", message)


def _check_resume(case: _Case) -> None:
    stopped, resumed = case.run(case.iterations), case.run()
    for name, blocks in stopped.state.items():
        if not resumed.tables[name].derived:
            resumed.state[name].put(blocks)
    resumed.rebuild()
    resumed.iteration = stopped.iteration
    _go_on_alike(stopped, resumed, "resume", "going on from copied blocks differs from never having stopped")


def _check_recovery(case: _Case) -> None:
    calm, recovered = case.run(case.iterations), case.run(case.iterations)
    for blocks in recovered.state.values():
        blocks.put(blocks.take(blocks.ids[::2]))
    recovered.rebuild()
    _go_on_alike(calm, recovered, "recovery", "restoring blocks that were not lost changes the run")


def _check_repair(case: _Case) -> None:
    """Mend a third of the blocks, twice from the same state."""
    if not case.model.n_repair_phases:
        return
    ends = []
    for _ in range(2):
        run = case.run(case.iterations)
        saved = [t for t in run.tables.values() if not t.derived]
        lost = {t.name: t.all_ids[::3] for t in saved}
        for t in saved:
            run.state[t.name].put(initial_blocks(run.model, t, lost[t.name], case.seed))
        run.rebuild()
        before = {t.name: run.state[t.name].copy() for t in saved}
        run.repair(lost)
        for name, blocks in before.items():
            changed = blocks.ids[blocks.differs_from(run.state[name])]
            only_lost = bool(np.isin(changed, lost[name]).all())
            require(only_lost, "lost_part", f"a repair changed blocks of {name!r} that were not lost")
        ends.append(digest(run.state))
        run.rebuild()
        require(digest(run.state) == ends[-1], "lost_part", "derived tables are not what a repair's updates gave")
    require(ends[0] == ends[1], "lost_part", "a repair done again from the same state gives another result")


def _check_dead(case: _Case) -> None:
    """Set tables that are said to be dead back to x(0), between two iterations."""
    calm, changed = case.run(case.iterations), case.run(case.iterations)
    dead = [t for t in calm.tables.values() if t.dead_at_boundary]
    if not dead:
        return
    before = {t.name: calm.state[t.name].copy() for t in dead}
    for t in dead:
        changed.state[t.name].put(initial_blocks(case.model, t, t.all_ids, case.seed))
    for run in (calm, changed):
        run.step()
    for name, blocks in calm.state.items():
        differ = blocks.differs_from(changed.state[name])
        if name in before:
            differ &= blocks.differs_from(before[name])  # what is never computed stays as it was
        require(
            not differ.any(), "dead_at_boundary", f"the next iteration reads {[t.name for t in dead]}: {name!r} differs"
        )


def _check_pickle(case: _Case) -> None:
    run, moved = case.run(case.iterations), case.run(case.iterations)
    try:
        moved.model = pickle.loads(pickle.dumps(moved.model))  # noqa: S301  # written on this line
        moved.shards = pickle.loads(pickle.dumps(moved.shards))  # noqa: S301
    except Exception as error:  # whatever a user's class raises
        raise ModelError(f"pickle: model and shards must be picklable, to go to other processes: {error}") from error
    _go_on_alike(run, moved, "pickle", "a pickled copy of the model and its shards computes something else")


def _go_on_alike(a: Sequential, b: Sequential, clause: str, message: str) -> None:
    for _ in range(2):
        require(digest(a.state) == digest(b.state), clause, message)
        a.step()
        b.step()
    require(digest(a.state) == digest(b.state), clause, message)


def _equal(a: Blocks, b: Blocks) -> bool:
    return np.array_equal(a.ids, b.ids) and not a.differs_from(b).any()


def _content(computed: Computed) -> list[tuple[str, bytes, bytes | str]]:
    """All that is in it, comparable bit by bit."""
    updates = [(u.table, b"ALL" if u.ids is ALL else np.asarray(u.ids).tobytes(), u.values) for u in computed.updates]
    local = [(name, blocks.ids.tobytes(), digest({name: blocks})) for name, blocks in computed.local.items()]
    return [*((name, ids, values.tobytes()) for name, ids, values in updates), *local]

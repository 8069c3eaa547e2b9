"""Compaction with power lost, or the process killed, at every operation: what was reported before is there after."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from scarml.core.block import Field, Table
from scarml.storage.compaction import Compactor, Limits
from scarml.storage.local import LocalStore
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment import Segment
from scarml.storage.simulated_disk import SimulatedCrash, SimulatedDisk
from scarml.storage.unit import FullSave

TABLE = Table("W", 8, (Field("value", "float32", (3,)),))
EAGER = Limits(slack_bytes=-(1 << 30), piece_bytes=200)


@dataclass
class Reported:
    """What was reported done before the power went."""

    term: int = 0
    commits: dict[int, int] = field(default_factory=dict)
    extra: int = 0
    unit: int = 0


def save(run: RunFolder, reported: Reported, commit: int, ids: list[int], unit: bool = False) -> Segment:
    blocks = TABLE.empty(np.array(ids))
    blocks.value[...] = 127 * commit  # exact in int8 with a scale
    names = {"W": {"value": "int8"}} if commit % 2 else {}
    segment = Segment(
        reported.term,
        commit,
        commit,
        "server-0",
        commit,
        unit,
        {"W": blocks},
        names,
        {"n": commit, "a": np.full(3, commit)},
    )
    run.write_segment(segment)
    reported.commits |= dict.fromkeys(ids, commit)
    reported.extra = commit
    return segment


def full_save(run: RunFolder, reported: Reported, commit: int) -> None:
    part = save(run, reported, commit, list(range(8)), unit=True)
    run.write_unit(FullSave(reported.term, commit, commit, commit, (part.name,)))
    reported.unit = commit


def live(store: LocalStore, reported: Reported) -> None:
    """The life of a run with full saves and others, compacted at every occasion, and resumed once."""
    run = RunFolder.create(store, {"seed": 1})
    reported.term = run.claim_term("new")
    compactor = Compactor(run, reported.term, EAGER)
    save(run, reported, 1, [0, 1, 2, 3])
    save(run, reported, 2, [2, 5])
    compactor.step()
    full_save(run, reported, 3)
    full_save(run, reported, 4)
    save(run, reported, 5, [1, 2])
    save(run, reported, 6, [1])
    compactor.step()
    save(run, reported, 7, [1, 6])
    reported.term = run.claim_term("parent")
    compactor = Compactor(run, reported.term, EAGER)
    save(run, reported, 8, [1])
    while compactor.step() is not None:
        pass


def check(disk: SimulatedDisk, reported: Reported) -> None:
    """The next start finds what was reported, goes on from it, and compacts what it finds."""
    store = LocalStore("runs/a", disk, token="next")
    store.sweep()
    if not RunFolder.is_run(store):
        assert not reported.term
        return
    run = RunFolder.open(store)
    last = run.last_term()
    term = run.claim_term("new" if last is None else "parent")
    for _ in range(2):
        reader = run.reader(term)
        got = reader.read_newest(TABLE, TABLE.all_ids)
        assert got.damaged == ()
        for block in range(TABLE.n_blocks):
            commit = int(got.versions.commit[block])
            assert commit >= reported.commits.get(block, 0)
            assert got.blocks.value[block].tolist() == [127 * commit] * 3
        extra = reader.newest_extra()
        assert (extra[1]["n"] if extra else 0) >= reported.extra
        assert extra is None or extra[1]["a"].tolist() == [extra[1]["n"]] * 3
        unit = run.last_unit(term)
        assert (unit.commit if unit else 0) >= reported.unit
        if unit is not None:
            whole = run.read_unit(unit, TABLE, TABLE.all_ids)
            assert whole.blocks.value[:, 0].tolist() == [127 * unit.commit] * 8
        compactor = Compactor(run, term, EAGER)
        while compactor.step() is not None:
            pass
    assert len(store.list("segments/")) <= 4
    assert store.sweep() == 0
    # The record of an older full save may come back with the power: the next step that has something to do takes it.
    assert store.list("units/")[-1:] == ([f"units/{unit.term:08d}-{unit.commit:012d}.json"] if unit else [])


def n_operations() -> tuple[int, int]:
    """In a whole life, and before anything is compacted."""
    counted = SimulatedDisk(np.random.default_rng(0))
    live(LocalStore("runs/a", counted, token="first"), Reported())
    first = next(n for n, o in enumerate(counted.log) if "segments" in o.path and o.name == "list_folder")
    return len(counted.log), first


@pytest.mark.parametrize(("n_seeds", "every"), [(1, 41), pytest.param(2, 2, marks=pytest.mark.ci)])
@pytest.mark.parametrize("power", ["lost", "kept", "lost after the next compaction"])
def test_nothing_reported_is_lost(base_seed: int, n_seeds: int, every: int, power: str) -> None:
    whole, first = n_operations()
    assert whole > 300
    for n in range(first, whole + 1, every):
        for seed in range(n_seeds):
            disk = SimulatedDisk(np.random.default_rng([base_seed, n, seed]))
            reported = Reported()
            disk.crash_at_op(n)
            with pytest.raises(SimulatedCrash):
                live(LocalStore("runs/a", disk, token="first"), reported)
            if power == "lost":
                disk.crash()
            check(disk.process(), reported)
            if power == "lost after the next compaction":
                disk.crash()
                check(disk.process(), reported)


def two_saves(disk: SimulatedDisk, reported: Reported) -> None:
    run = RunFolder.create(LocalStore("runs/a", disk, token="first"), {"seed": 1})
    reported.term = run.claim_term("new")
    save(run, reported, 1, [0, 1])
    save(run, reported, 2, [0, 1, 2])


def killed_before_the_name_is_synced(rng: np.random.Generator) -> tuple[SimulatedDisk, Reported]:
    """A new segment has its name, which would not outlive a power loss; all that is in the older one is dead."""
    counted = SimulatedDisk(np.random.default_rng(0))
    two_saves(counted, Reported())
    syncs = [n for n, o in enumerate(counted.log, 1) if (o.name, o.path) == ("sync_folder", "runs/a/segments")]
    disk, reported = SimulatedDisk(rng), Reported()
    disk.crash_at_op(syncs[-1])
    with pytest.raises(SimulatedCrash):
        two_saves(disk, reported)
    return disk.process(), reported


def take_over_and_compact(disk: SimulatedDisk) -> None:
    run = RunFolder.open(LocalStore("runs/a", disk, token="second"))
    step = Compactor(run, run.claim_term("parent"), EAGER).step()
    assert step is not None
    assert (step.written, len(step.deleted)) == (None, 1)


@pytest.mark.parametrize("n_seeds", [5, pytest.param(200, marks=pytest.mark.ci)])
def test_what_is_listed_is_made_durable_before_anything_older_is_deleted(base_seed: int, n_seeds: int) -> None:
    counted, _ = killed_before_the_name_is_synced(np.random.default_rng(0))
    take_over_and_compact(counted)
    unlinks = [n for n, o in enumerate(counted.log, 1) if o.name == "unlink" and "server-0" in o.path]
    for seed in range(n_seeds):
        disk, reported = killed_before_the_name_is_synced(np.random.default_rng([base_seed, seed]))
        disk.crash_at_op(unlinks[-1] + 1)
        with pytest.raises(SimulatedCrash):
            take_over_and_compact(disk)
        disk.crash()
        check(disk.process(), reported)

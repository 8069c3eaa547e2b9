"""A whole run folder, with power lost at every single operation: what was reported before is there after."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from scarml.core.block import Field, Table
from scarml.errors import RunExistsError
from scarml.storage.local import LocalStore
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment import Segment
from scarml.storage.simulated_disk import SimulatedCrash, SimulatedDisk
from scarml.storage.unit import FullSave

TABLE = Table("W", 8, (Field("value", "int64", (3,)),))


@dataclass
class Reported:
    """What was reported done before the power went."""

    is_created: bool = False
    term: int = 0
    commits: dict[int, int] = field(default_factory=dict)
    """Per block the newest commit that was reported."""
    unit: int = 0
    events: int = 0


def save(
    run: RunFolder, reported: Reported, commit: int, ids: list[int], node: str = "server-0", unit: bool = False
) -> Segment:
    blocks = TABLE.empty(np.array(ids))
    blocks.value[...] = 1000 * commit + blocks.ids[:, None]  # a value that says what it is
    segment = Segment(reported.term, commit, commit, node, commit, unit, {"W": blocks})
    run.write_segment(segment)
    reported.commits |= dict.fromkeys(ids, commit)
    return segment


def live(store: LocalStore, reported: Reported) -> None:
    """The life of a run: created, a term claimed, saves, a full save, resumed, more saves."""
    run = RunFolder.create(store, {"seed": 1})
    reported.is_created = True
    reported.term = run.claim_term("new")
    save(run, reported, 1, [0, 1, 2, 3])
    save(run, reported, 2, [2, 5])
    parts = [
        save(run, reported, 3, ids, f"server-{node}", unit=True)
        for node, ids in enumerate([[0, 1, 2, 3], [4, 5, 6, 7]])
    ]
    run.write_unit(FullSave(1, 3, 3, 3, tuple(s.name for s in parts)))
    reported.unit = 3
    run.append_events(1, [{"event": "saved"}])
    reported.events = 1
    reported.term = RunFolder.open(store).claim_term("parent")
    save(run, reported, 4, [1, 6])


def check(disk: SimulatedDisk, reported: Reported) -> None:
    """The next start finds what was reported, and goes on from it."""
    store = LocalStore("runs/a", disk, token="next")
    store.sweep()
    if not RunFolder.is_run(store):
        assert not reported.is_created
        RunFolder.create(store, {"seed": 1})
    with pytest.raises(RunExistsError):
        RunFolder.create(store, {"seed": 1})
    run = RunFolder.open(store)
    assert run.description == {"seed": 1}
    last = run.last_term()
    assert (last or 0) >= reported.term
    term = run.claim_term("new" if last is None else "parent")
    assert term > reported.term
    got = run.reader(term).read_newest(TABLE, TABLE.all_ids)
    assert got.damaged == ()
    for block in range(TABLE.n_blocks):
        commit = int(got.versions.commit[block])
        assert commit >= reported.commits.get(block, 0)
        assert got.blocks.value[block].tolist() == [1000 * commit + block if commit else 0] * 3
    unit = run.last_unit(term)
    assert (unit.commit if unit else 0) >= reported.unit
    assert len(run.read_events()) >= reported.events


@pytest.mark.parametrize(("n_seeds", "every"), [(1, 3), pytest.param(50, 1, marks=pytest.mark.ci)])
def test_what_was_reported_before_a_power_loss_at_any_operation_is_there_after(
    base_seed: int, n_seeds: int, every: int
) -> None:
    counted = SimulatedDisk(np.random.default_rng(0))
    live(LocalStore("runs/a", counted, token="first"), Reported())
    n_operations = len(counted.log)
    assert n_operations > 80
    for n in {*range(1, n_operations + 2, every), n_operations + 1}:
        for seed in range(n_seeds):
            disk = SimulatedDisk(np.random.default_rng([base_seed, n, seed]))
            reported = Reported()
            disk.crash_at_op(n)
            try:
                live(LocalStore("runs/a", disk, token="first"), reported)
                assert n == n_operations + 1
            except SimulatedCrash:
                pass
            disk.crash()
            check(disk, reported)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.ci)])
def test_what_was_reported_before_a_kill_at_any_operation_is_there_after(base_seed: int, every: int) -> None:
    counted = SimulatedDisk(np.random.default_rng(0))
    live(LocalStore("runs/a", counted, token="first"), Reported())
    for n in range(1, len(counted.log) + 1, every):
        disk = SimulatedDisk(np.random.default_rng([base_seed, n]))
        reported = Reported()
        disk.crash_at_op(n)
        with pytest.raises(SimulatedCrash):
            live(LocalStore("runs/a", disk, token="first"), reported)
        check(disk.process(), reported)

"""What was read from a writer that died just before it made a name durable is durable once it is settled."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.storage.samples import WIDE, filled, segment

from scarml.storage.local import LocalStore
from scarml.storage.run_folder import RunFolder
from scarml.storage.simulated_disk import SimulatedCrash, SimulatedDisk


def found_after_power_loss(seed: int, *, settled: bool) -> bool | None:
    """Whether what a survivor had read is still there; None if there was nothing to read."""
    rng = np.random.default_rng(seed)
    disk = SimulatedDisk(rng)
    run = RunFolder.create(LocalStore("/run", disk.process(), token="driver"), {})
    term = run.claim_term("new")
    lost = disk.process()
    mine = filled(WIDE, [0, 1])
    writer = RunFolder(LocalStore("/run", lost, token="lost"), {})
    writer.write_segment(segment(filled(WIDE, [2]), term=term, commit=1))
    lost.crash_at_op(int(rng.integers(9, 13)))  # about the rename
    try:
        writer.write_segment(segment(mine, term=term, commit=2))
    except SimulatedCrash:
        lost.kill()
    survivor = RunFolder(LocalStore("/run", disk.process(), token="survivor"), {}).reader(term)
    if not survivor.read_newest(mine.table, mine.ids).found.all():
        return None
    if settled:
        survivor.settle()
    disk.crash()
    again = RunFolder(LocalStore("/run", disk.process(), token="next"), {}).reader(term)
    return bool(again.read_newest(mine.table, mine.ids).found.all())


@pytest.mark.parametrize("settled", [True, False])
def test_what_is_settled_outlives_a_power_loss(settled: bool) -> None:
    outcomes = [found_after_power_loss(seed, settled=settled) for seed in range(40)]
    assert None in outcomes
    assert True in outcomes
    assert (False in outcomes) is not settled, "without settling, a power loss may take it away"

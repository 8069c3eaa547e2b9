"""After lost blocks have been restored they are mended: phase by phase, and again if another node is lost."""

from __future__ import annotations

import pytest
from tests.unit.control.driver import N_EXAMPLES, Driver, make_layout

from scarml.checkpoint.selection import Checkpoint
from scarml.control import messages as m
from scarml.control.stop import Stop
from scarml.control.transitions import State
from scarml.core.model import Context

REPAIR = Checkpoint("priority", "1/4", 4, "repair")


def driver(kind: str = "server", checkpoint: Checkpoint = REPAIR, n_repair_phases: int = 2) -> Driver:
    d = Driver(
        make_layout(kind),
        n_phases=2,
        n_repair_phases=n_repair_phases,
        checkpoint=checkpoint,
        stop=Stop(max_iters=6, eval_every_iters=2),
    )
    d.start()
    return d


def in_phase(d: Driver, iteration: int, phase: int) -> Driver:
    """Bring it to where this phase is computed, with nothing prepared."""
    return d.run(
        lambda d: d.state is State.COMPUTING and d.controller.computing == Context(0, iteration, phase),
    )


def to_end(d: Driver) -> list[str]:
    """Run it to its end; the order of what was said of recoveries and repairs, and of iterations."""
    d.run()
    assert d.finish is not None
    assert (d.finish.outcome, d.finish.saved) == ("max-iters", True)
    told = ("recovery_completed", "repair_started", "repair_completed", "repair_declined", "iteration_committed")
    return [r["name"] for r in d.records if r["name"] in told]


def phases_mended(d: Driver) -> list[tuple[int, int, int, dict[str, list[int]]]]:
    """Iteration, phase and step of each phase of a repair, and the blocks; every worker gets the same."""
    seen: dict[tuple[int, Context], dict[str, list[int]]] = {}
    for view, _, ctx, lost in d.repairs:
        assert seen.setdefault((view, ctx), lost) == lost
    return [(ctx.iteration, ctx.phase, ctx.repair, lost) for (_, ctx), lost in seen.items()]


def test_lost_blocks_are_mended_by_the_last_phases_before_training_goes_on() -> None:
    d = in_phase(driver(), 4, 0)
    commit = d.clock.commit
    d.lose("server-1")
    d.run(lambda d: d.state is State.COMPUTING)
    assert d.controller.computing == Context(0, 3, 0, repair=1)
    d.run(lambda d: d.controller.computing == Context(0, 4, 0))
    assert d.clock.commit == commit + 2, "each phase of a repair is a commit, and so a version"
    assert d.clock.iteration == 3
    lost = {"w": [2, 3]}
    assert phases_mended(d) == [(3, 0, 1, lost), (3, 1, 2, lost)]
    (completed,) = d.said("repair_completed")
    assert (completed["n_blocks"], completed["iteration"], completed["perturbation"]) == (2, 3, None)
    assert completed["work_iters"] == 2 * N_EXAMPLES / (2 * N_EXAMPLES)
    assert d.said("recovery_completed")[-1]["kind"] == "repair"
    assert to_end(d).count("iteration_committed") == 6


def test_between_the_phases_of_an_iteration_the_same_phases_come_in_another_order() -> None:
    d = in_phase(driver(), 4, 1)
    d.lose("server-1")
    to_end(d)
    assert [(i, p, step) for i, p, step, _ in phases_mended(d)] == [(3, 1, 1), (4, 0, 2)]


def test_derived_tables_are_rebuilt_before_and_workers_blocks_are_mended_too() -> None:
    d = in_phase(driver("worker"), 3, 0)
    d.lose("worker-1")
    d.run(lambda d: d.state is State.COMPUTING)
    assert d.controller.computing is not None
    assert d.controller.computing.phase == m.REBUILD
    to_end(d)
    assert [lost for *_, lost in phases_mended(d)] == [{"docs": [2, 3, 6, 7]}] * 2


@pytest.mark.parametrize("after", [1, 2])
@pytest.mark.parametrize("victim", ["server-0", "worker-0"])
def test_a_loss_during_a_repair_starts_it_again_for_all_that_was_lost(after: int, victim: str) -> None:
    """While its first phase is computed, or its second."""
    d = in_phase(driver(), 3, 0)
    d.lose("server-1")
    d.run(lambda d: d.controller.computing == Context(0, 2, after - 1, repair=after) and d.state is State.COMPUTING)
    d.lose(victim)
    names = to_end(d)
    first, both = {"w": [2, 3]}, {"w": [0, 1, 2, 3, 6, 7] if victim == "server-0" else [2, 3]}
    steps = [(step, lost) for *_, step, lost in phases_mended(d)]
    assert steps == [*[(step, first) for step in range(1, after + 1)], (1, both), (2, both)]
    assert names.count("repair_started") == 2
    assert names.count("repair_completed") == 1
    (completed,) = d.said("repair_completed")
    assert completed["n_blocks"] == len(both["w"])
    assert completed["work_iters"] == (after + 1) / 2, "what had been committed was work, too"


def test_a_loss_during_the_commit_of_a_repair_counts_the_commit() -> None:
    d = in_phase(driver(), 3, 0)
    d.lose("server-1")
    d.run(lambda d: d.controller.computing == Context(0, 2, 1, repair=2) and d.state is State.COMMITTING)
    d.lose("server-0")
    to_end(d)
    assert [c["n_blocks"] for c in d.said("repair_completed")] == [2, 4], "the first one had been decided"


def test_a_hand_over_during_a_repair_does_not_start_it_again() -> None:
    d = in_phase(driver(), 3, 0)
    d.lose("server-1")
    d.run(lambda d: d.controller.computing == Context(0, 2, 0, repair=1) and d.state is State.COMPUTING)
    d.feed(m.DrainRequested("server-0", "asked to"))
    names = to_end(d)
    assert d.said("handover_completed")
    assert [step for *_, step, _ in phases_mended(d)] == [1, 2]
    assert names.count("repair_completed") == 1


def test_what_falls_due_at_the_boundary_is_saved_after_the_repair() -> None:
    d = driver()
    d.run(lambda d: d.state is State.COMMITTING and d.controller.computing == Context(0, 3, 1))
    d.lose("server-1")
    n_before = len(d.said("save_started"))
    d.run(lambda d: bool(d.said("repair_started")))
    assert len(d.said("save_started")) == n_before
    d.run(lambda d: bool(d.said("repair_completed")))
    assert d.controller.saves.version_in_flight is not None
    assert d.controller.saves.version_in_flight.commit == d.clock.commit
    assert d.said("save_started")[-1]["iteration"] == 3


def test_without_lost_blocks_there_is_nothing_to_mend() -> None:
    d = in_phase(driver("server"), 3, 0)
    d.lose("worker-1")
    assert "repair_started" not in to_end(d)
    assert d.said("recovery_completed")[-1]["kind"] == "repair"


@pytest.mark.parametrize(("kind", "n_repair_phases"), [("partial", 2), ("repair", 0)])
def test_nothing_is_mended_if_it_is_not_asked_for_or_the_model_declines(kind: str, n_repair_phases: int) -> None:
    d = in_phase(driver(checkpoint=Checkpoint("priority", "1/4", 4, kind), n_repair_phases=n_repair_phases), 3, 0)  # type: ignore[arg-type]
    d.lose("server-1")
    names = to_end(d)
    assert phases_mended(d) == []
    assert d.said("recovery_completed")[-1]["kind"] == "partial"
    assert names.count("repair_declined") == (kind == "repair")


def test_a_start_mends_nothing() -> None:
    d = driver()
    d.run(lambda d: d.state is State.COMPUTING)
    assert d.controller.computing == Context(0, 1, 0)
    assert d.repairs == []

"""Going back: giving up what a run did after its last full save, for good.

A new term starts from exactly that full save. What was saved after it belongs to older terms and is not in the new
one's base, so it cannot come back, whatever is saved at the same iterations later, and whoever still writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from scarml.checkpoint.version_index import Version
from scarml.errors import UsageError
from scarml.storage.ownership import Timing
from scarml.storage.row_check import check_rows
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment_header import read_header
from scarml.storage.segment_rows import read_stored_index
from scarml.storage.unit import FullSave

__all__ = ["Rollback", "roll_back"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rollback:
    """What going back means.

    Args:
        newest: the newest version that counts now.
        unit: the full save to go back to.
        term: the new term; None if the run was left as it is.
    """

    newest: Version
    unit: FullSave
    term: int | None = None

    @property
    def changes_nothing(self) -> bool:
        """Whether there is nothing to give up: the full save is the newest that there is."""
        return (self.newest.term, self.newest.commit) == (self.unit.term, self.unit.commit)


def roll_back(run: RunFolder, confirm: Callable[[Rollback], bool], timing: Timing | None = None) -> Rollback:
    """Let a run start again from its last complete full save.

    Args:
        run: which nobody may own.
        confirm: is asked before anything is changed.
        timing: of the lease.

    Returns:
        What was done; without a term if it was not confirmed, or changes nothing.

    Raises:
        RunInUseError: a process owns the run.
        UsageError: there is no complete full save to go back to.
    """
    with run.owned(timing=timing):
        plan = _plan(run)
        if plan.changes_nothing or not confirm(plan):
            return plan
        term = run.claim_term(plan.unit)
        event = {"event": "rolled_back", "t_s": 0.0, "from_iteration": plan.newest.iteration}
        run.append_events(term, [{**event, "iteration": plan.unit.iteration}])
        return Rollback(plan.newest, plan.unit, term)


def _plan(run: RunFolder) -> Rollback:
    last = run.last_term()
    newest = run.newest_commit(last) if last is not None else None
    if last is None or newest is None:
        raise UsageError("nothing was saved in this run yet: there is nothing to go back from, or to")
    unit = next((u for u in run.units(last) if _is_undamaged(run, u)), None)
    if unit is None:
        raise UsageError(
            "there is no complete full save in this run to go back to; only a run with --policy full makes any. "
            f"The running checkpoint, up to iteration {newest.iteration}, is left as it is"
        )
    return Rollback(newest, unit)


def _is_undamaged(run: RunFolder, unit: FullSave) -> bool:
    """Whether every block of a full save is what was written: after going back there is no newer copy to use."""
    for name in unit.segments:
        header = read_header(run.store, name)
        for table, stored in header.tables.items():
            index = read_stored_index(run.store, header, stored)
            for part in check_rows(run.store, header, stored, index):
                if part.rows.is_bad.any():
                    blocks = index.ids[part.positions[part.rows.is_bad]][:5].tolist()
                    _log.warning(
                        "the full save of iteration %d is passed over: blocks %s … of table %r are damaged in %s",
                        unit.iteration, blocks, table, name,
                    )  # fmt: skip
                    return False
    return True

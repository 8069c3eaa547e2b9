"""`RunningCheckpoint`: a few lines in a training loop, and it survives the death of its process."""

from __future__ import annotations

import operator
import os
import time
import warnings
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any

from numpy.typing import ArrayLike

from scarml.checkpoint.budget import BudgetUnit
from scarml.checkpoint.encoding import Encodings
from scarml.checkpoint.policy import Full, RankBy
from scarml.checkpoint.selection import Checkpoint
from scarml.control.history import Record
from scarml.core.block import Array, Ids
from scarml.errors import StoppedError, StoreError, UsageError
from scarml.running_checkpoint.extra import fill_in, pack
from scarml.running_checkpoint.opening import store_at
from scarml.running_checkpoint.reports import CheckpointStatus, RecoverReport, RestoreReport, SaveReport
from scarml.running_checkpoint.session import Session, restore_report
from scarml.running_checkpoint.settings import OnError, Scoring, Settings
from scarml.running_checkpoint.state import State
from scarml.running_checkpoint.stop_signals import StopWish
from scarml.running_checkpoint.tables import Ragged, Rows, blocks_over, check_ids, check_names
from scarml.storage.run_start import Resume
from scarml.storage.store import Store

__all__ = ["RunningCheckpoint"]


class RunningCheckpoint:
    """Keeps a training loop's arrays on a store: the blocks that changed most, a few at each save.

    A save copies the chosen blocks, which is all that the loop waits for, and stores them in the background. After a
    crash the same program goes on: `restore` fills the arrays with the newest stored value of each block.

    Args:
        url: the run's folder: a path, or a URL as for ``scarml train --run``; or a store.
        tables: by name, `scarml.rows` or `scarml.ragged` over arrays that stay the same objects. An array alone means
            its rows.
        policy: as in `scarml.Checkpoint`: ``priority``, ``round``, ``random``, ``mfu``, ``ssu``, ``full``, or
            ``module:Class``.
        fraction: r, the part of the blocks that one save writes; 1/8 by default, 1 with policy ``full``.
        interval: C, iterations in which the whole state's worth is written: a save falls due every r·C iterations.
        resume: ``never`` refuses a folder that has a run in it, ``must`` needs one, ``auto`` starts or goes on.
        scoring: ``exact``: `save` measures how far blocks have moved. ``background``: a thread does between saves,
            while arrays change; `save` takes what it has found, and only copies.
        on_error: when the store fails, training goes on with a warning (``warn``), or the next `save` raises once the
            attempts are used up (``raise``).
        handle_signals: at SIGINT or SIGTERM the next `save` saves everything and raises `StoppedError`. Only in the
            main thread.
        budget_in, rank_by: as in `scarml.Checkpoint`.
        encodings: a narrower form to store values in: a name, as for `scarml.Checkpoint`, or per table and field, as
            ``{"W": {"value": "bfloat16"}}``.
        seed: of the choices of policies ``random`` and ``ssu``.
        on_event: gets every `Record` of the run's history, in any thread; it must be quick.
        storage_options: for ``s3://``.

    Raises:
        UsageError: one sentence for what is wrong with the arguments.

    Example:
        >>> import numpy as np, scarml as scar
        >>> W, v = np.zeros((784, 10), np.float32), np.zeros((784, 10), np.float32)
        >>> with scar.RunningCheckpoint("memory://example", {"W": scar.rows(W, v=v)}, resume="auto") as ckpt:
        ...     for k in range(ckpt.restore() + 1, 21):
        ...         W += 1                       # one iteration of training
        ...         report = ckpt.save(k)
        >>> scar.load("memory://example")["W"]["value"][0, 0]
        np.float32(20.0)
    """

    def __init__(  # noqa: PLR0913 - keyword-only settings, each with a default
        self,
        url: str | os.PathLike[str] | Store,
        tables: Mapping[str, Rows | Ragged | Array],
        *,
        policy: str = "priority",
        fraction: float | str | None = None,
        interval: int = 8,
        resume: Resume = "never",
        scoring: Scoring = "exact",
        on_error: OnError = "warn",
        handle_signals: bool = True,
        budget_in: BudgetUnit = "blocks",
        rank_by: RankBy = "distance",
        encodings: str | Encodings = "plain",
        seed: int = 0,
        on_event: Callable[[Record], None] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(tables, Mapping):
            raise UsageError(f'tables is {type(tables).__name__}; expected a dict of them by name, such as {{"W": W}}')
        if not tables:
            raise UsageError("there are no tables to save; give at least one array")
        if fraction is None:
            fraction = 1 if policy == Full.name else "1/8"
        checkpoint = Checkpoint(policy, fraction, interval, budget_in=budget_in, rank_by=rank_by, encode=encodings)
        self._store = store_at(url, storage_options)
        self._where = str(url) if isinstance(url, str | os.PathLike) else repr(url)
        self._blocks = {name: blocks_over(name, given) for name, given in tables.items()}
        narrower = checkpoint.encodings([b.table for b in self._blocks.values()])
        self._settings = Settings(checkpoint, resume, scoring, on_error, narrower, seed, on_event)
        self._state = State(self._blocks, self._settings.encodings)
        self._stop = StopWish() if handle_signals else None
        self._stack = ExitStack()
        self._session: Session | None = None
        self._is_open = self._is_restored = self._has_saved = False
        self._iteration = 0
        self._extra: Mapping[str, Any] | None = None
        self._stall_s = 0.0
        self.last_restore: RestoreReport | None = None
        """What the last `restore` found."""

    # ----------------------------------------------------------------------------------------------- beginning and end
    def __enter__(self) -> RunningCheckpoint:
        """Open the folder, or make it.

        Raises:
            RunExistsError, RunInUseError, UsageError: it cannot be used so.
            StoreError: it cannot be read or written.
        """
        if self._session is not None:
            raise UsageError("a RunningCheckpoint can be entered once; make another one")
        with ExitStack() as stack:
            opened = Session.opened(self._store, self._where, self._state, self._settings)
            self._session = stack.enter_context(opened)
            if self._stop is not None:
                stack.enter_context(self._stop.listening())
            self._stack = stack.pop_all()
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Save all that has changed, unless an exception ends the block; then wait for what is in flight."""
        session, cause = self._opened(), None
        with self._stack:
            self._is_open = False
            if kind is None and self._has_saved:
                cause = session.save_everything(self._iteration, self._packed(self._extra))
            session.end(self._iteration, error, is_saved=kind is None and cause is None)
        if cause is not None:
            self._complain(f"the last values could not be saved: {cause}", is_final=True)
        for text, is_final in session.history.untold() if kind is None and cause is None else ():
            self._complain(text, is_final)

    def restore(self, extra: MutableMapping[str, Any] | None = None) -> int:
        """Fill the arrays with what is stored; in a new run, save what they hold as x(0), durable when this returns.

        May be called again later, to go back to what is stored.

        Args:
            extra: the user's own state, which is filled in with what the newest save had of it, or saved with x(0).

        Returns:
            The iteration to go on from: 0 in a new run. `last_restore` tells more.

        Raises:
            StoreError: the store cannot be read, or x(0) cannot be saved.
            SupersededError: another process has taken the run over.
        """
        start_s = time.perf_counter()
        found = self._opened().restore(self._packed(extra))
        if found is not None and found.extra is not None and extra is not None:
            fill_in(extra, found.extra)
        self._iteration = found.iteration if found is not None else 0
        self._is_restored, self._has_saved, self._extra = True, False, None
        self.last_restore = restore_report(found, self._where, time.perf_counter() - start_s)
        return self._iteration

    # ----------------------------------------------------------------------------------------------- saving, recovering
    def save(
        self,
        iteration: int,
        touched: Mapping[str, ArrayLike] | None = None,
        extra: Mapping[str, Any] | None = None,
        *,
        used: Mapping[str, ArrayLike] | None = None,
        everything: bool = False,
    ) -> SaveReport:
        """x(``iteration``) is complete: save some of it if that is due. Call it after every iteration, or every few.

        When it returns, the arrays may change: what is to be stored has been copied.

        Args:
            iteration: iterations done so far. A lower one than before is an error, unless `restore` came between; at
                the same one nothing falls due again, but ``everything`` adds blocks.
            touched: per table the ids, or flags, of the blocks that may have changed since the last call: only these
                are measured, so that a huge table with few changed rows costs little. A table that is not named may
                have changed everywhere; so may all, if this is None.
            extra: state of any kind to be saved, whole, with the blocks: what JSON has, and arrays.
            used: per table the ids, or flags, of the blocks that were used since the last call, for policies that go by
                uses: ``mfu`` and ``ssu`` need it, unless everything is saved; others do not look at it. Rows of an
                embedding table that a batch has looked up, for instance. An id that is there twice was used twice; a
                table that is not named was used everywhere, once.
            everything: save all that has changed, outside the budget, and wait until it is durable.

        Returns:
            What was done.

        Raises:
            ModelError: integers beyond what their encoding has bits for.
            StoppedError: a signal came; everything has been saved.
            StoreError: with ``on_error="raise"``, or ``everything``: it could not be saved.
            SupersededError: another process has taken the run over; what this one saves no longer counts.
        """
        start_s = time.perf_counter()
        session, ids = self._may_save(iteration, touched)
        uses = self._uses(session, used, everything)
        after, self._iteration, self._extra, self._has_saved = self._iteration, iteration, extra, True
        signal_name = self._stop.signal_name if self._stop is not None else None
        with session.quiet():
            self._state.touch(ids)
            if uses is not None:
                self._state.use(uses)
            if everything or signal_name is not None:
                report = self._save_everything(session, signal_name)
            else:
                report = self._save_due(session, after)
        session.measure_soon()
        report = replace(report, stall_s=time.perf_counter() - start_s)
        self._stall_s += report.stall_s
        for text, is_final in session.history.untold():
            self._complain(text, is_final)
        return report

    def wait(self) -> None:
        """Wait until the save in flight, if there is one, is durable or has been given up.

        Raises:
            SupersededError: another process has taken the run over.
        """
        self._opened().wait_until_settled()

    def wait_for_scores(self) -> None:
        """With ``scoring="background"``: wait until all that was touched before the last `save` has been measured."""
        self._opened().wait_for_scores()

    def recover(self, lost: Mapping[str, ArrayLike]) -> RecoverReport:
        """Fill in only these blocks with their durable values; all others keep what they have, to the bit.

        Waits for the save in flight. May also be called after the ``with`` block.

        Args:
            lost: per table the ids, or flags, of the blocks.

        Raises:
            UsageError: a table or an id is unknown, or given twice; nothing was done.
            RecoveryError: the store has nothing of some of them; nothing was done.
            StoreError: the store cannot be read; nothing was done.
        """
        start_s = time.perf_counter()
        if self._session is None or not self._is_restored:
            raise UsageError("recover() fills in what was lost since restore(); call restore() first")
        check_names(self._blocks, lost, "lost")
        ids = {name: check_ids(self._blocks[name].table, given, unique=True) for name, given in lost.items()}
        taken, perturbation = self._session.recover(ids, self._iteration)
        oldest, newest = taken.span
        return RecoverReport(
            taken.restored, oldest, newest, perturbation, tuple(taken.damaged), time.perf_counter() - start_s
        )

    def status(self) -> CheckpointStatus:
        """How the running checkpoint stands. May be called in any thread."""
        if self._session is None or not self._is_restored:
            raise UsageError("there is no status before restore(); call restore() first")
        return self._session.status(self._iteration, self._stall_s)

    # -------------------------------------------------------------------------------------------------------- its parts
    def _save_due(self, session: Session, after: int) -> SaveReport:
        if not session.is_due(self._iteration, after):
            return SaveReport(self._iteration, "not-due")
        begun = session.save_due(self._iteration, after, self._packed(self._extra))
        if begun.is_skipped:
            return SaveReport(self._iteration, "skipped")
        outcome = "staged" if begun.n_blocks else "nothing-changed"
        return SaveReport(self._iteration, outcome, begun.chosen, begun.n_blocks, begun.size_bytes)

    def _save_everything(self, session: Session, signal_name: str | None) -> SaveReport:
        cause = session.save_everything(self._iteration, self._packed(self._extra))
        if cause is not None:
            session.history.untold()  # it is told here
            why = f"{signal_name} came, but the" if signal_name else "the"
            raise StoreError(
                f"{why} state at iteration {self._iteration} could not be saved whole: {cause}. The run can be resumed "
                f"from iteration {session.history.durable_iteration}"
            )
        if signal_name is not None:
            raise StoppedError(
                f"stopped by {signal_name} with everything saved at iteration {self._iteration}; the same program goes "
                'on from there, with resume="auto"'
            )
        begun = session.last_begun
        return SaveReport(self._iteration, "durable", begun.chosen, begun.n_blocks, begun.size_bytes)

    def _may_save(
        self, iteration: int, touched: Mapping[str, ArrayLike] | None
    ) -> tuple[Session, dict[str, Ids] | None]:
        session = self._opened()
        session.raise_if_over()
        if not self._is_restored:
            raise UsageError(
                "save() came before restore(); call restore() first: it fills the arrays when the run is resumed, and "
                "saves x(0) when it is new"
            )
        if operator.index(iteration) < self._iteration:
            raise UsageError(
                f"save({iteration}) came after iteration {self._iteration}; iterations only grow. To go back, call "
                "restore(), which also says where to go on from"
            )
        if touched is None:
            return session, None
        check_names(self._blocks, touched, "touched")
        return session, {n: check_ids(self._blocks[n].table, ids, unique=False) for n, ids in touched.items()}

    def _uses(self, session: Session, used: Mapping[str, ArrayLike] | None, everything: bool) -> dict[str, Ids] | None:
        if used is None:
            if session.needs_uses and not everything:
                policy = self._settings.checkpoint.policy
                raise UsageError(
                    f"policy {policy} goes by how often blocks are used, and save() was not told; give it "
                    "used={table: ids}, the blocks that were used since the last call"
                )
            return None
        check_names(self._blocks, used, "used")
        if not session.needs_uses:
            return None
        return {n: check_ids(self._blocks[n].table, ids, unique=False) for n, ids in used.items()}

    def _opened(self) -> Session:
        if self._session is None or not self._is_open:
            raise UsageError("the run's folder is not open; use the RunningCheckpoint in a with statement")
        return self._session

    def _packed(self, extra: Mapping[str, Any] | None) -> dict[str, Any] | None:
        return None if extra is None else pack(extra)

    def _complain(self, text: str, is_final: bool) -> None:
        if self._settings.on_error == "raise":
            if is_final:
                raise StoreError(text)
            return
        status = self.status()
        warnings.warn(
            f"{text} (what is stored is of iteration {status.durable_iteration}, at the oldest {status.oldest_age} "
            f"iterations behind x({self._iteration}); training goes on)",
            RuntimeWarning,
            stacklevel=3,
        )

"""The fault-tolerance controller: events in, actions out, no I/O, no clock.

One training phase runs at a time, and phases are atomic. A phase is *prepared* at a server when it holds every shard's
update; the controller decides its commit when all nodes are prepared. A node lost before the decision: undecided
updates are dropped and the phase is computed again on a new view. A node lost after it: the survivors finish the commit
first. So every update counts exactly once, and what a loss perturbs is exactly (restored − lost) at a commit.

`TRANSITIONS` is the whole of what may follow what; the diagram in ``docs/protocol.md`` is drawn from it. A move that is
not in it raises `ProtocolError` with the last events as its story, and changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from scarml.checkpoint.selection import Checkpoint, SaveSelector
from scarml.checkpoint.version_index import Version
from scarml.control import messages as m
from scarml.control.checkpoint_coordinator import CheckpointCoordinator, SaveStep
from scarml.control.history import Record
from scarml.control.recovery_coordinator import RecoveryCoordinator
from scarml.control.training_clock import TrainingClock
from scarml.control.view import Layout, NodeId, View
from scarml.core.model import Context
from scarml.errors import ProtocolError, UsageError

__all__ = ["TRANSITIONS", "Controller", "State", "Stop"]

LOAD_ATTEMPTS = 12
FIRST_RETRY_S = 0.2
LONGEST_RETRY_S = 10.0
STORY_LENGTH = 60


class State(Enum):
    """What the controller is waiting for."""

    NEW = "the engine to start"
    INSTALLING = "nodes to install the view and to load what they lack"
    COMPUTING = "every node to be prepared"
    HOLDING = "a save to be staged, before the prepared phase is committed"
    COMMITTING = "every node to commit"
    EVALUATING = "the loss"
    DRAINING = "the save in flight, before everything is taken back"
    CLAIMING = "a new term, before everything is taken back"
    SAVING = "everything changed to be saved, before the end"
    FINISHED = "nothing"


_S = State
TRANSITIONS: dict[tuple[State, str], State] = {
    (_S.NEW, "start"): _S.INSTALLING,
    (_S.INSTALLING, "next phase"): _S.COMPUTING,
    (_S.INSTALLING, "evaluate"): _S.EVALUATING,
    (_S.INSTALLING, "end"): _S.SAVING,
    (_S.COMPUTING, "prepared, save not staged"): _S.HOLDING,
    (_S.COMPUTING, "decide"): _S.COMMITTING,
    (_S.HOLDING, "decide"): _S.COMMITTING,
    (_S.COMMITTING, "next phase"): _S.COMPUTING,
    (_S.COMMITTING, "evaluate"): _S.EVALUATING,
    (_S.COMMITTING, "end"): _S.SAVING,
    (_S.EVALUATING, "next phase"): _S.COMPUTING,
    (_S.EVALUATING, "end"): _S.SAVING,
    **{
        (state, trigger): target
        for state in (_S.INSTALLING, _S.COMPUTING, _S.HOLDING, _S.COMMITTING, _S.EVALUATING, _S.SAVING)
        for trigger, target in (
            ("recover what was lost", _S.INSTALLING),
            ("recover all, save in flight", _S.DRAINING),
            ("recover all", _S.CLAIMING),
        )
    },
    (_S.DRAINING, "recover all"): _S.CLAIMING,
    (_S.CLAIMING, "term claimed"): _S.INSTALLING,
    **{(state, "finish"): _S.FINISHED for state in _S if state is not _S.FINISHED},
}
"""(state, trigger) → state."""


@dataclass(frozen=True, slots=True)
class Stop:
    """When training is done.

    Args:
        loss_sum_below: converged when the summed loss is below it; None: no criterion.
        max_iters: stop at x(max_iters) at the latest; None: no limit.
        eval_every_iters: how often the loss is evaluated.

    Raises:
        UsageError: if a number of iterations is not one.
    """

    loss_sum_below: float | None = None
    max_iters: int | None = None
    eval_every_iters: int = 1

    def __post_init__(self) -> None:
        if self.eval_every_iters < 1:
            raise UsageError(f"--eval-every is {self.eval_every_iters}; expected at least 1 iteration")
        if self.max_iters is not None and self.max_iters < 0:
            raise UsageError(f"--max-iters is {self.max_iters}; expected 0 or more")


class Controller:
    """Decides everything that happens in a run.

    Args:
        layout: tables, partitions and shards.
        servers, workers: the nodes at the start.
        n_phases: of the model.
        seed: of the run.
        checkpoint: what to save and how to recover.
        stop: when training is done.
    """

    def __init__(  # noqa: PLR0913 - all keyword-only but what there is to own and by whom
        self,
        layout: Layout,
        servers: Sequence[NodeId],
        workers: Sequence[NodeId],
        *,
        n_phases: int,
        seed: int,
        checkpoint: Checkpoint,
        stop: Stop,
    ) -> None:
        self._layout = layout
        self._checkpoint = checkpoint
        self._stop = stop
        self._seed = seed
        self.state = State.NEW
        self.term = 0
        self.clock = TrainingClock(n_phases, seed)
        self.recovery = RecoveryCoordinator(layout, servers, workers)
        selector = SaveSelector(checkpoint, layout.saved_tables, seed)
        self.saves = CheckpointCoordinator(selector, layout, self.recovery, self._new_token)
        self._next_token = 1
        self._waiting: set[NodeId] = set()
        self._lost: set[NodeId] = set()
        self._lost_blocks = 0
        self.computing: Context | None = None
        self._needs_rebuild = layout.has_derived
        self._loss_parts: dict[int, float] = {}
        self._loss_known = False
        self._loss_sum = 0.0
        self._boundary_is_new = False
        self._verdict: tuple[m.Outcome, str] | None = None
        self._stop_reason: str | None = None
        self._installs: dict[NodeId, m.InstallView] = {}
        self._installed: list[m.ViewInstalled] = []
        self._load_attempts: dict[NodeId, int] = {}
        self._load_retries: dict[int, NodeId] = {}
        self._claim_attempts = 0
        self._claim_retry: int | None = None
        self._story: deque[str] = deque(maxlen=STORY_LENGTH)
        self._handlers: dict[type, Callable[[Any], list[m.Action]]] = {
            m.Start: self._on_start,
            m.ViewInstalled: self._on_view_installed,
            m.LoadFailed: self._on_load_failed,
            m.Prepared: self._on_prepared,
            m.Committed: self._on_committed,
            m.LossComputed: self._on_loss,
            m.DistancesMeasured: lambda e: self._after_save_event(self.saves.on_distances(e)),
            m.BlocksStaged: lambda e: self._after_save_event(self.saves.on_staged(e)),
            m.SaveCommitted: lambda e: self._after_save_event(self.saves.on_committed(e)),
            m.SaveFailed: lambda e: self._after_save_event(self.saves.on_failed(e)),
            m.UnitCommitted: lambda e: self._after_save_event(self.saves.on_unit(e.save_id)),
            m.UnitFailed: lambda e: self._after_save_event(self.saves.on_unit_failed(e.save_id, e.cause)),
            m.TermClaimed: self._on_term_claimed,
            m.TermFailed: self._on_term_failed,
            m.NodeLost: self._on_node_lost,
            m.TimerFired: self._on_timer,
            m.StopRequested: self._on_stop_requested,
            m.Superseded: lambda e: self._finish("superseded", e.cause, saved=False),
        }

    @property
    def view(self) -> View:
        """The present membership."""
        return self.recovery.view

    def handle(self, event: m.Event) -> list[m.Action]:
        """What follows from an event: the one way in.

        Raises:
            ProtocolError: if the event is impossible now; nothing has changed then.
        """
        if self.state is State.FINISHED:
            return []
        self._story.append(f"{self.state.name}: {_brief(event)}")
        return self._handlers[type(event)](event)

    # ------------------------------------------------------------------------------------------------- views and loads
    def _on_start(self, e: m.Start) -> list[m.Action]:
        self._check("start")
        if self._lost:
            self.recovery.lose(sorted(self._lost))
            self._lost.clear()
        self.term = e.term
        self.saves.last_unit = e.unit
        self.clock.start(e.commit, e.iteration, e.executed)
        return [
            _report(
                "run_started",
                term=e.term,
                iteration=e.iteration,
                executed=e.executed,
                servers=list(self.view.servers),
                workers=list(self.view.workers),
            ),
            *self._install("start"),
        ]

    def _install(self, trigger: str) -> list[m.Action]:
        self._go(trigger)
        loads = self.recovery.loads()
        self._waiting = set(self.view.nodes)
        self._installed, self._load_attempts, self._load_retries = [], {}, {}
        self._installs = {
            node: m.InstallView(self.view, self.term, self.clock.commit, loads[node]) for node in self.view.nodes
        }
        return [m.Send(node, order) for node, order in self._installs.items()]

    def _on_view_installed(self, e: m.ViewInstalled) -> list[m.Action]:
        if self.state is not State.INSTALLING or e.view != self.view.number or e.node not in self._waiting:
            return []
        self._waiting.remove(e.node)
        self.recovery.settle(e.node)
        self._installed.append(e)
        actions: list[m.Action] = [_report("copy_damaged", node=e.node, detail=text) for text in e.damaged]
        if self._waiting:
            return actions
        spans = [i for e in self._installed for i in (e.oldest, e.newest) if i is not None]
        actions.append(
            _report(
                "recovery_completed",
                view=self.view.number,
                kind="start" if self.view.number == 1 else self._checkpoint.recovery,
                lost_blocks=self._lost_blocks,
                restored=sum(e.restored for e in self._installed),
                from_x0=sum(e.from_x0 for e in self._installed),
                oldest=min(spans, default=None),
                newest=max(spans, default=None),
                iteration=self.clock.iteration,
            )
        )
        self._lost_blocks = 0
        self._needs_rebuild = self._layout.has_derived
        return actions + self._proceed()

    def _on_load_failed(self, e: m.LoadFailed) -> list[m.Action]:
        if self.state is not State.INSTALLING or e.view != self.view.number or e.node not in self._waiting:
            return []
        n = self._load_attempts[e.node] = self._load_attempts.get(e.node, 0) + 1
        if n >= LOAD_ATTEMPTS:
            return self._finish("store-down", f"{e.node} could not load lost blocks: {e.cause}", saved=False)
        token = self._new_token()
        self._load_retries[token] = e.node
        return _wait_for_store(e.node, e.cause, n, token)

    def _on_timer(self, e: m.TimerFired) -> list[m.Action]:
        if e.token == self._claim_retry:
            self._claim_retry = None
            return [m.ClaimTerm(self.saves.last_unit)]
        node = self._load_retries.pop(e.token, None)
        if node is not None and self.state is State.INSTALLING and node in self._waiting:
            return [m.Send(node, self._installs[node])]
        return self.saves.on_timer(e.token)

    # ---------------------------------------------------------------------------------------------------- the training
    def _proceed(self) -> list[m.Action]:
        """At a commit, with nothing under way: what next?"""
        if self._lost:
            return self._recover()
        actions: list[m.Action] = []
        if self._boundary_is_new:
            self._boundary_is_new = False
            actions = self.saves.boundary(self._version())
        if self._needs_rebuild:
            return actions + self._compute(Context(self._seed, self.clock.iteration, m.REBUILD))
        if self.clock.at_boundary:
            if not self._loss_known and self._loss_is_due():
                return actions + self._evaluate()
            self._verdict = self._verdict_now()
            if self._verdict is not None:
                self._go("end")
                self.saves.final_is_whole = None
                return actions + self._try_to_end()
        return actions + self._compute(self.clock.context())

    def _compute(self, ctx: Context) -> list[m.Action]:
        self._go("next phase")
        self.computing = ctx
        self._waiting = set(self.view.nodes)
        order = m.ComputePhase(self.view.number, self.clock.commit + 1, ctx)
        return [m.Send(worker, order) for worker in self.view.workers]

    def _on_prepared(self, e: m.Prepared) -> list[m.Action]:
        if e.view != self.view.number or self.state is not State.COMPUTING or e.commit != self.clock.commit + 1:
            return []
        self._waiting.discard(e.node)
        if self._waiting:
            return []
        if self.saves.holds_commit:
            self._go("prepared, save not staged")
            return [_report("commit_held", commit=self.clock.commit + 1)]
        return self._decide()

    def _decide(self) -> list[m.Action]:
        assert self.computing is not None
        self._go("decide")
        self._waiting = set(self.view.nodes)
        order = m.CommitPhase(self.view.number, self.clock.commit + 1, self.computing)
        return [m.Send(node, order) for node in self.view.nodes]

    def _on_committed(self, e: m.Committed) -> list[m.Action]:
        if e.view != self.view.number or self.state is not State.COMMITTING or e.commit != self.clock.commit + 1:
            return []
        self._waiting.discard(e.node)
        return [] if self._waiting else self._all_committed()

    def _all_committed(self) -> list[m.Action]:
        assert self.computing is not None
        if self.computing.phase == m.REBUILD:
            self._needs_rebuild = False
            self.clock.count_rebuild()
            return self._proceed()
        if not self.clock.advance():
            return self._proceed()
        self._loss_known, self._boundary_is_new = False, True
        report = _report(
            "iteration_committed",
            iteration=self.clock.iteration,
            commit=self.clock.commit,
            executed=self.clock.executed,
        )
        return [report, *self._proceed()]

    def _loss_is_due(self) -> bool:
        every, k = self._stop.eval_every_iters, self.clock.iteration
        return k % every == 0 or k == self._stop.max_iters or self._stop_reason is not None

    def _evaluate(self) -> list[m.Action]:
        self._go("evaluate")
        self._loss_parts = {}
        order = m.EvaluateLoss(self.view.number, self.clock.commit)
        return [m.Send(worker, order) for worker in self.view.workers]

    def _on_loss(self, e: m.LossComputed) -> list[m.Action]:
        if e.view != self.view.number or self.state is not State.EVALUATING or e.commit != self.clock.commit:
            return []
        self._loss_parts[e.shard] = e.loss
        if len(self._loss_parts) < self._layout.n_shards:
            return []
        self._loss_known = True
        loss_sum = 0.0
        for shard in range(self._layout.n_shards):
            loss_sum += self._loss_parts[shard]
        self._loss_sum = loss_sum
        report = _report(
            "loss_evaluated", iteration=self.clock.iteration, executed=self.clock.executed, loss_sum=loss_sum
        )
        return [report, *self._proceed()]

    # --------------------------------------------------------------------------------------------------------- the end
    def _verdict_now(self) -> tuple[m.Outcome, str] | None:
        below = self._stop.loss_sum_below
        if below is not None and self._loss_known and self._loss_sum < below:
            return "converged", f"loss_sum {self._loss_sum:,.6g} is below {below:,.6g}"
        if self._stop.max_iters is not None and self.clock.iteration >= self._stop.max_iters:
            return "max-iters", f"{self.clock.iteration} iterations done"
        if self._stop_reason is not None:
            return "stopped", self._stop_reason
        return None

    def _try_to_end(self) -> list[m.Action]:
        """Await the save in flight, save all that changed, then finish."""
        if self.saves.step is not SaveStep.IDLE:
            return []
        if self.saves.final_is_whole is None:
            return self._after_save_event(self.saves.save_all_changed(self._version()))
        assert self._verdict is not None
        return self._finish(*self._verdict, saved=self.saves.final_is_whole)

    def _on_stop_requested(self, e: m.StopRequested) -> list[m.Action]:
        self._stop_reason = e.reason
        return [_report("stop_requested", reason=e.reason)]

    def _finish(self, outcome: m.Outcome, reason: str, *, saved: bool) -> list[m.Action]:
        self._go("finish")
        report = _report(
            "run_finished",
            outcome=outcome,
            reason=reason,
            saved=saved,
            iteration=self.clock.iteration,
            executed=self.clock.executed,
        )
        return [report, m.Finish(outcome, reason, saved)]

    # ------------------------------------------------------------------------------------------------------- the saves
    def _after_save_event(self, actions: list[m.Action]) -> list[m.Action]:
        """The save in flight has moved: does anything wait for it?"""
        if self.state is State.HOLDING and not self.saves.holds_commit:
            return [*actions, _report("commit_released", commit=self.clock.commit + 1), *self._decide()]
        if self.saves.step is not SaveStep.IDLE:
            return actions
        if self.state is State.DRAINING:
            return actions + self._claim()
        if self.state is State.SAVING:
            return actions + self._try_to_end()
        return actions

    def _version(self) -> Version:
        return Version(self.term, self.clock.commit, self.clock.iteration)

    # -------------------------------------------------------------------------------------------------------- failures
    def _on_node_lost(self, e: m.NodeLost) -> list[m.Action]:
        if e.node not in self.view.nodes or e.node in self._lost:
            return []
        self._lost.add(e.node)
        actions: list[m.Action] = [_report("node_lost", node=e.node, reason=e.reason)]
        if not set(self.view.servers) - self._lost or not set(self.view.workers) - self._lost:
            kind = "server" if not set(self.view.servers) - self._lost else "worker"
            return actions + self._finish("nodes-lost", f"no {kind} is left; the last was {e.node}", saved=False)
        if self.state is State.COMMITTING:
            actions += self.saves.lose(e.node)
            self._waiting.discard(e.node)
            return actions if self._waiting else actions + self._all_committed()
        if self.state in (State.CLAIMING, State.NEW):
            return actions + self.saves.lose(e.node)
        if self.state is State.DRAINING:
            return self._after_save_event(actions + self.saves.lose(e.node))
        return actions + self.saves.lose(e.node) + self._recover()

    def _recover(self) -> list[m.Action]:
        """Nodes are lost and no commit is under way."""
        if self._checkpoint.recovery == "full":
            actions = self.saves.void("everything is taken back")
            if self.saves.step is SaveStep.IDLE:
                return actions + self._claim()
            self._go("recover all, save in flight")
            return actions
        return self._restore("recover what was lost", everything=False)

    def _claim(self) -> list[m.Action]:
        self._go("recover all")
        self._claim_attempts, self._claim_retry = 0, None
        return [m.ClaimTerm(self.saves.last_unit)]

    def _on_term_failed(self, e: m.TermFailed) -> list[m.Action]:
        if self.state is not State.CLAIMING or self._claim_retry is not None:
            return []
        self._claim_attempts += 1
        if self._claim_attempts >= LOAD_ATTEMPTS:
            return self._finish("store-down", f"no new term could be claimed: {e.cause}", saved=False)
        self._claim_retry = self._new_token()
        return _wait_for_store("controller", e.cause, self._claim_attempts, self._claim_retry)

    def _on_term_claimed(self, e: m.TermClaimed) -> list[m.Action]:
        self._check("term claimed")
        self._boundary_is_new = False
        self.term = e.term
        self.clock.rewind(self.saves.last_unit.iteration if self.saves.last_unit else 0)
        return self._restore("term claimed", everything=True)

    def _restore(self, trigger: str, *, everything: bool) -> list[m.Action]:
        self._loss_known = False
        if self._lost:
            self.recovery.lose(sorted(self._lost))
            self._lost.clear()
        if everything:
            self.recovery.unsettle_all()
        self._lost_blocks = self.recovery.n_unsettled_blocks
        view = self.view
        return [
            _report("view_changed", view=view.number, servers=list(view.servers), workers=list(view.workers)),
            _report(
                "recovery_started", view=view.number, kind=self._checkpoint.recovery, lost_blocks=self._lost_blocks
            ),
            *self._install(trigger),
        ]

    # ------------------------------------------------------------------------------------------------------- the rules
    def _check(self, trigger: str) -> State:
        target = TRANSITIONS.get((self.state, trigger))
        if target is None:
            raise ProtocolError(f"{trigger!r} cannot happen while waiting for {self.state.value}", list(self._story))
        return target

    def _go(self, trigger: str) -> None:
        self.state = self._check(trigger)

    def _new_token(self) -> int:
        self._next_token += 1
        return self._next_token


def _wait_for_store(node: NodeId, cause: str, attempt: int, token: int) -> list[m.Action]:
    return [
        _report("recovery_waiting", node=node, cause=cause, attempt=attempt),
        m.SetTimer(token, min(FIRST_RETRY_S * 2 ** (attempt - 1), LONGEST_RETRY_S)),
    ]


def _report(name: str, **fields: Any) -> m.Report:
    return m.Report(Record(name, fields))


def _brief(event: object) -> str:
    text = repr(event)
    return text if len(text) <= 200 else text[:197] + "..."
